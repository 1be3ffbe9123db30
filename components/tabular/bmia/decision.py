"""Is the target's score further out than one more draw of a reference posterior? A prediction t-test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.choices import DecisionRule

SMALLEST_SD = 1e-12


@dataclass(frozen=True)
class MembershipTest:
    """Per-record results [n]; H0: the record is no member, so its score is one more draw.

    Attributes:
        t: distance from the mean in prediction standard errors; rank records by it, never by p.
        p_value: one-sided.
        degrees_of_freedom: of the t law.
        mean: grand mean of the reference scores.
        sd: standard deviation of a reference score, that between references included if there are several.
        intra_variance: mean variance within a reference (same data, other weights); 0 with one sample each.
        inter_variance: variance between references (other data), never negative; None with one reference.
    """

    t: Floats
    p_value: Floats
    degrees_of_freedom: Floats
    mean: Floats
    sd: Floats
    intra_variance: Floats
    inter_variance: Floats | None


def t_test(target_scores: Floats, sample_scores: Floats) -> MembershipTest:
    """Tests each record's target score against posterior samples of K reference models.

    K = 1: t = (s0 - mean) / (sd sqrt(1 + 1/M)) with M-1 degrees of freedom. K > 1: with MSB the variance of
    the K means and MSW the mean within variance, the prediction variance (1+1/K) inter + (1+1/(KM)) intra is
    estimated without bias by v = (1+1/K) MSB + (1-1/M) MSW, t = (s0 - mean) / sqrt(v); its degrees of freedom
    are Welch-Satterthwaite's.

    Args:
        target_scores: s0 [n].
        sample_scores: [K, n, M].

    Raises:
        ValueError: a single sample of a single reference has no spread.
    """
    K, _, M = sample_scores.shape
    if K * M < 2:
        raise ValueError("n_samples must be at least 2 with one reference: a single sample has no spread")
    reference_means = sample_scores.mean(-1)  # [K, n]
    mean = reference_means.mean(0)
    within = sample_scores.var(-1, ddof=1).mean(0) if M > 1 else np.zeros_like(mean)  # MSW
    if K == 1:
        sd, inter, df = np.sqrt(within), None, np.full(mean.shape, M - 1.0)
        scale = np.maximum(sd, SMALLEST_SD) * math.sqrt(1 + 1 / M)
    else:
        between = reference_means.var(0, ddof=1)  # MSB
        sd, inter = np.sqrt(between + (1 - 1 / M) * within), np.maximum(between - within / M, 0)
        scale, df = _prediction_scale(between, within, K, M)
    t = (target_scores - mean) / scale
    return MembershipTest(t, special.stdtr(df, -t), df, mean, sd, within, inter)


def _prediction_scale(between: Floats, within: Floats, K: int, M: int) -> tuple[Floats, Floats]:
    """sqrt(v) and Welch-Satterthwaite's nu for K > 1 references of M samples."""
    from_means, from_samples = (1 + 1 / K) * between, (1 - 1 / M) * within
    v = from_means + from_samples
    spread = from_means**2 / (K - 1) + from_samples**2 / (K * max(M - 1, 1))
    df = np.divide(v**2, spread, out=np.full_like(v, K - 1.0), where=spread > 0)
    return np.maximum(np.sqrt(v), SMALLEST_SD), df


def calibrated_threshold(validation_t: Floats, alpha: float) -> float:
    """The ceil((n+1)(1-alpha))-th smallest t of n known non-members.

    A further non-member exceeds it with probability of at most alpha. Infinite, so that nobody is flagged, when
    n < 1/alpha - 1 records cannot vouch for that level.
    """
    n = len(validation_t)
    rank = math.ceil((n + 1) * (1 - alpha) - 1e-9)
    return math.inf if rank > n else float(np.partition(validation_t, rank - 1)[rank - 1])


@dataclass(frozen=True)
class Decision:
    """Which records count as members.

    Attributes:
        test: the underlying test.
        rule: the rule that was asked for.
        alpha: intended share of non-members flagged.
        threshold: calibrated threshold of t; None without validation records.
        member: decision [n]; None where there is nothing to calibrate it on.
    """

    test: MembershipTest
    rule: DecisionRule
    alpha: float
    threshold: float | None
    member: Flags | None

    def level_nominal(self, nonmember: Flags) -> float:
        """Measured share of the flagged non-members under p < alpha; `nonmember` [n]."""
        return float(np.mean(self.test.p_value[nonmember] < self.alpha))

    def level_calibrated(self, nonmember: Flags) -> float | None:
        """Measured share of the flagged non-members under the calibrated threshold; `nonmember` [n]."""
        return None if self.threshold is None else float(np.mean(self.test.t[nonmember] > self.threshold))


def decide(test: MembershipTest, validation: MembershipTest | None, alpha: float, rule: DecisionRule) -> Decision:
    """Applies a rule, see `flags`; `validation` is the test of the known non-members."""
    threshold = None if validation is None else calibrated_threshold(validation.t, alpha)
    return Decision(test, rule, alpha, threshold, flags(test, threshold, alpha, rule))


def flags(test: MembershipTest, threshold: float | None, alpha: float, rule: DecisionRule) -> Flags | None:
    """Which records count as members [n]: by rule `t` those of p < alpha, by `calibrated` those of t above `threshold`.

    None where that rule has no threshold: p < alpha in its stead would flag far more non-members than alpha.
    """
    if rule == "t":
        return test.p_value < alpha
    return None if threshold is None else test.t > threshold
