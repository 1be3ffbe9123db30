"""The learned set's decision: weights of assets, or coefficients of a regression, with the metric they come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.ot_dro.cones import Floats

_ABOUT, _METRIC, _ARRAYS = "decision.json", "L.npy", "decision.npz"


@dataclass(frozen=True)
class LinearDecision:
    """output = intercept + w . columns.

    Attributes:
        columns: names, in the order of w.
        output: what is computed: "portfolio_return", or the target's name.
        w, row: the decision and the fitted rows' mean, for `example` [k].
        L: the learned metric [k, k], with the target last for a regression.
        about: what was solved, with its certificates; plain JSON values.
    """

    columns: tuple[str, ...]
    output: str
    w: Floats
    intercept: float
    row: Floats
    L: Floats
    about: dict[str, Any]

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Each row's portfolio return or predicted target; columns are taken by name, others ignored.

        Raises:
            ValueError: a column is missing or holds no numbers.
        """
        if missing := [name for name in self.columns if name not in frame]:
            raise ValueError(f"missing columns {missing[:5]}; needed: {', '.join(self.columns[:5])}, …")
        try:
            values = frame[[*self.columns]].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a column holds something else than numbers: {error}") from None
        return pd.DataFrame({self.output: values @ self.w + self.intercept}, index=frame.index)

    def example(self) -> pd.DataFrame:
        """The mean of the fitted rows."""
        return pd.DataFrame([self.row], columns=list(self.columns))

    def save(self, folder: Path) -> None:
        """Writes the numbers as JSON, to be read by people, and as NPY and NPZ."""
        named = dict(zip(self.columns, self.w.tolist(), strict=True))
        about = {**self.about, "output": self.output, "intercept": self.intercept, "decision": named}
        (folder / _ABOUT).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        np.save(folder / _METRIC, self.L, allow_pickle=False)
        np.savez(folder / _ARRAYS, w=self.w, row=self.row)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        output, intercept, named = about.pop("output"), about.pop("intercept"), about.pop("decision")
        L = np.load(folder / _METRIC, allow_pickle=False)
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            return cls(tuple(named), output, arrays["w"], float(intercept), arrays["row"], L, about)
