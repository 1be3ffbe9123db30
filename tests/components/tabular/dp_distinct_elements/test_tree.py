"""Noise of the tree: its size, and the sums that users' guarantees rest on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st

from kfp_methods.components.tabular.dp_distinct_elements import attacks, tree
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness


def test_the_budget_as_zcdp() -> None:
    assert tree.zcdp(1, 1e-6) == pytest.approx(0.0174689, rel=1e-5)
    log = math.log(1e6)
    assert tree.zcdp(3, 1e-6) == pytest.approx((math.sqrt(3 + log) - math.sqrt(log)) ** 2, rel=1e-12)


def test_the_noise_of_a_node() -> None:
    assert tree.node_sd(1, 256, 1, 1e-6) == pytest.approx(16.05, abs=1e-3)
    assert tree.node_sd(4, 3370, 1, 1e-6) == pytest.approx(38.6, abs=0.05)
    assert tree.node_sd(4, 137, 1, 1e-6) == pytest.approx(32.1, abs=0.05)


@pytest.mark.parametrize("calibration", ["zcdp", "exact"])
def test_an_accountant_agrees_that_the_noise_is_enough(calibration: str) -> None:
    W, T = 3, 1000
    sd = tree.node_sd(W, T, 1.0, 1e-6, calibration)  # type: ignore[arg-type]
    accountant = pld_privacy_accountant.PLDAccountant()
    accountant.compose(dp_event.GaussianDpEvent(sd / math.sqrt(W * (tree.levels(T) + 1))))
    spent = accountant.get_epsilon(1e-6)
    assert spent <= 1.0 + 1e-3
    if calibration == "exact":
        assert spent == pytest.approx(1.0, abs=1e-3)


def test_the_variance_is_that_of_the_nodes_which_cover_a_step() -> None:
    nodes = np.random.default_rng(0).standard_normal((20_000, 256))
    noise = tree.sums(nodes)
    assert noise[:, 254].var() == pytest.approx(8, rel=0.03)
    assert noise[:, 127].var() == pytest.approx(1, rel=0.03)
    assert tree.popcounts(256)[[254, 127, 255]].tolist() == [8, 1, 1]


@given(st.integers(1, 300), st.integers(0, 10_000))
def test_sums_and_nodes_undo_each_other(T: int, seed: int) -> None:
    nodes = np.random.default_rng(seed).standard_normal((2, T))
    noise = tree.sums(nodes)
    assert np.allclose(tree.nodes_of(noise), nodes)
    t = int(np.random.default_rng(seed).integers(1, T + 1))
    total, at = 0.0, t
    while at:  # strip the lowest set bit again and again
        total += nodes[0, at - 1]
        at -= at & -at
    assert noise[0, t - 1] == pytest.approx(total)


def test_asking_twice_or_for_more_gives_the_same_noise() -> None:
    one = Randomness.seeded(3)
    assert np.array_equal(one.nodes(100, 5), one.nodes(300, 5)[:100])
    assert not np.allclose(one.nodes(100, 5), one.nodes(100, 6))
    assert not np.allclose(one.nodes(100, 5), Randomness.seeded(4).nodes(100, 5))


def test_seeded_noise_is_normal_and_laplace_noise_has_its_law() -> None:
    nodes, laplace = Randomness.seeded(0).nodes(200_000), Randomness.seeded(0).laplace(200_000)
    assert nodes.std() == pytest.approx(1, abs=0.01)
    assert abs(nodes.mean()) < 0.01
    assert np.mean(np.abs(nodes) > 1.96) == pytest.approx(0.05, abs=0.002)
    assert laplace.var() == pytest.approx(2, rel=0.03)
    assert np.mean(np.abs(laplace) > math.log(20)) == pytest.approx(0.05, abs=0.002)


def test_secret_noise_is_never_the_same() -> None:
    one = Randomness.secure()
    assert not np.array_equal(one.nodes(10), one.nodes(10))
    assert not np.array_equal(one.laplace(10), one.laplace(10))
    assert one.key != Randomness.secure().key
    assert Randomness.secure().laplace(50_000).var() == pytest.approx(2, rel=0.1)


@given(st.integers(2, 200), st.integers(1, 6), st.integers(0, 10_000))
def test_no_user_within_the_cap_moves_the_score_further_than_the_budget(T: int, W: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    flips = np.sort(rng.choice(T, min(W, T), replace=False))
    effect = np.zeros(T)
    for number, at in enumerate(flips):
        effect[at:] = (number + 1) % 2
    mu = attacks.distance(effect, tree.node_sd(W, T, 1, 1e-6))
    assert mu <= math.sqrt(2 * tree.zcdp(1, 1e-6)) + 1e-9


def test_one_flip_at_the_first_step_spends_all_of_it() -> None:
    mu = attacks.distance(np.ones(256), tree.node_sd(1, 256, 1, 1e-6))
    assert mu == pytest.approx(math.sqrt(2 * tree.zcdp(1, 1e-6)), rel=1e-9)
    assert mu == pytest.approx(0.1869166, abs=1e-6)
