"""Confidence limits of a rate, an AUC and their means, which count the luck of members and of non-members alike.

Limits of a quantity that depends on several independent samples are recovered from those of each sample alone by
MOVER (Zou and Donner, Stat. Med. 27:1693, 2008): their squared distances from the estimate add up.
Nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy import special
from scipy.optimize import brentq

from kfp_methods.components.tabular.bmia.arrays import Floats

_BESIDE = 1e-12


class Limits(NamedTuple):
    """A two-sided interval, `low` and `high`, around the estimate `centre`."""

    centre: float
    low: float
    high: float


def rate_limits(fpr: float, targets: Sequence[tuple[Floats, Floats]], level: float = 0.95) -> Limits:
    """Limits of the share of all members that score above the threshold that `fpr` of all non-members exceed.

    Exact intervals are joined by MOVER: Clopper-Pearson's of the share at the estimated threshold (members), and
    the shares at the ends of the threshold's own interval between order statistics (non-members; David and Nagaraja,
    Order Statistics, 7.1). The estimate lies at rank fpr (n0 + 1), between two ranks where that is no whole number, so
    that scores which tell nothing give `fpr` on average.

    Args:
        fpr: false-positive rate in (0, 1).
        targets: scores of n1 members and of n0 non-members; of several targets, the limits are of their mean share.
        level: confidence.
    """
    shares = [_Shares.of(fpr, member, nonmember, level) for member, nonmember in targets]
    m, n1 = len(shares), sum(len(member) for member, _ in targets)
    centre = math.fsum(one.centre for one in shares) / m
    low, high = clopper_pearson(centre * n1, n1, level)
    below = math.hypot(*(one.centre - one.low for one in shares)) / m
    above = math.hypot(*(one.high - one.centre for one in shares)) / m
    low, high = centre - math.hypot(centre - low, below), centre + math.hypot(high - centre, above)
    return Limits(centre, max(low, 0.0), min(high, 1.0))


class _Shares(NamedTuple):
    """One target's share of members above the threshold, and above the ends of the threshold's interval."""

    centre: float
    low: float
    high: float

    @classmethod
    def of(cls, fpr: float, member: Floats, nonmember: Floats, level: float) -> Self:
        n0, falling, tail = len(nonmember), np.sort(nonmember)[::-1], (1 - level) / 2

        def above(rank: int) -> float:
            """Share of members above the rank-th largest non-member; rank 0 is +inf, n0 + 1 is -inf."""
            return 0.0 if rank < 1 else 1.0 if rank > n0 else float(np.mean(member > falling[rank - 1]))

        rank = fpr * (n0 + 1)
        lower, part = math.floor(rank), rank - math.floor(rank)
        centre = (1 - part) * above(lower) + part * above(lower + 1)
        exceeding = special.bdtr(np.arange(n0 + 1), n0, fpr)  # law of the number of non-members above the threshold
        low = above(int(np.searchsorted(exceeding, tail)))
        high = above(int(np.searchsorted(exceeding, 1 - tail)) + 1)
        return cls(centre, min(low, centre), max(high, centre))


def clopper_pearson(hits: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a binomial share: quantiles of the beta law, also between whole numbers of hits."""
    tail = (1 - level) / 2
    low = special.betaincinv(hits, n - hits + 1, tail) if hits > 0 else 0.0
    high = special.betaincinv(hits + 1, n - hits, 1 - tail) if hits < n else 1.0
    return float(low), float(high)


def auc_limits(auc: float, n_members: int, n_nonmembers: int, level: float = 0.95) -> Limits:
    """Limits of the AUC: the values a that |auc - a| <= z se(a) does not refute.

    Newcombe's score method (Stat. Med. 25:559, 2006, method 5) with Hanley and McNeil's standard error, both numbers
    in its numerator at their mean. For scores that tell nothing it is the Mann-Whitney test.
    """
    z = float(special.ndtri((1 + level) / 2))
    extra = (n_members + n_nonmembers) / 2 - 1

    def excess(value: float) -> float:
        spread = 1 + extra * ((1 - value) / (2 - value) + value / (1 + value))
        error = math.sqrt(value * (1 - value) * spread / (n_members * n_nonmembers))
        return abs(auc - value) - z * error

    # The error vanishes at 0 and 1, which are roots but not limits when the AUC itself is there.
    low = brentq(excess, 0.0, auc - _BESIDE) if auc > _BESIDE else 0.0
    high = brentq(excess, auc + _BESIDE, 1.0) if auc < 1 - _BESIDE else 1.0
    return Limits(auc, float(low), float(high))


def of_mean(limits: Sequence[Limits]) -> Limits:
    """Limits of the mean of quantities from independent samples, one at least."""
    n = len(limits)
    centre = math.fsum(one.centre for one in limits) / n
    low = centre - math.hypot(*(one.centre - one.low for one in limits)) / n
    high = centre + math.hypot(*(one.high - one.centre for one in limits)) / n
    return Limits(centre, low, high)
