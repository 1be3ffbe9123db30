"""What a regressor says of the rows it is asked about: mean, variance, and any quantile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

Floats = npt.NDArray[np.float64]
FEW = (0.1, 0.9)  # quantile levels where there is no room for more
CONSTANT_VARIANCE = 1e-12  # of a target that does not vary, in scaled units


@dataclass(frozen=True)
class Predictive:
    """Mean [m], variance [m], and `quantiles`, which maps levels [L] in (0, 1) to [m, L]."""

    mean: Floats
    variance: Floats
    quantiles: Callable[[Floats], Floats]

    @classmethod
    def normal(cls, mean: Floats, variance: Floats) -> Predictive:
        """With the quantiles of a normal law."""
        sd = np.sqrt(variance)
        return cls(mean, variance, lambda levels: mean[:, None] + sd[:, None] * norm.ppf(levels))

    @classmethod
    def constant(cls, value: float, m: int) -> Predictive:
        """One value for all m rows, without spread."""
        mean = np.full(m, value)
        return cls(mean, np.full(m, CONSTANT_VARIANCE), lambda levels: np.repeat(mean[:, None], len(levels), 1))

    def scaled(self, shift: float, factor: float) -> Predictive:
        """Of shift + factor * y, factor > 0."""
        return Predictive(
            shift + factor * self.mean,
            factor**2 * self.variance,
            lambda levels: shift + factor * self.quantiles(levels),
        )


class TooManyColumnsError(Exception):
    """A regressor cannot take so many."""


class Fitted(Protocol):
    """A regressor that has seen its rows."""

    def predict(self, X: Floats) -> Predictive: ...


class Backend(Protocol):
    """A regressor of tables.

    Attributes:
        name: as it is shown.
        sees_fidelity: whether a column with the fidelity is appended to what it is given.
    """

    name: str
    sees_fidelity: bool

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """Quantile levels that the second stage is shown beside `own` columns, where `wanted` were asked for."""

    def fit(self, X: Floats, y: Floats, own: int) -> Fitted:
        """X [n, F], y [n]; the first `own` columns are the user's, the others were appended."""


class Constant:
    """What stands for a regressor whose target does not vary."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, X: Floats) -> Predictive:
        """The constant."""
        return Predictive.constant(self.value, len(X))


def fit(backend: Backend, X: Floats, y: Floats, own: int) -> Fitted:
    """`backend` on the rows; a constant target is not asked of it."""
    return Constant(float(y[0])) if np.ptp(y) == 0 else backend.fit(X, y, own)


def convolved(first: Predictive, second: Predictive, draws: int, rng: np.random.Generator) -> Predictive:
    """The sum of independent draws of both, `draws` of each; its moments are the sums of theirs."""
    levels = (np.arange(draws) + 0.5) / draws
    a, b = first.quantiles(levels), second.quantiles(levels)
    total = np.sort(a + rng.permuted(b, axis=1), axis=1)
    mean, variance = first.mean + second.mean, first.variance + second.variance
    return Predictive(mean, variance, lambda wanted: np.quantile(total, wanted, axis=1).T)
