"""A surrogate that predicts again: the rows that it was shown, and how to read them; nothing else is fitted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.fire.backends import BackendChoice
from kfp_methods.components.tabular.fire.running import Surrogate, surrogate
from kfp_methods.components.tabular.fire.two_stage import Options, Rows
from kfp_methods.components.tabular.fire.user_data import Features

_ABOUT, _ROWS = "surrogate.json", "rows.npz"
_ROWS_AT_ONCE = 4_096
LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)


@dataclass(frozen=True)
class MultiFidelityModel:
    """rows: in the table's units. A user's own checkpoint is referred to, not copied."""

    features: Features
    rows: Rows
    choice: BackendChoice
    options: Options

    @cached_property
    def surrogate(self) -> Surrogate:
        """FIRE that has seen the rows."""
        return surrogate(self.rows, self.choice.make(), self.options)

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Mean, variance and quantiles for each row; columns are taken by name, others ignored.

        Raises:
            ValueError: a column is missing, or a value is no number or no known category.
        """
        if missing := [name for name in self.features.names if name not in frame]:
            raise ValueError(f"missing columns {missing[:5]}; needed: {', '.join(self.features.names[:5])}, …")
        try:
            X = self.features.numbers(frame)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a column holds something else than numbers: {error}") from None
        if not np.isfinite(X).all():
            raise ValueError("a value is missing, infinite or an unknown category")
        return table_of(self.surrogate, X, frame.index)

    def example(self) -> pd.DataFrame:
        """The middle of the rows' box; of text the first category."""
        middle = (self.rows.X.min(0) + self.rows.X.max(0)) / 2
        known = self.features.categories
        return pd.DataFrame(
            {name: [known[name][0] if name in known else middle[i]] for i, name in enumerate(self.features.names)}
        )

    def save(self, folder: Path) -> None:
        """Rows as NPZ, everything else as JSON."""
        choice = asdict(self.choice) | {"device": "cpu", "checkpoint": str(self.choice.checkpoint or "")}
        about: dict[str, Any] = {"features": asdict(self.features), "choice": choice, "options": asdict(self.options)}
        (folder / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        np.savez(folder / _ROWS, X=self.rows.X, y=self.rows.y, level=self.rows.level)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        choice, options = about["choice"], about["options"]
        choice["checkpoint"] = Path(choice["checkpoint"]) if choice["checkpoint"] else None
        options["levels"] = tuple(options["levels"])
        categories = {name: tuple(found) for name, found in about["features"]["categories"].items()}
        with np.load(folder / _ROWS, allow_pickle=False) as arrays:
            rows = Rows(arrays["X"], arrays["y"], arrays["level"])
        features = Features(tuple(about["features"]["names"]), categories)
        return cls(features, rows, BackendChoice(**choice), Options(**options))


def table_of(made: Surrogate, X: np.ndarray, index: pd.Index | None = None) -> pd.DataFrame:
    """Predictions of rows X [m, d]: mean, variance, quantiles."""
    blocks = np.array_split(X, max(1, -(-len(X) // _ROWS_AT_ONCE)))
    names = ["mean", "variance", *(f"q{round(100 * level):02d}" for level in LEVELS)]
    return pd.DataFrame(np.vstack([_columns(made, block) for block in blocks]), index=index, columns=names)


def _columns(made: Surrogate, X: np.ndarray) -> np.ndarray:
    found = made.predict(X)
    return np.column_stack([found.mean, found.variance, found.quantiles(np.array(LEVELS))])
