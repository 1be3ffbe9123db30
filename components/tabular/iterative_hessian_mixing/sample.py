"""Data that come with the method: three real tables, and made ones whose best fit is known.

`boston.npz`: Harrison and Rubinfeld's 506 census tracts of Boston (1978), the table `Boston` of R's package MASS, from
the Python package pydataset 0.2.0. `diamonds.npz`: price and measures of 53,940 diamonds, the table `diamonds` of R's
package ggplot2, from the same; it holds what neighbouring rows and columns do not tell of each other, in hundredths,
tenths and dollars (`_diamonds` puts it together). scikit-learn brings the 442 patients of `diabetes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.iterative_hessian_mixing.choices import SamplePart
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats

FOLDER = Path(__file__).parent
TRAINING_SHARE = 0.8
_CUTS = ("Fair", "Good", "Ideal", "Premium", "Very Good")
_COLOURS = tuple("DEFGHIJ")
_CLARITIES = ("I1", "IF", "SI1", "SI2", "VS1", "VS2", "VVS1", "VVS2")


@dataclass(frozen=True)
class Rows:
    """Numbers x [n, m] of named features, and targets y [n]."""

    features: tuple[str, ...]
    target: str
    x: Floats
    y: Floats

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        return Rows(self.features, self.target, self.x[rows], self.y[rows])


def split(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """A random 80% to fit, and the rest to test."""
    order = np.random.default_rng(seed).permutation(len(rows.y))
    cut = int(TRAINING_SHARE * len(order))
    return rows.take(order[:cut]), rows.take(order[cut:])


def table(name: SamplePart) -> Rows:
    """One of the real tables."""
    return {"boston": _boston, "diabetes": _diabetes, "diamonds": _diamonds}[name]()


def directions(n: int, d: int, seed: int) -> tuple[Floats, Floats]:
    """Rows X [n, d] of uniform direction and norm 1, and y = X theta, at most 0.9, plus N(0, 0.02^2), clipped to 1."""
    rng = np.random.default_rng([seed, d])
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    signal = X @ rng.standard_normal(d)
    y = 0.9 * signal / np.abs(signal).max() + 0.02 * rng.standard_normal(n)
    return X, np.clip(y, -1, 1)


def _boston() -> Rows:
    with np.load(FOLDER / "boston.npz", allow_pickle=False) as arrays:
        names, values = arrays["columns"].tolist(), arrays["values"]
    return Rows(tuple(names[:-1]), names[-1], values[:, :-1], values[:, -1])


def _diabetes() -> Rows:
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    return Rows(tuple(data.feature_names), "progression", data.data, data.target)


def _diamonds() -> Rows:
    """Log price; cut, colour and clarity as 0/1 columns, the first of each left out; rows with x, y and z above 0."""
    with np.load(FOLDER / "diamonds.npz", allow_pickle=False) as arrays:
        held = {name: arrays[name].astype(np.int64) for name in arrays.files}
    x, depth = held["x"], held["depth"]
    y = x + held["y_minus_x"]
    z = ((x + y) * depth + 1000) // 2000 + held["z_minus_expected"]
    price = np.cumsum(held["price_steps"])
    columns = {"carat": held["carat"] / 100, "depth": depth / 10, "table": held["table"] / 10}
    columns |= {"x": x / 100, "y": y / 100, "z": z / 100}
    for name, words in (("cut", _CUTS), ("color", _COLOURS), ("clarity", _CLARITIES)):
        columns |= {f"{name} {word}": (held[name] == code) * 1.0 for code, word in enumerate(words) if code > 0}
    whole = (x > 0) & (y > 0) & (z > 0)
    return Rows(tuple(columns), "log price", np.column_stack([*columns.values()])[whole], np.log(price[whole]))
