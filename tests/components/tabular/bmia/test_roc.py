"""Rates at a false-positive rate: the rule's edge cases, ties, mid-rank AUC."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from kfp_methods.components.tabular.bmia.roc import TIED, TOO_FEW, Rate, auc, rate_at, roc_curve


def test_threshold_leaves_at_most_the_allowed_false_positives() -> None:
    nonmember = np.arange(100.0)  # f n0 = 10 -> threshold is the 11th largest, 89
    member = np.array([88.0, 89.0, 89.5, 99.5])
    rate = rate_at(0.1, member, nonmember)
    assert rate.tpr == 0.5
    assert rate.threshold == 89.0
    assert np.sum(nonmember > rate.threshold) == 10


def test_a_product_a_hair_below_an_integer_counts_as_that_integer() -> None:
    nonmember = np.arange(700.0)  # .07 * 100 = 7.000000000000001 and .29 * 100 = 28.999999999999996
    assert rate_at(0.29, nonmember, np.arange(100.0)).threshold == 70.0


def test_scores_that_are_all_equal_resolve_no_rate() -> None:
    assert rate_at(0.1, np.ones(50), np.ones(100)) == Rate(0.1, None, None, None, None, TIED)


@pytest.mark.parametrize("n_references", [1, 2, 4])
def test_an_attack_with_few_levels_has_no_rate_between_them(n_references: int) -> None:
    """Scores such as Attack-R's, the share of K references: about 1/(K+1) of the non-members have the largest."""
    rng = np.random.default_rng(0)
    member, nonmember = rng.integers(0, n_references + 1, (2, 600)) / n_references
    assert rate_at(0.01, member, nonmember).tpr is None
    assert rate_at(0.01, member, nonmember).note == TIED
    assert rate_at(0.01, member + 0.1 * rng.random(600), nonmember + 0.1 * rng.random(600)).tpr is not None


def test_a_tie_that_does_not_matter_leaves_the_rate() -> None:
    nonmember = np.sort(np.r_[np.arange(90.0), [95.0] * 3, 96, 97, 98, 99, 100, 101, 102])  # 10 above 89, 7 above 95
    member = np.arange(50.0, 100.0)
    assert rate_at(0.08, member, nonmember).tpr == np.mean(member > 95)
    assert rate_at(0.1, np.ones(50), np.zeros(100)).tpr == 1, "whatever is allowed, all members stand above"
    assert rate_at(0.1, np.zeros(50), np.ones(100)).tpr == 0, "whatever is allowed, no member stands there"


def test_a_rate_below_one_nonmember_is_unresolvable() -> None:
    rate = rate_at(0.001, np.arange(50.0), np.arange(999.0))
    assert (rate.tpr, rate.low, rate.high, rate.note) == (None, None, None, TOO_FEW)
    assert rate_at(0.001, np.arange(50.0), np.arange(1000.0)).tpr is not None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=40),
    st.lists(st.integers(0, 6), min_size=1, max_size=40),
    st.floats(0.001, 0.999),
)
def test_false_positives_never_exceed_the_rate_and_auc_matches_mid_ranks(
    member: list[int], nonmember: list[int], fpr: float
) -> None:
    m, n = np.array(member, float), np.array(nonmember, float)
    rate = rate_at(fpr, m, n)
    if rate.tpr is not None:
        assert np.mean(n > rate.threshold) <= fpr + 1e-9
        assert 0 <= rate.low <= rate.tpr <= rate.high <= 1  # type: ignore[operator]
    flags = np.r_[np.ones(len(m)), np.zeros(len(n))]
    assert auc(m, n) == pytest.approx(roc_auc_score(flags, np.r_[m, n]))


def test_auc_accepts_infinite_scores() -> None:
    assert auc(np.array([np.inf, 1.0]), np.array([0.0, -np.inf])) == 1.0


def test_roc_curve_runs_from_nothing_to_everything_through_every_threshold() -> None:
    fpr, tpr, threshold = roc_curve(np.array([3.0, 2.0]), np.array([2.0, 1.0]))
    assert fpr.tolist() == [0.0, 0.0, 0.5, 1.0]
    assert tpr.tolist() == [0.0, 0.5, 1.0, 1.0]
    assert threshold.tolist() == [np.inf, 3.0, 2.0, 1.0]
