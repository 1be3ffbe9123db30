"""How strong the noise must be: the least eigenvalue gamma that makes Gaussian sketches (epsilon, delta)-private.

A sketch of k rows of X, |x_i| <= 1, has rows N(0, M), M = X'X. Leaving out one person's row v changes M to M - v v',
and with v' M^-1 v <= 1/gamma the Renyi divergence of order a between both is at most the bracket `sketch_divergence`.
Sources: Lev, Shenfeld, Srinivasan, Ligett and Wilson, arXiv 2601.07545, and its code (omrilev1/HessianMix).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.privacy import gaussian_epsilon, gaussian_sd

Floats = NDArray[np.float64]

FAILURE_SHARE = 0.1
_LEAST_ORDER = 1e-6  # above 1
_ORDERS = 400
_RELATIVE = 1e-10


@dataclass(frozen=True)
class SketchPlan:
    """The noise of a Gaussian sketch and of the eigenvalue that steers it.

    Attributes:
        rows: of the sketch, k.
        gamma: least eigenvalue that X'X plus the added noise must have.
        eta: standard deviation of the noise on the data's least eigenvalue.
        tau: how many of them the eigenvalue is lowered by, so that it is an underestimate but for a share of delta.
    """

    rows: int
    gamma: float
    eta: float
    tau: float


@dataclass(frozen=True)
class Plan:
    """All that a release by iterative Hessian mixing has to know of its budget.

    Attributes:
        epsilon: total.
        delta: total.
        iterations: T.
        clip: bound C on |y| and on residuals.
        sketch: of each step.
        sigma: standard deviation of the noise on each gradient.
    """

    epsilon: float
    delta: float
    iterations: int
    clip: float
    sketch: SketchPlan
    sigma: float


@lru_cache(maxsize=1024)
def plan(
    epsilon: float,
    delta: float,
    d: int,
    *,
    iterations: int,
    factor: float = 6.0,
    clip: float = 1.0,
    strict: bool = True,
) -> Plan:
    """Half of epsilon and 3/4 of delta for the sketches and the eigenvalue, the rest for the gradients.

    strict: count the eigenvalue's release by the exact epsilon of Gaussian noise. Otherwise by the classical formula,
    as the paper's code does, which is proved only where its own epsilon is 1 or less.
    """
    T, rho = iterations, FAILURE_SHARE * delta
    rows = max(d + 1, math.floor(factor * d), math.floor(factor * math.log(4 * T / rho)))
    share = 0.75 * delta / 3
    gamma = least_eigenvalue(epsilon / 2, share, rows, releases=T, strict=strict)
    tau = math.sqrt(2 * math.log(max(4 / delta, 4 / rho)))
    sigma = gaussian_sd(epsilon / 2, delta / 4, clip * math.sqrt(T))
    return Plan(epsilon, delta, T, clip, SketchPlan(rows, gamma, gamma / math.sqrt(rows), tau), sigma)


@lru_cache(maxsize=1024)
def linear_mixing_plan(
    epsilon: float, delta: float, d: int, *, factor: float = 2.5, clip: float = 1.0, strict: bool = True
) -> SketchPlan:
    """For one sketch of [X y], whose rows are of norm up to sqrt(1 + C^2), with the whole budget.

    strict: see `plan`; the paper's code also leaves the factor sqrt(1 + C^2) out of the eigenvalue's term, which
    spends more than it counts.
    """
    rho, norm = FAILURE_SHARE * delta, 1 + clip**2
    rows = max(d + 2, math.floor(factor * d), math.floor(factor * math.log(2 / rho)))
    gamma = least_eigenvalue(epsilon, delta / 3, rows, norm=norm, strict=strict)
    tau = math.sqrt(2 * math.log(max(3 / delta, 2 / rho)))
    return SketchPlan(rows, gamma, math.sqrt(norm) * gamma / math.sqrt(rows), tau)


def least_eigenvalue(
    epsilon: float, delta: float, rows: int, *, releases: int = 1, norm: float = 1.0, strict: bool = True
) -> float:
    """The smallest gamma for which `releases` sketches and one noisy eigenvalue cost at most epsilon, rounded up.

    Args:
        epsilon: for all of them, above 0.
        delta: for the conversion from Renyi divergence, and again for the eigenvalue.
        rows: k of each sketch.
        norm: largest squared norm of a sketched row.
    """

    from scipy.optimize import brentq

    def missing(log_excess: float) -> float:
        gamma = norm * (1 + math.exp(log_excess))
        return total_epsilon(gamma, delta, rows, releases=releases, norm=norm, strict=strict) - epsilon

    low = high = 0.0
    while missing(high) > 0:
        high += 1
    while missing(low) <= 0:
        low -= 1
    found = float(brentq(missing, low, high, xtol=_RELATIVE / 4, rtol=_RELATIVE / 4))
    while missing(found) > 0:  # the root may lie on either side
        found += _RELATIVE / 2
    return norm * (1 + math.exp(found))


def total_epsilon(
    gamma: float, delta: float, rows: int, *, releases: int = 1, norm: float = 1.0, strict: bool = True
) -> float:
    """What sketches and eigenvalue cost at this gamma > norm; falls as gamma grows."""
    bound = gamma / norm

    def sketches(excess: Floats) -> Floats:
        order = 1 + excess
        converted = (math.log(1 / delta) + excess * np.log1p(-1 / order) - np.log(order)) / excess
        return releases * sketch_divergence(excess, bound, rows) + converted

    if strict:
        return _least(sketches, bound - 1) + gaussian_epsilon(gamma / math.sqrt(rows * norm), delta)
    return _least(sketches, bound - 1) + math.sqrt(2 * math.log(1.25 / delta)) * math.sqrt(rows) / gamma


def sketch_divergence(excess: Floats, bound: float, rows: int) -> Floats:
    """Renyi divergence of order 1 + excess of `rows` rows N(0, M) from N(0, M - v v'), v' M^-1 v = 1 / bound."""
    order = 1 + excess
    return rows / (2 * excess) * (order * math.log1p(-1 / bound) - np.log1p(-order / bound))


def _least(cost: Callable[[Floats], Floats], largest: float) -> float:
    """The smallest value on (0, largest): on a logarithmic grid, then twice on a finer one between its neighbours."""
    grid = np.geomspace(min(_LEAST_ORDER, largest / 2), largest, _ORDERS + 1)[:-1]
    for _ in range(3):
        values = cost(grid)
        best = int(np.argmin(values))
        grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 41)
    return max(0.0, float(cost(grid).min()))
