"""The prediction t-test: hand-computed values, its level under the null, the calibrated threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kfp_methods.components.tabular.bmia import decision
from kfp_methods.components.tabular.bmia.decision import calibrated_threshold, t_test


def test_one_reference_gives_the_prediction_form() -> None:
    result = t_test(np.array([6.0]), np.array([[[1.0, 2.0, 3.0, 4.0]]]))
    assert result.t[0] == pytest.approx(2.4248711, abs=1e-7)
    assert result.p_value[0] == pytest.approx(0.0468796, abs=1e-7)
    assert result.degrees_of_freedom[0] == 3
    assert result.mean[0] == 2.5
    assert result.sd[0] == pytest.approx(np.std([1, 2, 3, 4], ddof=1))
    assert result.inter_variance is None


def test_two_references_give_the_welch_satterthwaite_form() -> None:
    samples = np.array([[[1.0, 2.0, 3.0]], [[3.0, 4.0, 5.0]]])
    result = t_test(np.array([8.0]), samples)
    assert (5 / result.t[0]) ** 2 == pytest.approx(3.6666667, abs=1e-7)
    assert result.t[0] == pytest.approx(2.6111648, abs=1e-7)
    assert result.degrees_of_freedom[0] == pytest.approx(1.4756098, abs=1e-7)
    assert result.p_value[0] == pytest.approx(0.0815287, abs=1e-7)
    assert result.intra_variance[0] == pytest.approx(1.0)
    assert result.inter_variance is not None
    assert result.inter_variance[0] == pytest.approx(2 - 1 / 3)


@pytest.mark.parametrize("n_references", [2, 5])
def test_references_with_identical_means_leave_only_the_within_variance(n_references: int) -> None:
    samples = np.repeat(np.array([[[1.0, 2.0, 3.0, 6.0]]]), n_references, axis=0)
    result = t_test(np.array([9.0]), samples)
    within = np.var([1, 2, 3, 6], ddof=1)
    assert (6 / result.t[0]) ** 2 == pytest.approx((1 - 1 / 4) * within)
    assert result.degrees_of_freedom[0] == pytest.approx(n_references * 3)


def test_one_sample_of_each_of_several_references_uses_their_spread() -> None:
    result = t_test(np.array([7.0]), np.array([[[1.0]], [[2.0]], [[4.5]]]))
    spread = np.var([1, 2, 4.5], ddof=1)
    assert result.t[0] == pytest.approx((7 - 2.5) / math.sqrt((1 + 1 / 3) * spread))
    assert result.degrees_of_freedom[0] == 2


def test_one_sample_of_one_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="n_samples"):
        t_test(np.array([7.0]), np.array([[[1.0]]]))


@pytest.mark.parametrize("n_references", [1, 3])
def test_identical_samples_still_rank_by_their_distance(n_references: int) -> None:
    samples = np.ones((n_references, 3, 5))
    result = t_test(np.array([0.0, 1.0, 2.0]), samples)
    assert np.isfinite(result.t).all()
    assert np.isfinite(result.p_value).all()
    assert list(np.sign(result.t)) == [-1, 0, 1]


@pytest.mark.parametrize(("n_references", "n_samples"), [(1, 20), (4, 10), (6, 1)])
def test_p_is_uniform_when_the_target_scores_like_the_samples(n_references: int, n_samples: int) -> None:
    rng = np.random.default_rng(7)
    result = t_test(rng.normal(size=5000), rng.normal(size=(n_references, 5000, n_samples)))
    assert stats.kstest(result.p_value, "uniform").pvalue > 0.01
    assert abs(np.mean(result.p_value < 0.01) - 0.01) < 0.004


@pytest.mark.parametrize(("n_references", "low", "high"), [(2, 0.025, 0.06), (4, 0.006, 0.016), (8, 0.006, 0.016)])
def test_level_with_differing_references_holds_from_four_and_fails_at_two(
    n_references: int, low: float, high: float
) -> None:
    """Between-model variance well above the within: the estimated degrees of freedom mislead at K=2."""
    rng = np.random.default_rng(8)
    n, between = 20_000, 3.0
    s0 = rng.normal(size=n) + between * rng.normal(size=n)
    samples = rng.normal(size=(n_references, n, 20)) + between * rng.normal(size=(n_references, n, 1))
    assert low < np.mean(t_test(s0, samples).p_value < 0.01) < high


def test_variance_components_are_unbiased() -> None:
    rng = np.random.default_rng(9)
    samples = 1.5 * rng.normal(size=(6, 40_000, 4)) + 0.7 * rng.normal(size=(6, 40_000, 1))
    result = t_test(np.zeros(40_000), samples)
    scale = (result.mean / result.t) ** 2
    expected = (1 + 1 / 6) * 0.49 + (1 + 1 / 24) * 2.25
    assert np.mean(scale) == pytest.approx(expected, rel=0.02)
    assert np.mean(result.sd**2) == pytest.approx(0.49 + 2.25, rel=0.02)


def test_calibrated_threshold_is_the_conformal_rank() -> None:
    t = np.random.default_rng(0).permutation(np.arange(1.0, 1000.0))  # n_v = 999
    assert calibrated_threshold(t, 0.01) == 990.0
    assert calibrated_threshold(t[t <= 199], 0.01) == 198.0


def test_calibrated_threshold_flags_nobody_when_the_level_needs_more_records() -> None:
    assert calibrated_threshold(np.arange(50.0), 0.01) == math.inf


def test_calibrated_decision_holds_its_level_where_the_t_law_does_not() -> None:
    """One reference, between-model variance unseen by its samples: p < alpha is far too frequent."""
    rng = np.random.default_rng(3)
    n = 20_000
    s0 = rng.normal(size=n) + 2 * rng.normal(size=n)
    t = t_test(s0, rng.normal(size=(1, n, 50)))
    threshold = calibrated_threshold(t.t[: n // 2], 0.01)
    assert np.mean(t.p_value < 0.01) > 0.1
    assert abs(np.mean(t.t[n // 2 :] > threshold) - 0.01) < 0.004


def test_a_decision_reports_both_levels_and_is_not_made_without_validation() -> None:
    rng = np.random.default_rng(4)
    test = t_test(rng.normal(size=300), rng.normal(size=(1, 300, 10)))
    validation = t_test(rng.normal(size=500), rng.normal(size=(1, 500, 10)))
    made = decision.decide(test, validation, alpha=0.05, rule="calibrated")
    assert made.rule == "calibrated"
    assert made.member.tolist() == (test.t > made.threshold).tolist()
    undecided = decision.decide(test, None, alpha=0.05, rule="calibrated")
    assert (undecided.rule, undecided.threshold, undecided.member) == ("calibrated", None, None)
    assert undecided.level_calibrated(np.ones(300, bool)) is None
    by_law = decision.decide(test, None, alpha=0.05, rule="t")
    assert by_law.rule == "t"
    assert by_law.member is not None
    assert by_law.threshold is None
    assert by_law.member.tolist() == (test.p_value < 0.05).tolist()
    nonmember = np.arange(300) < 200
    assert made.level_nominal(nonmember) == np.mean(test.p_value[:200] < 0.05)
    assert made.level_calibrated(nonmember) == np.mean(test.t[:200] > made.threshold)
