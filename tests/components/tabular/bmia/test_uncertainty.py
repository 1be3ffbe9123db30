"""Intervals hold what they say: of scores that tell nothing, few intervals exclude what guessing finds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kfp_methods.components.tabular.bmia.roc import auc
from kfp_methods.components.tabular.bmia.uncertainty import (
    Limits,
    auc_limits,
    clopper_pearson,
    of_mean,
    rate_limits,
)

DRAWS = 600


def most(share: float, n: int) -> int:
    """How many of n exclusions a law of `share` exceeds once in 10,000 times."""
    return int(stats.binom.ppf(0.9999, n, share))


def rate_misses(n1: int, n0: int, fpr: float, *, targets: int, shift: float, level: float = 0.95) -> tuple[int, int]:
    """How often the true rate lies below and above the interval, in DRAWS draws of normal scores."""
    rng = np.random.default_rng(5)
    true = stats.norm.sf(stats.norm.isf(fpr) - shift)
    drawn = [
        rate_limits(fpr, [(rng.normal(shift, size=n1), rng.normal(size=n0)) for _ in range(targets)], level)
        for _ in range(DRAWS)
    ]
    return sum(true < one.low for one in drawn), sum(true > one.high for one in drawn)


@pytest.mark.parametrize("targets", [1, 5])
@pytest.mark.parametrize(
    ("n1", "n0", "fpr"),
    [(1200, 1200, 0.01), (360, 360, 0.1), (100, 100, 0.01), (2000, 100, 0.01), (50, 1500, 0.01), (1200, 1200, 0.001)],
)
def test_of_scores_that_tell_nothing_few_intervals_exclude_the_false_positive_rate(
    n1: int, n0: int, fpr: float, targets: int
) -> None:
    """A threshold taken as known would exclude it in about a tenth of the draws, and far more with few non-members."""
    above, below = rate_misses(n1, n0, fpr, targets=targets, shift=0)
    assert above + below <= most(0.05, DRAWS)
    assert above <= most(0.025, DRAWS), "wholly above: a leak that is not there"


def test_a_known_threshold_would_exclude_it_far_too_often() -> None:
    """What the test above would catch: Clopper-Pearson of the members alone."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(DRAWS):
        member, nonmember = rng.normal(size=(2, 1200))
        low, high = clopper_pearson(float(np.sum(member > np.sort(nonmember)[-13])), 1200)
        wrong += not low <= 0.01 <= high
    assert wrong > most(0.05, DRAWS)


@pytest.mark.parametrize(("n1", "n0", "fpr"), [(1200, 1200, 0.01), (200, 200, 0.1), (100, 100, 0.01)])
def test_a_leak_that_is_there_lies_in_the_interval(n1: int, n0: int, fpr: float) -> None:
    assert sum(rate_misses(n1, n0, fpr, targets=1, shift=1.0)) <= most(0.05, DRAWS)


def test_the_strongest_of_several_attacks_excludes_it_no_more_often_at_bonferronis_level() -> None:
    """Nine independent attacks that tell nothing, each at level 1 - 0.05/9."""
    rng, k, n = np.random.default_rng(6), 9, 400
    wrong = 0
    for _ in range(n):
        limits = [rate_limits(0.05, [tuple(rng.normal(size=(2, 300)))], 1 - 0.05 / k) for _ in range(k)]
        wrong += max(limits, key=lambda one: one.centre).low > 0.05
    assert wrong <= most(0.05, n)


@pytest.mark.parametrize("n", [1200, 150])
def test_intervals_are_no_wider_than_they_must_be(n: int) -> None:
    """Half of the interval is about two standard deviations of the estimate over draws."""
    rng = np.random.default_rng(7)
    drawn = [rate_limits(0.1, [(rng.normal(1.0, size=n), rng.normal(size=n))]) for _ in range(DRAWS)]
    half = np.mean([one.high - one.low for one in drawn]) / 2
    assert 1.8 < half / np.std([one.centre for one in drawn]) < 2.6


def test_the_estimate_of_scores_that_tell_nothing_is_the_false_positive_rate_on_average() -> None:
    rng = np.random.default_rng(8)
    centres = [rate_limits(0.03, [tuple(rng.normal(size=(2, 90)))]).centre for _ in range(4000)]
    assert np.mean(centres) == pytest.approx(0.03, abs=4 * np.std(centres) / np.sqrt(4000))


def test_clopper_pearson_is_exact() -> None:
    low, high = clopper_pearson(3, 10)
    assert low == pytest.approx(0.0667395, abs=1e-6)
    assert high == pytest.approx(0.6524529, abs=1e-6)
    exact = stats.binomtest(7, 40).proportion_ci(0.99, "exact")
    assert clopper_pearson(7, 40, 0.99) == pytest.approx((exact.low, exact.high))
    assert (clopper_pearson(0, 5)[0], clopper_pearson(5, 5)[1]) == (0, 1)


@pytest.mark.parametrize(("n1", "n0", "shift"), [(100, 100, 0.0), (100, 1000, 1.0), (30, 300, 2.5), (15, 15, 0.0)])
def test_the_aucs_interval_holds_it(n1: int, n0: int, shift: float) -> None:
    rng, true = np.random.default_rng(9), stats.norm.cdf(shift / np.sqrt(2))
    drawn = [auc_limits(auc(rng.normal(shift, size=n1), rng.normal(size=n0)), n1, n0) for _ in range(DRAWS)]
    assert sum(not one.low <= true <= one.high for one in drawn) <= most(0.05, DRAWS)


def test_without_a_leak_the_aucs_interval_is_the_rank_tests() -> None:
    n1, n0 = 40, 25
    error = np.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    edge = 0.5 + 1.959964 * error
    assert auc_limits(edge + 0.005, n1, n0).low > 0.5 > auc_limits(edge - 0.005, n1, n0).low


def test_perfect_and_useless_scores_have_intervals_with_a_width() -> None:
    assert auc_limits(1.0, 20, 20).high == 1
    assert 0.7 < auc_limits(1.0, 20, 20).low < 0.95
    assert auc_limits(0.0, 20, 20) == pytest.approx((0.0, 0.0, 1 - auc_limits(1.0, 20, 20).low))
    everything = rate_limits(0.05, [(np.ones(50), np.zeros(200))])
    assert (everything.centre, everything.high) == (1, 1)
    assert 0.9 < everything.low < 1
    nothing = rate_limits(0.05, [(np.zeros(50), np.arange(1.0, 201.0))])
    assert (nothing.centre, nothing.low) == (0, 0)
    assert 0.02 < nothing.high < 0.15


def test_a_mean_of_equal_intervals_is_narrower_by_the_square_root() -> None:
    assert of_mean([Limits(0.5, 0.4, 0.7)] * 4) == pytest.approx((0.5, 0.45, 0.6))
    rng = np.random.default_rng(10)
    one = (rng.normal(1.0, size=5_000), rng.normal(size=5_000))
    alone, joint = rate_limits(0.1, [one]), rate_limits(0.1, [one] * 4)
    assert joint.centre == alone.centre
    assert (alone.high - alone.low) / (joint.high - joint.low) == pytest.approx(2, rel=0.05)
