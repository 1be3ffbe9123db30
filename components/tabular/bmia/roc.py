"""How well scores tell members from non-members: rates at a false-positive rate, AUC, the whole curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from kfp_methods.components.tabular.bmia.arrays import Floats


@dataclass(frozen=True)
class Rate:
    """The true-positive rate at a false-positive rate, with its exact 95% binomial interval.

    `tpr`, `low`, `high` and `threshold` are None, and `note` says why, where there are too few non-members.
    """

    fpr: float
    tpr: float | None
    low: float | None
    high: float | None
    threshold: float | None
    note: str = ""


def rate_at(fpr: float, member: Floats, nonmember: Floats) -> Rate:
    """Share of members above the (floor(fpr n0) + 1)-th largest of the n0 non-member scores.

    At most floor(fpr n0) non-members lie strictly above it, and equal scores give no true positives.

    Args:
        fpr: false-positive rate in (0, 1).
        member: scores of members [n1].
        nonmember: scores of non-members [n0].
    """
    allowed = math.floor(fpr * len(nonmember) + 1e-9)
    if allowed < 1:
        return Rate(fpr, None, None, None, None, "unresolvable: fewer than 1/FPR non-members")
    position = len(nonmember) - allowed - 1
    threshold = float(np.partition(nonmember, position)[position])
    hits = int(np.sum(member > threshold))
    return Rate(fpr, hits / len(member), *clopper_pearson(hits, len(member)), threshold)


def clopper_pearson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a binomial share: quantiles of the beta law."""
    tail = (1 - level) / 2
    low = special.betaincinv(hits, n - hits + 1, tail) if hits else 0.0
    high = special.betaincinv(hits + 1, n - hits, 1 - tail) if hits < n else 1.0
    return float(low), float(high)


def auc(member: Floats, nonmember: Floats) -> float:
    """Probability that a member [n1] outscores a non-member [n0], ties counting half (mid-ranks)."""
    n1, n0 = len(member), len(nonmember)
    ranks = pd.Series(np.concatenate([member, nonmember])).rank(method="average").to_numpy()
    return float((ranks[:n1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def roc_curve(member: Floats, nonmember: Floats) -> tuple[Floats, Floats, Floats]:
    """False- and true-positive rate and threshold at every distinct score, thresholds falling from +inf."""
    thresholds = np.concatenate([[np.inf], np.unique(np.concatenate([member, nonmember]))[::-1]])
    fpr = 1 - np.searchsorted(np.sort(nonmember), thresholds, side="left") / len(nonmember)
    tpr = 1 - np.searchsorted(np.sort(member), thresholds, side="left") / len(member)
    return fpr, tpr, thresholds
