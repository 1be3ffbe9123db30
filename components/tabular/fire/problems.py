"""Pairs of a costly function and a cheap relative of it, with their boxes; and a real table with a cheap rule.

Sources: Currin et al. (1991) and Park (1991) in the versions of Xiong, Qian and Wu (2013); borehole: Morris, Mitchell
and Ylvisaker (1993) and Xiong et al.; Branin: Toal (2015), Forrester: Forrester, Sóbester and Keane (2007).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from kfp_methods.components.tabular.fire.predictive import Floats
from kfp_methods.components.tabular.fire.two_stage import Rows

Function = Callable[[Floats], Floats]
_DIABETES_RULE = (2, 8)  # body mass index and the fifth blood serum measurement
_DIABETES_RULE_ROWS = 150


@dataclass(frozen=True)
class Draw:
    """Training rows of two levels, in the problem's units, and rows of the higher one to test on."""

    training: Rows
    X_test: Floats
    y_test: Floats


@dataclass(frozen=True)
class Pair:
    """`high` and `low` map points [n, d] of the box [d, 2] to values [n]."""

    high: Function
    low: Function
    box: Floats

    def draw(self, n_low: int, n_high: int, n_test: int, seed: int) -> Draw:
        """Latin hypercubes, each with its own random numbers."""
        low, high, test = (
            self.points(n, np.random.default_rng((seed, part, 1))) for part, n in enumerate((n_low, n_high, n_test))
        )
        X, y = np.vstack([low, high]), np.concatenate([self.low(low), self.high(high)])
        return Draw(Rows(X, y, np.repeat([0, 1], [n_low, n_high])), test, self.high(test))

    def points(self, n: int, rng: np.random.Generator) -> Floats:
        """A Latin hypercube of the box [n, d]."""
        unit = qmc.LatinHypercube(len(self.box), rng=rng).random(n)
        return np.asarray(qmc.scale(unit, self.box[:, 0], self.box[:, 1]))


def currin_high(X: Floats) -> Floats:
    """On [0, 1]^2; the first factor is 1 where x2 = 0."""
    a, b = X.T
    factor = 1 - np.exp(-1 / (2 * np.where(b > 0, b, np.inf)))
    factor = np.where(b > 0, factor, 1.0)
    return factor * (2300 * a**3 + 1900 * a**2 + 2092 * a + 60) / (100 * a**3 + 500 * a**2 + 4 * a + 20)


def currin_low(X: Floats) -> Floats:
    """The mean of the other at four points nearby."""
    a, b = X.T
    below = np.maximum(0, b - 0.05)
    corners = [(a + 0.05, b + 0.05), (a + 0.05, below), (a - 0.05, b + 0.05), (a - 0.05, below)]
    return np.asarray(np.mean([currin_high(np.column_stack(corner)) for corner in corners], axis=0))


def park91a_high(X: Floats) -> Floats:
    """On [0, 1]^4, x1 away from 0."""
    a, b, c, d = X.T
    a = np.maximum(a, 1e-6)
    return a / 2 * (np.sqrt(1 + (b + c**2) * d / a**2) - 1) + (a + 3 * d) * np.exp(1 + np.sin(c))


def park91a_low(X: Floats) -> Floats:
    """A distorted copy."""
    a, b, c, _ = X.T
    return (1 + np.sin(a) / 10) * park91a_high(X) - 2 * a + b**2 + c**2 + 0.5


def _borehole(X: Floats, factor: float, offset: float) -> Floats:
    rw, r, tu, hu, tl, hl, length, kw = X.T
    a = np.log(r / rw)
    b = 2 * length * tu / (a * rw**2 * kw) + tu / tl
    return factor * tu * (hu - hl) / (a * (offset + b))


def borehole_high(X: Floats) -> Floats:
    """Flow of water through a borehole, m^3 a year."""
    return _borehole(X, 2 * np.pi, 1.0)


