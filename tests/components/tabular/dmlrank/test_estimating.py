"""Debiased scores: exact where all is seen, unbiased where nuisances are wrong, and honest intervals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kfp_methods.components.tabular.dmlrank import baselines, estimating, nuisance, sample
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons, folds
from kfp_methods.components.tabular.dmlrank.estimating import Nuisances, Settings
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Pairs

WORLD = sample.World.drawn(7)
QUICK = Settings(model="logistic")


def known(mu: Floats, data: Comparisons) -> Nuisances:
    """With the true labelling probabilities."""
    assert data.propensity is not None
    return Nuisances(mu, data.propensity, 0.0, 0.0, 0.0, Counter())


def test_with_every_pair_seen_borda_is_the_raw_win_rate() -> None:
    """Whatever the model of verdicts says."""
    data = WORLD.draw(100, 0)
    verdict = sample.said(WORLD.mu(data.x), np.random.default_rng(0))
    data = replace(data, verdict=verdict, propensity=np.ones(verdict.shape))
    wrong = np.random.default_rng(1).dirichlet(np.ones(3), verdict.shape)
    one = estimating.debiased(data, known(wrong, data), "borda", QUICK)
    pairs = data.pairs
    rate = [
        ((verdict[:, pairs.j == j] == 0).mean() + (verdict[:, pairs.k == j] == 1).mean()) / 2 for j in range(pairs.K)
    ]
    assert one.theta == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize("name", ["borda", "bt", "rank_centrality"])
def test_at_the_true_probabilities_the_correction_vanishes_on_average(name: str) -> None:
    data = WORLD.draw(20_000, 0)
    found = known(WORLD.mu(data.x), data)
    J = QUICK.of(name, data)[1]  # type: ignore[arg-type]
    values = np.concatenate(
        [estimating.correction(data, found, J, slice(b, b + 2_000)) for b in range(0, 20_000, 2_000)]
    )
    assert (np.abs(values.mean(0)) < 4 * values.std(0) / np.sqrt(20_000)).all()


def test_another_model_of_verdicts_changes_borda_by_chance_only() -> None:
    data = WORLD.draw(20_000, 1)
    wrong = np.full((20_000, 20, 3), 1 / 3)
    one, two = (estimating.debiased(data, known(mu, data), "borda", QUICK) for mu in (WORLD.mu(data.x), wrong))
    gap = one.values - two.values
    assert (np.abs(gap.mean(0)) < 4 * gap.std(0) / np.sqrt(20_000)).all()
    assert two.se.mean() > one.se.mean()


def test_influence_is_centred_and_the_covariance_is_one() -> None:
    data = WORLD.draw(300, 2)
    nuisances = estimating.cross_fit(data, QUICK)
    for name in ("borda", "bt", "rank_centrality"):
        one = estimating.debiased(data, nuisances, name, QUICK)  # type: ignore[arg-type]
        assert np.abs((one.values - one.theta).mean(0)).max() < 1e-12
        assert one.covariance == pytest.approx(one.covariance.T)
        assert np.linalg.eigvalsh(one.covariance).min() > -1e-12
        assert one.pointwise < one.simultaneous <= one.bonferroni + 0.05
        if name != "borda":  # scores that sum to a constant
            assert np.abs(one.covariance.sum(0)).max() < 1e-10


def test_folds_keep_contexts_together_and_do_not_depend_on_their_order() -> None:
    ids = tuple(f"c{i}" for i in range(100))
    found = folds(ids, 3, 0)
    assert np.bincount(found).tolist() == [34, 33, 33]
    assert folds(ids[::-1], 3, 0)[::-1].tolist() == found.tolist()
    assert folds(ids, 3, 1).tolist() != found.tolist()


def test_debiased_intervals_cover_and_plug_in_ones_do_not() -> None:
    truth = WORLD.truth(QUICK.of("borda", WORLD.draw(1, 0))[0])
    covered, plugin = [], []
    for seed in range(10):
        data = WORLD.draw(600, seed)
        one = estimating.debiased(data, estimating.cross_fit(data, QUICK), "borda", QUICK)
        covered.append(one.covers(truth).mean())
        plugin.append(one.plugin_covers(truth).mean())
    assert np.mean(covered) > 0.85
    assert np.mean(covered) > np.mean(plugin) + 0.2


def test_the_logistic_model_can_say_cycles() -> None:
    data = sample.cycle(10_000, 0, often=(0, 1))
    predict, _ = nuisance.fit_mu(data, "logistic", 0, "cpu")
    found = nuisance.predict_all(data, predict).mean(0)
    assert np.abs(found - sample.cycle_mu()[0]).max() < 0.06


def test_auto_takes_the_better_model() -> None:
    smooth = WORLD.draw(600, 0)
    assert nuisance.fit_mu(smooth, "auto", 0, "cpu")[1] == "logistic"
    assert nuisance.fit_mu(sample.digits().draw(0), "auto", 0, "cpu")[1] == "lightgbm"


def test_the_perceptron_predicts_too() -> None:
    data, other = WORLD.draw(800, 0), WORLD.draw(400, 1)
    losses = {name: nuisance.log_loss(other, nuisance.fit_mu(data, name, 0, "cpu")[0]) for name in ("mlp", "logistic")}  # type: ignore[arg-type]
    assert losses["mlp"] < np.log(3)
    assert losses["mlp"] < losses["logistic"] + 0.2


def test_labelling_probabilities_are_estimated() -> None:
    data = replace(WORLD.draw(3_000, 0), propensity=None)
    found = nuisance.fit_pi(data, 0)(data)
    truth = WORLD.propensity(data.x)
    assert np.corrcoef(found.ravel(), truth.ravel())[0, 1] > 0.3
    assert found.mean() == pytest.approx(truth.mean(), rel=0.05)
    one_each = np.full(data.verdict.shape, -1, np.int8)
    chosen = np.random.default_rng(0).integers(0, 20, len(one_each))
    one_each[np.arange(len(one_each)), chosen] = 0
    single = nuisance.fit_pi(replace(data, verdict=one_each), 0)(data)
    assert single.sum(1) == pytest.approx(np.ones(len(single)))
    assert single.mean() == pytest.approx(1 / 20, rel=0.01)


def test_a_good_judge_helps_and_an_ignorant_one_does_not() -> None:
    digits = sample.digits()
    errors = {}
    for name, error in (("none", None), ("good", 0.2), ("useless", 1.0)):
        data = digits.draw(0)
        data = data if error is None else replace(data, judge=digits.judge(0, error))
        settings = replace(QUICK, model="lightgbm")
        errors[name] = estimating.debiased(data, estimating.cross_fit(data, settings), "borda", settings).se.mean()
    assert errors["good"] < 0.95 * errors["none"]
    assert errors["useless"] == pytest.approx(errors["none"], rel=0.03)


def test_the_digits_are_what_they_are_said_to_be() -> None:
    digits = sample.digits()
    pairs = Pairs(8)
    assert digits.verdict.shape == (1_000, 56)
    mirrored = digits.verdict[:, pairs.mirror]
    assert (np.where(digits.verdict < 2, 1 - digits.verdict, 2) == mirrored).all()
    wins = (digits.verdict == 0).mean(0)
    losses = (digits.verdict == 1).mean(0)
    borda = [(wins[pairs.j == j].sum() + losses[pairs.k == j].sum()) / 14 for j in range(8)]
    assert digits.borda == pytest.approx(borda)


def test_bradley_terry_by_two_libraries() -> None:
    import choix

    data = WORLD.draw(800, 0)
    found = baselines.classical(data, 0, draws=20)
    rows, at = np.nonzero(data.labelled)
    won = []
    for j, k, c in zip(data.pairs.j[at], data.pairs.k[at], data.verdict[rows, at], strict=True):
        won += [(j, k)] * 2 if c == 0 else [(k, j)] * 2 if c == 1 else [(j, k), (k, j)]
    assert found.strength == pytest.approx(choix.ilsr_pairwise(5, won), abs=1e-3)
    assert (found.low < found.strength).all()
    assert (found.strength < found.high).all()
    assert found.win_rate.shape == found.elo.shape == (5,)
