"""The fitted coefficients in the table's units: what a release publishes, and what predicts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats

_ABOUT, _ARRAYS, _STATEMENT = "coefficients.json", "coefficients.npz", "privacy_statement.md"


@dataclass(frozen=True)
class Coefficients:
    """prediction = intercept + slopes . features.

    Attributes:
        features: columns, in the order of the slopes.
        target: what is predicted, in its units.
        slopes: in units of the target by units of the feature [m].
        intercept: in units of the target.
        theta: the same on scaled rows, as the mechanism made them [d].
        row: one row for `example` [m], from the bounds' middle or the scaling's center.
        about: what kind of coefficients these are, with their budget; plain JSON values.
        statement: the privacy statement, Markdown.
    """

    features: tuple[str, ...]
    target: str
    slopes: Floats
    intercept: float
    theta: Floats
    row: Floats
    about: dict[str, Any]
    statement: str

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Each row's predicted target, missing where a feature is; columns are taken by name, others ignored.

        Raises:
            ValueError: a column is missing or holds no numbers.
        """
        if missing := [name for name in self.features if name not in frame]:
            raise ValueError(f"missing columns {missing[:5]}; needed: {', '.join(self.features[:5])}, …")
        try:
            x = frame[[*self.features]].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a column holds something else than numbers: {error}") from None
        return pd.DataFrame({self.target: x @ self.slopes + self.intercept}, index=frame.index)

    def example(self) -> pd.DataFrame:
        """The row at the center of the scaling, which holds no person's data."""
        return pd.DataFrame([self.row], columns=list(self.features))

    def save(self, folder: Path) -> None:
        """Writes the numbers as JSON, to be read by people, and as NPZ; beside them the privacy statement."""
        named = dict(zip(self.features, self.slopes.tolist(), strict=True))
        about = {
            **self.about,
            "target": self.target,
            "intercept": self.intercept,
            "slopes": named,
            "scaled": self.theta.tolist(),
        }
        (folder / _ABOUT).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        (folder / _STATEMENT).write_text(self.statement, encoding="utf-8")
        np.savez(folder / _ARRAYS, slopes=self.slopes, intercept=self.intercept, theta=self.theta, row=self.row)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        target, slopes = about.pop("target"), about.pop("slopes")
        del about["intercept"], about["scaled"]
        statement = (folder / _STATEMENT).read_text(encoding="utf-8")
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in ("slopes", "theta", "row")}
            return cls(
                tuple(slopes), target, intercept=float(arrays["intercept"]), about=about, statement=statement, **values
            )
