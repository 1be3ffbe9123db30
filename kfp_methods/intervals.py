"""What samples say of a mean, a median or a proportion: the value, its confidence interval, and a remark in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

Interval = Literal["t", "bootstrap", "sign", "binomial", "exact"]

BOOTSTRAP_SEED = 0
BOOTSTRAP_RESAMPLES = 9_999
_ROUNDING = 1e-15  # what is left, relative to the largest, of values that cancel


class Estimate(NamedTuple):
    """ends: None where the values are too few for an interval; remark: where the rule is not the plain one."""

    value: float
    ends: tuple[float, float] | None
    remark: str = ""


def estimate(kind: Interval, values: Sequence[float], level: float, over: str) -> Estimate:
    """The value and its two-sided interval of the confidence `level`; independent of the values' order.

    `over` names what the values are taken over, for the remark: "seeds".
    """
    n = len(values)
    if kind == "sign":
        return _median(values, level)
    mean, _ = moments(values)
    if kind == "exact":
        return Estimate(mean, (min(values), max(values)))
    if kind == "binomial" and is_binary(values):
        return Estimate(mean, _clopper_pearson(sum(map(int, values)), n, level))
    if n == 1:
        return Estimate(mean, None, f"A single value: no interval, so no verdict; repeat over several {over}.")
    if min(values) == max(values):
        return Estimate(mean, (values[0], values[0]), f"All {n} values are equal: the interval has no width.")
    if kind == "binomial":
        return Estimate(mean, _t_interval(values, level), "Student's t: the values are shares, not single trials.")
    if kind == "bootstrap" and 2.0 ** (1 - n) > 1 - level:
        # A bootstrap interval of the mean never leaves [min, max], which misses the centre of a symmetric law
        # with probability 2^(1-n): no resampling reaches the level with fewer values.
        remark = f"Student's t: {n} values are too few for a bootstrap."
        return Estimate(mean, _t_interval(values, level), remark)
    return Estimate(mean, _t_interval(values, level) if kind == "t" else _bootstrap_interval(values, level))


def is_binary(values: Sequence[float]) -> bool:
    """Whether each value is the outcome of one trial: 0 or 1."""
    return all(value in (0.0, 1.0) for value in values)


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n - 1; 0 for one value), exactly summed: independent of the order."""
    scale = max(map(abs, values)) or 1.0
    scaled = [value / scale for value in values]
    mean = math.fsum(scaled) / len(scaled)
    mean = 0.0 if abs(mean) < _ROUNDING else mean
    variance = math.fsum((value - mean) ** 2 for value in scaled) / max(len(scaled) - 1, 1)
    return mean * scale, math.sqrt(variance) * scale


def _median(values: Sequence[float], level: float) -> Estimate:
    """The median between order statistics: the values that a two-sided sign test does not reject.

    Conover, Practical Nonparametric Statistics, 3.3. A value that ties with a threshold counts against the claim,
    which is the cautious reading of a tie.
    """
    import numpy as np
    from scipy.special import bdtr

    ordered = np.sort(values)
    n = len(ordered)
    outside = int((2 * bdtr(np.arange(n), n, 0.5) <= 1 - level).sum())  # order statistics below the interval's end
    median = float(np.median(ordered))
    if outside == 0:
        remark = f"A sign test of {n} value{'s' * (n > 1)} cannot reach {level:.4g}: no interval, so no verdict."
        return Estimate(median, None, remark)
    return Estimate(median, (float(ordered[outside - 1]), float(ordered[n - outside])))


def _clopper_pearson(successes: int, n: int, level: float) -> tuple[float, float]:
    """The exact binomial interval of a proportion (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - tail))
    return low, high


def _t_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    mean, deviation = moments(values)
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * deviation / math.sqrt(len(values))
    return mean - half, mean + half


def _bootstrap_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """BCa (Efron 1987); a fixed seed and sorted values, so that the same values give the same interval."""
    import numpy as np
    from scipy.stats import bootstrap

    for method in ("BCa", "percentile"):  # BCa is undefined when the resampled means hardly differ
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = bootstrap(
                (np.sort(values),),
                np.mean,
                confidence_level=level,
                n_resamples=BOOTSTRAP_RESAMPLES,
                batch=max(1, 1_000_000 // len(values)),  # bounds the memory: batch x n numbers at a time
                method=method,
                rng=np.random.default_rng(BOOTSTRAP_SEED),
            ).confidence_interval
        if np.isfinite([low, high]).all():
            break
    return float(low), float(high)
