"""The exact attack, the audit of whole releases, and the game."""

from __future__ import annotations

import numpy as np
import pytest

from kfp_methods.components.tabular.dp_distinct_elements import attacks, bounds, game, mechanisms, releasing, tree
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Budget
from kfp_methods.components.tabular.privacy_audit import audit
from tests.components.tabular.dp_distinct_elements.streams_of import alternating, flipping

T = 256
SD = tree.node_sd(1, T, 1, 1e-6)


def test_one_insertion_at_the_second_step() -> None:
    assert attacks.distance(np.r_[0, np.ones(T - 1)], SD) == pytest.approx(0.1762, abs=5e-5)


def test_flipping_every_step_breaks_the_noise_for_one_change() -> None:
    odd = np.arange(1, T + 1) % 2
    mu = attacks.distance(odd, SD)
    assert mu == pytest.approx(0.7049, abs=5e-5)
    assert attacks.distance(1 - odd, SD) == pytest.approx(0.7239, abs=5e-5)
    assert attacks.true_positive_rate(mu, np.array([0.01]))[0] == pytest.approx(0.0525, abs=5e-5)
    assert attacks.delta_at(1, mu) == pytest.approx(0.0391, abs=5e-5)


def test_the_fast_score_is_that_of_the_dense_covariance() -> None:
    rng = np.random.default_rng(0)
    covering = np.array([tree.sums(row) for row in np.eye(64)]).T  # [t, node]
    covariance = SD**2 * covering @ covering.T
    effect, seen, others = rng.integers(0, 2, 64), rng.normal(0, 50, 64), rng.integers(0, 9, 64)
    dense = effect @ np.linalg.solve(covariance, seen - others)
    assert attacks.score(seen, others, effect, SD) == pytest.approx(dense, rel=1e-9)
    mu = np.sqrt(effect @ np.linalg.solve(covariance, effect))
    assert attacks.distance(effect, SD) == pytest.approx(mu, rel=1e-12)


def test_trials_follow_the_exact_curve() -> None:
    stream = flipping(T)
    counted = mechanisms.nocap(stream)
    budget = Budget(1.0, 1e-6, T)
    found = attacks.attack(counted, attacks.worst_effect(counted, stream), budget, 20_000, Randomness.seeded(0))
    assert not found.passed
    threshold = np.quantile(found.others, 0.99)
    assert (found.members > threshold).mean() == pytest.approx(0.0525, abs=0.006)
    assert found.members.mean() - found.others.mean() == pytest.approx(found.mu**2, rel=0.05)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("name", ["tree_linear", "sample_hold"])
def test_an_audit_of_whole_mechanisms_stays_below_the_promise(name: str, epsilon: float) -> None:
    """Coins, caps and noise anew in each of many runs on two neighbouring streams; the attacker knows the others."""
    steps, W, delta, trials = 64, 2, 1e-3, 4_000
    stream = alternating(steps, 3, 5)
    heavy = int(stream.flippancy.argmax())
    budget = Budget(epsilon, delta, steps)
    scores = []
    for number, world in enumerate((stream, stream.without(heavy))):
        found = []
        for trial in range(trials):
            key = Randomness.seeded(trial, number)
            counted = (
                mechanisms.tree_linear(world, W)
                if name == "tree_linear"
                else mechanisms.sample_hold(world, 4 * W, delta, key.coins(world))
            )
            released = releasing.release(counted, budget, key)
            others = mechanisms.tree_linear(stream.without(heavy), W if name == "tree_linear" else steps).counts
            effect = mechanisms.tree_linear(stream, W).counts - mechanisms.tree_linear(stream.without(heavy), W).counts
            found.append(float(attacks.score(released.counts, others, effect, released.node_sd)))
        scores.append(found)
    proved = audit(*scores, delta=delta)
    assert proved.epsilon <= epsilon
    if epsilon > 1 and name == "tree_linear":
        assert proved.epsilon > 0.3  # the audit can tell something


def test_the_audit_finds_the_missing_cap() -> None:
    """The same at the noise of one change, for a user who flips at every step: refuted."""
    steps, budget = 256, Budget(4.0, 1e-6, 256)
    stream = flipping(steps)
    counted = mechanisms.nocap(stream)
    found = attacks.attack(counted, counted.counts, budget, 4_000, Randomness.seeded(1))
    assert found.proved is not None
    assert found.proved.epsilon > 4.0
    honest = mechanisms.tree_linear(stream, 4)
    kept = attacks.attack(honest, attacks.worst_effect(honest, stream), budget, 4_000, Randomness.seeded(1))
    assert kept.proved is not None
    assert kept.proved.epsilon <= 4.0
    assert kept.passed


def test_the_fingerprinting_identity() -> None:
    """E[mean(x) sum(x_i - p)] = 1/6 with p ~ U[0, 1]; 1/30 for f = 2/5 + mean(x)/5: 1/10 cannot hold in general."""
    rng = np.random.default_rng(0)
    p = rng.random(400_000)
    x = rng.random((400_000, 10)) < p[:, None]
    mean, score = x.mean(1), (x - p[:, None]).sum(1)
    assert (mean * score).mean() == pytest.approx(1 / 6, rel=0.03)
    assert ((0.4 + mean / 5) * score).mean() == pytest.approx(1 / 30, rel=0.03)


@pytest.mark.parametrize(("memory", "ratio"), [(0, 1.01), (4, 0.85), (8, 0.70), (16, 0.33), (32, 0.06)])
def test_memory_buys_avoidance(memory: int, ratio: float) -> None:
    found = np.mean([game.avoidance(20, 20, 60, memory, seed) for seed in range(40)])
    assert found == pytest.approx(ratio, abs=0.03)


def test_the_game_is_a_stream_that_is_read_while_users_are_there() -> None:
    played = game.play(5, 3, 12, 0)
    present = np.r_[0, played.stream.present][played.reads]
    assert present.tolist() == played.present.sum(1).tolist()
    assert played.stream.present[-1] == 0
    assert played.n == 14
    found = game.outcome(
        played,
        releasing.release(mechanisms.counter(played.stream), Budget(1, 1e-6, played.stream.T), Randomness.seeded(0)),
        0,
    )
    assert found.error == 0
    assert 0 < found.heavy_share_ratio < 2


def test_without_noise_heavy_users_can_be_traced() -> None:
    aucs = []
    for seed in range(10):
        played = game.play(20, 5, 200, seed)
        counted = mechanisms.counter(played.stream)
        released = releasing.release(counted, Budget(1, 1e-6, played.stream.T), Randomness.seeded(seed))
        aucs.append(game.outcome(played, released, seed).auc)
    assert np.mean(aucs) > 0.75


@pytest.mark.parametrize("q", [0.0, 0.02, 0.08])
def test_the_corollary_follows_from_the_theorem(q: float) -> None:
    T = 2.0 ** np.arange(10, 20)
    assert np.allclose(bounds.corollary(T, q), T ** (1 / 3 - 4 * q), rtol=1e-12)