def borehole_low(X: Floats) -> Floats:
    """Cruder constants."""
    return _borehole(X, 5.0, 1.5)


def _branin(a: Floats, b: Floats) -> Floats:
    bowl = (b - 5.1 * a**2 / (4 * np.pi**2) + 5 * a / np.pi - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


def branin_high(X: Floats) -> Floats:
    """On [-5, 10] x [0, 15]."""
    a, b = X.T
    return _branin(a, b) - 22.5 * b


def branin_low(X: Floats) -> Floats:
    """Misleading: at 0.7 of the place, and tilted."""
    a, b = X.T
    return _branin(0.7 * a, 0.7 * b) - 15.75 * b + 20 * (0.9 + a) ** 2 - 50


def forrester_high(X: Floats) -> Floats:
    """On [0, 1]."""
    x = X[:, 0]
    return (6 * x - 2) ** 2 * np.sin(12 * x - 4)


def forrester_low(X: Floats) -> Floats:
    """Half of it, tilted."""
    return 0.5 * forrester_high(X) + 10 * (X[:, 0] - 0.5) - 5


def chain_high(X: Floats) -> Floats:
    """(x_0 - 1)^2 + the sum of (2 x_i^2 - x_{i-1})^2, in any dimension, on [-3, 3]^d."""
    return (X[:, 0] - 1) ** 2 + ((2 * X[:, 1:] ** 2 - X[:, :-1]) ** 2).sum(1)


def chain_low(X: Floats) -> Floats:
    """0.8 of it less 0.4 of the sum of neighbours' products, less 50."""
    return 0.8 * chain_high(X) - 0.4 * (X[:, :-1] * X[:, 1:]).sum(1) - 50


def _cube(d: int, low: float, high: float) -> Floats:
    return np.tile([low, high], (d, 1)).astype(float)


_BOREHOLE = np.array(
    [(0.05, 0.15), (100, 50_000), (63_070, 115_600), (990, 1_110), (63.1, 116), (700, 820), (1_120, 1_680),
     (9_855, 12_045)]
)  # fmt: skip
PAIRS: dict[str, Pair] = {
    "currin": Pair(currin_high, currin_low, _cube(2, 0, 1)),
    "park91a": Pair(park91a_high, park91a_low, _cube(4, 0, 1)),
    "borehole": Pair(borehole_high, borehole_low, _BOREHOLE),
    "branin": Pair(branin_high, branin_low, np.array([(-5.0, 10.0), (0.0, 15.0)])),
    "forrester": Pair(forrester_high, forrester_low, _cube(1, 0, 1)),
    **{f"hd{d}": Pair(chain_high, chain_low, _cube(d, -3, 3)) for d in (10, 20, 50)},
}


def draw(name: str, n_low: int, n_high: int, n_test: int, seed: int) -> Draw:
    """Rows of the problem `name`."""
    if name == "diabetes":
        return _diabetes(n_low, n_high, n_test, seed)
    return PAIRS[name].draw(n_low, n_high, n_test, seed)


def _diabetes(n_low: int, n_high: int, n_test: int, seed: int) -> Draw:
    """Progression of diabetes in 442 patients; cheap is a rule of two of their ten features, fitted on other patients.

    The rule can be asked about any patient but those that are tested on or whose progression was measured.
    """
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng((seed, 7)).permutation(len(y))
    rule, test, high, low = np.split(order, np.cumsum([_DIABETES_RULE_ROWS, min(n_test, 100), n_high]))
    design = np.column_stack([X[:, _DIABETES_RULE], np.ones(len(X))])
    cheap = design @ np.linalg.lstsq(design[rule], y[rule], rcond=None)[0]
    low = low[:n_low]
    rows = np.concatenate([low, high])
    values = np.concatenate([cheap[low], y[high]])
    return Draw(Rows(X[rows], values, np.repeat([0, 1], [len(low), len(high)])), X[test], y[test])
