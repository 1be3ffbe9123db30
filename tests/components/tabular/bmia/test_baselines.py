"""The rival attacks: small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kfp_methods.components.tabular.bmia import baselines
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.roc import auc

S0 = np.array([3.0, 0.0, 1.0])
REFERENCES = np.array([[1.0, 0.0, 2.0], [2.0, 2.0, 2.0], [3.0, 4.0, 2.0]])


def test_lira_with_one_reference_is_the_difference_attack() -> None:
    assert baselines.lira_fixed(S0, REFERENCES[:1]).tolist() == [2.0, 0.0, -1.0]


def test_lira_per_record_divides_by_the_population_standard_deviation() -> None:
    scores = baselines.lira_per_record(S0, REFERENCES)
    assert scores[0] == pytest.approx(1 / np.sqrt(2 / 3))
    assert scores[1] == pytest.approx(-2 / np.sqrt(8 / 3))
    assert np.isfinite(scores[2])  # references that agree exactly
    assert scores[2] < scores[1]


def test_attack_r_counts_references_that_score_strictly_lower() -> None:
    assert baselines.attack_r(S0, REFERENCES).tolist() == pytest.approx([2 / 3, 0.0, 0.0])


def test_rmia_counts_the_population_outdone_by_gamma() -> None:
    # p(x) = (1.3 * .5 + .7) / 2 = .675 everywhere, so ratios go as the target's probability
    target, population = np.array([0.9, 0.4, 0.05]), np.array([0.1, 0.2, 0.3, 0.44])
    half = np.full((2, 3), 0.5)
    scores = baselines.rmia(target, half, population, np.full((2, 4), 0.5))
    assert scores.tolist() == [1.0, 0.5, 0.0]  # .9 >= 2 * .44;  .4 >= 2 * .2 (ties count);  .05 < 2 * .1


def test_rmia_discounts_records_that_are_easy_for_the_references_too() -> None:
    target = np.array([0.9, 0.9])
    references = np.array([[0.2, 0.95], [0.3, 0.9]])
    population = np.linspace(0.05, 0.6, 30)
    hard, easy = baselines.rmia(target, references, population, np.full((2, 30), 0.4))
    assert hard > easy


def test_qmia_learns_a_nonmembers_score_from_the_record() -> None:
    """Scores depend on the record more than on membership: only a conditional threshold sees members."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4))
    records = Records.from_arrays(x, (x[:, 1] > 0).astype(np.int64))
    scores = 4 * x[:, 0] + rng.normal(size=3000) * np.where(x[:, 1] > 0, 1.0, 0.3)
    member = np.arange(1000) < 500
    scores[:1000] += member
    audit, validation = records.take(np.arange(1000)), records.take(np.arange(1000, 3000))

    def excess() -> np.ndarray:
        return baselines.ScoreRegression.fit(validation, scores[1000:], 2, seed=0).excess(audit, scores[:1000])

    conditional = excess()
    assert auc(scores[:1000][member], scores[:1000][~member]) < 0.6
    assert auc(conditional[member], conditional[~member]) > 0.8
    assert np.array_equal(conditional, excess())
