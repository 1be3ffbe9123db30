"""Rules on losses that can be followed by hand, and the protocol."""

from __future__ import annotations

import numpy as np
import pytest

from kfp_methods.components.tabular.weak_monotonicity import learners, protocol
from kfp_methods.components.tabular.weak_monotonicity.learners import CLASSES, Pool


def settings(**changed: object) -> protocol.Settings:
    known = {"learners": ("erm_all", "erm_pareto", "adaptive", "minmax"), "n_grid": (1, 4, 16), "n_subsamples": 30,
             "n_choices": 50, "delta": 0.1, "t": None, "tie_fix": True, "seed": 0}  # fmt: skip
    return protocol.Settings(**(known | changed))  # type: ignore[arg-type]


def test_two_predictors_are_averaged() -> None:
    rho = learners.q_aggregation(np.array([[0.0], [1.0]]), np.array([0.5]))
    assert rho == pytest.approx([0.5, 0.5], abs=1e-6)
    assert learners.q_value(rho, np.array([[0.0], [1.0]]), np.array([0.5])) == pytest.approx(0.125)


def test_three_constants_against_ten_labels() -> None:
    y = np.array([0.0] * 7 + [1.0] * 3)
    predictions = np.repeat([[0.0], [0.5], [1.0]], 10, axis=1)
    rho = learners.q_aggregation(predictions, y)
    assert rho == pytest.approx([0.3, 0.7, 0.0], abs=1e-4)
    assert learners.q_value(rho, predictions, y) == pytest.approx(0.23875, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_aggregation_is_optimal_and_no_worse_than_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predictions, y = rng.random((6, 20)), rng.random(20)
    rho = learners.q_aggregation(predictions, y)
    assert rho.sum() == pytest.approx(1)
    single = ((predictions - y) ** 2).mean(1)
    value = learners.q_value(rho, predictions, y)
    assert value <= single.min() + 1e-9
    gradient = (predictions @ (rho @ predictions - y)) / 20 + 0.5 * single
    active = rho > 1e-4
    assert np.ptp(gradient[active]) < 1e-3
    assert (gradient[~active] >= gradient[active].min() - 1e-6).all()
    same = np.tile(predictions[:1], (3, 1))
    assert learners.q_value(learners.q_aggregation(same, y), same, y) == pytest.approx(single[0])


def test_a_prior_pulls_towards_it() -> None:
    predictions, y = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0.5, 0.5])
    rho = learners.q_aggregation(predictions, y, prior=np.array([0.9, 0.1]))
    assert rho[0] > 0.5


def test_exponential_weights_favour_the_better() -> None:
    weights = learners.exponential_weights(np.array([0.1, 0.3, 0.0]), np.array([True, True, False]), 10)
    eta = np.sqrt(8 * np.log(2) / 10)
    assert weights[2] == 0
    assert weights[0] / weights[1] == pytest.approx(np.exp(eta * 10 * 0.2))


def test_ties_are_broken_evenly() -> None:
    losses, Q = np.array([[0.0, 0.0, 1.0]]), np.array([0.2, 0.6, 0.1])
    assert learners.expected_risk(losses, np.ones(3, bool), Q) == pytest.approx([0.4])
    picks = {learners.pick(losses[0], np.ones(3, bool), np.random.default_rng(s))[0] for s in range(20)}
    assert picks == {0, 1}


def test_when_the_source_is_the_target_the_frontier_alone_is_perfect() -> None:
    rng = np.random.default_rng(0)
    losses = (rng.random((8, 40)) < np.linspace(0.1, 0.8, 8)[:, None]).astype(float)
    pool = Pool(losses.mean(1)[:, None])
    found = protocol.excess(pool, losses, settings(), np.random.default_rng(0))
    assert found[:, 1] == pytest.approx(0)


def test_all_labels_leave_no_excess_to_erm() -> None:
    rng = np.random.default_rng(1)
    losses = rng.random((6, 25))
    found = protocol.excess(Pool(rng.random((6, 2))), losses, settings(n_grid=(25,)), rng)
    assert found[0, 0] == pytest.approx(0)


def test_subsamples_are_without_replacement() -> None:
    losses = np.eye(10)
    means = protocol.mean_losses(losses, 4, 200, np.random.default_rng(0))
    assert set(np.round(np.unique(means), 6)) == {0.0, 0.25}
    assert means.sum(1) == pytest.approx(1)
    assert means.mean(0) == pytest.approx(0.1, abs=0.03)


def test_order_and_copies_of_tasks_do_not_matter_nor_a_hopeless_model() -> None:
    rng = np.random.default_rng(2)
    R, Q = rng.random((7, 3)), rng.random(7)
    for name, rule in CLASSES.items():
        for n in (1, 3):
            allowed = rule(Pool(R), n)
            assert (rule(Pool(R[:, ::-1]), n) == allowed).all(), name
            copied = rule(Pool(R[:, [0, 1, 2, 2]]), n)
            assert name in ("multiple_source", "best_mean") or (copied == allowed).all(), name
            more = np.vstack([R, R.max(0) + 0.1])
            kept = rule(Pool(more), n)
            assert name == "erm_all" or not kept[7], name
            assert name == "erm_all" or (kept[:7] == allowed).all(), name
    assert Q.shape == (7,)


def test_the_protocol_tries_every_choice_or_as_many_as_asked() -> None:
    assert len(protocol.choices(4, 2, 100, 0)) == 12
    few = protocol.choices(8, 4, 20, 0)
    assert len(set(few)) == 20
    assert all(choice.target not in choice.sources and len(choice.sources) == 4 for choice in few)
    losses = (np.random.default_rng(3).random((4, 9, 50)) < 0.4).astype(float)
    found, pairs = protocol.run(losses, [1, 2], settings())
    assert len(found) == (12 + 12) * 3 * 4
    assert len(pairs) == 24
    assert found["excess"].min() >= -1e-12
    again, _ = protocol.run(losses, [1, 2], settings())
    assert again.equals(found)
