"""How well scores tell members from non-members: rates at a false-positive rate, AUC, the whole curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.uncertainty import rate_limits

TOO_FEW = "fewer than 1/FPR non-members"
TIED = "the scores of many non-members are equal"


@dataclass(frozen=True)
class Rate:
    """The true-positive rate at a false-positive rate, with its 95% interval (`uncertainty.rate_limits`).

    `tpr`, `low`, `high` and `threshold` are None, and `note` says why, where the rate cannot be resolved.
    """

    fpr: float
    tpr: float | None
    low: float | None
    high: float | None
    threshold: float | None
    note: str = ""


def rate_at(fpr: float, member: Floats, nonmember: Floats) -> Rate:
    """Share of members above the (floor(fpr n0) + 1)-th largest of the n0 non-member scores.

    At most floor(fpr n0) non-members lie strictly above it. Where scores are equal it may be far fewer, and then the
    share is that of a smaller false-positive rate. It counts as resolved if that rate is at least half of what is
    allowed, or the share at least half of that at the threshold itself, where too many non-members are flagged.

    Args:
        fpr: false-positive rate in (0, 1).
        member: scores of members [n1].
        nonmember: scores of non-members [n0].
    """
    allowed = math.floor(fpr * len(nonmember) + 1e-9)
    if allowed < 1:
        return Rate(fpr, None, None, None, None, TOO_FEW)
    position = len(nonmember) - allowed - 1
    threshold = float(np.partition(nonmember, position)[position])
    tpr, with_ties = float(np.mean(member > threshold)), float(np.mean(member >= threshold))
    if 2 * int(np.sum(nonmember > threshold)) < allowed and 2 * tpr < with_ties:
        return Rate(fpr, None, None, None, None, TIED)
    limits = rate_limits(fpr, [(member, nonmember)])
    return Rate(fpr, tpr, min(limits.low, tpr), max(limits.high, tpr), threshold)


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
