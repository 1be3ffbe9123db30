"""Risks of models on source tasks: who dominates whom, by how much, and how few models stand for all.

Wegel, Di Gennaro, So, Yang, "Hedging on the Frontier: Learning New Tasks with Few Samples" (2026). Everywhere R is the
matrix of source risks [models, tasks], lower is better.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_ROUNDING = 1e-12
_LARGEST_EXACT = 300
_BLOCK = 2**25  # numbers at once


class Domination(NamedTuple):
    """on_frontier [M]: no other model is at least as good everywhere and better somewhere (the strong frontier; models
    with equal risks all stay). margin [M]: by how much the model is beaten everywhere at once, max over others of
    min over tasks of R(f) - R(g), at least 0. by [M]: who attains it, -1 where nobody does.
    """

    on_frontier: Flags
    margin: Floats
    by: Ints


def domination(R: Floats) -> Domination:
    """Of every model; O(M^2 K), in blocks."""
    M, K = R.shape
    on_frontier, margin, by = np.ones(M, bool), np.zeros(M), np.full(M, -1)
    rows = max(1, _BLOCK // max(1, M * K))
    for start in range(0, M, rows):
        differences = R[start : start + rows, None, :] - R[None]  # f against g: positive where f is worse
        least, most = differences.min(2), differences.max(2)
        on_frontier[start : start + rows] = ~((least >= 0) & (most > 0)).any(1)
        block = np.arange(len(least))
        least[block, start + block] = -np.inf
        best = least.argmax(1)
        beaten = least[block, best] > 0
        margin[start : start + rows] = np.where(beaten, least[block, best], 0.0)
        by[start : start + rows] = np.where(beaten, best, -1)
    return Domination(on_frontier, margin, by)


def distances(R: Floats, others: Floats | None = None) -> Floats:
    """d(f, g) = max over tasks of (R(f) - R(g))_+ [models, others]: by how much f is worse than g somewhere."""
    return np.maximum(signed_distances(R, others), 0.0)


def signed_distances(R: Floats, others: Floats | None = None) -> Floats:
    """The same without the positive part: negative where f is better everywhere."""
    other = R if others is None else others
    found = np.empty((len(R), len(other)))
    rows = max(1, _BLOCK // max(1, len(other) * R.shape[1]))
    for start in range(0, len(R), rows):
        found[start : start + rows] = (R[start : start + rows, None, :] - other[None]).max(2)
    return found


def cover(R: Floats, t: float, on_frontier: Flags | None = None) -> Ints:
    """Fewest models (numbers into R, rising) such that every model f has one of them, g, with d(g, f) <= t.

    Taken from the frontier, which costs nothing: who dominates a centre covers as much. Of the minimum covers one with
    low mean risk. Exact by integer programming up to 300 models on the frontier, beyond that greedy.
    """
    frontier = np.flatnonzero(domination(R).on_frontier if on_frontier is None else on_frontier)
    unique, first = np.unique(R[frontier], axis=0, return_index=True)
    candidates = frontier[np.sort(first)]
    reach = distances(R[candidates], R[candidates]) <= t + _ROUNDING  # covering the frontier covers all
    if len(unique) == 1:
        return candidates[:1]
    chosen = _exact(reach, R[candidates]) if len(candidates) <= _LARGEST_EXACT else greedy(reach)
    return np.sort(candidates[chosen])


def _exact(reach: Flags, R: Floats) -> Ints:
    from scipy.optimize import Bounds, LinearConstraint, milp

    n = len(reach)
    cost = 1 + R.mean(1) / (2 * n * max(1.0, float(R.max())))  # all extra costs together are below one centre's
    found = milp(
        cost,
        constraints=LinearConstraint(reach.T.astype(float), lb=1),
        integrality=np.ones(n),
        bounds=Bounds(0, 1),
    )
    return np.flatnonzero(found.x > 0.5) if found.success else greedy(reach)


def greedy(reach: Flags) -> Ints:
    """A cover, each time by who covers most of the rest; reach [centres, points], ties by order."""
    left, chosen = np.ones(reach.shape[1], bool), []
    while left.any():
        chosen.append(int((reach & left).sum(1).argmax()))
        left &= ~reach[chosen[-1]]
    return np.array(sorted(chosen))


def covering_numbers(R: Floats, grid: Floats) -> Ints:
    """N(t) for each t of `grid`, which rises: N falls, so what lies between equal numbers is not computed."""
    on_frontier = domination(R).on_frontier
    numbers = np.zeros(len(grid), int)

    def fill(first: int, last: int) -> None:
        if numbers[first] == numbers[last]:
            numbers[first : last + 1] = numbers[first]
        elif last - first > 1:
            middle = (first + last) // 2
            numbers[middle] = len(cover(R, float(grid[middle]), on_frontier))
            fill(first, middle)
            fill(middle, last)

    for end in {0, len(grid) - 1}:
        numbers[end] = len(cover(R, float(grid[end]), on_frontier))
    fill(0, len(grid) - 1)
    return numbers


def radii(R: Floats, on_frontier: Flags) -> tuple[Floats, Ints]:
    """100 quantiles of the frontier's distances, and the size of a greedy cover at each, which is no less than N(t)."""
    d = distances(np.unique(R[on_frontier], axis=0))
    grid = np.unique(np.quantile(d, np.linspace(0, 1, 100)))
    return grid, np.array([len(greedy(d <= t + _ROUNDING)) for t in grid])


def automatic_t(grid: Floats, numbers: Ints, n: int, delta: float) -> float:
    """The t of the grid that minimises t + sqrt(log(2 N(t) / delta) / (2 n)), with an upper bound of N(t).

    The guarantee has the upper modulus W(t) in the place of the first t; that is not known, and at most t where target
    risks move no faster than source risks.
    """
    bound = grid + np.sqrt(np.log(2 * numbers / delta) / (2 * n))
    return float(grid[bound.argmin()])


def monotone_pairs(R: Floats, Q: Floats) -> tuple[int, int]:
    """How many pairs in which f dominates g have Q(f) <= Q(g), and how many such pairs there are; Q: risks [M]."""
    d = distances(R)
    dominated = (d <= 0) & (d.T > 0)
    ordered = Q[:, None] <= Q[None, :] + _ROUNDING
    return int((dominated & ordered).sum()), int(dominated.sum())


def upper_modulus(R: Floats, Q: Floats, grid: Floats, quantile: float = 0.99) -> Floats:
    """W(t): a high quantile of Q(f) - Q(g) over pairs with d(f, g) <= t; NaN where there is none."""
    d, gaps = distances(R), Q[:, None] - Q[None, :]
    np.fill_diagonal(d, np.inf)
    return _quantiles((gaps[d <= t + _ROUNDING] for t in grid), quantile)


def lower_modulus(R: Floats, Q: Floats, grid: Floats, quantile: float = 0.01) -> Floats:
    """V(t): a low quantile of Q(g) - Q(f) over pairs in which f beats g by t or more on every task."""
    least, gaps = -signed_distances(R), Q[None, :] - Q[:, None]
    np.fill_diagonal(least, -np.inf)
    return _quantiles((gaps[least >= t - _ROUNDING] for t in grid), quantile)


def _quantiles(groups: Iterable[Floats], quantile: float) -> Floats:
    return np.array([np.quantile(group, quantile) if len(group) else np.nan for group in groups])
