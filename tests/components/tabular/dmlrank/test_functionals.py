"""Scores of known tables, their Jacobians, and plans of least variance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from kfp_methods.components.tabular.dmlrank import functionals, intervals, plans
from kfp_methods.components.tabular.dmlrank.choices import BtLink, FunctionalName
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Pairs, swapped

THREE = Pairs(3)
TABLE = {
    (0, 1): (0.6, 0.3, 0.1), (1, 0): (0.25, 0.65, 0.1), (0, 2): (0.5, 0.2, 0.3), (2, 0): (0.3, 0.4, 0.3),
    (1, 2): (0.45, 0.45, 0.1), (2, 1): (0.5, 0.35, 0.15),
}  # fmt: skip
TIES: Floats = np.array([TABLE[j, k] for j, k in zip(THREE.j.tolist(), THREE.k.tolist(), strict=True)])[None]
FORMS: list[tuple[FunctionalName, BtLink]] = [
    ("borda", "win_loss"), ("bt", "win_loss"), ("bt", "logit"), ("rank_centrality", "win_loss"),
    ("win_tie_half", "win_loss"),
]  # fmt: skip


def strengths(*w: float) -> Floats:
    """Bradley and Terry's probabilities, without ties and position."""
    pairs, s = Pairs(len(w)), np.array(w)
    win = s[pairs.j] / (s[pairs.j] + s[pairs.k])
    return np.stack([win, 1 - win], axis=-1)[None]


def random_mu(K: int, seed: int, C: int = 3) -> Floats:
    """Probabilities away from 0."""
    return 0.05 / C + 0.95 * np.random.default_rng(seed).dirichlet(np.ones(C), (2, Pairs(K).size))


def value(name: FunctionalName, mu: Floats, link: BtLink = "win_loss", pairs: Pairs = THREE) -> Floats:
    return functionals.functional(name, link)[0](pairs, mu)[0]


def test_strengths_of_bradley_and_terry() -> None:
    mu = strengths(4, 2, 1)
    assert value("borda", mu) == pytest.approx([0.733333, 0.5, 0.266667], abs=1e-6)
    for link in ("win_loss", "logit"):
        assert value("bt", mu, link) == pytest.approx([np.log(2), 0, -np.log(2)], abs=1e-12)  # type: ignore[arg-type]
    assert value("rank_centrality", mu) == pytest.approx([0.380952, 0.357143, 0.261905], abs=1e-6)


@given(st.lists(st.floats(0.2, 5), min_size=2, max_size=6))
def test_rank_centrality_of_strengths_is_known(w: list[float]) -> None:
    """By detailed balance it is proportional to w_i sum_l w_l / (w_i + w_l)."""
    s = np.array(w)
    law = np.array([s[i] * sum(s[m] / (s[i] + s[m]) for m in range(len(s)) if m != i) for i in range(len(s))])
    found = value("rank_centrality", strengths(*w), pairs=Pairs(len(w)))
    assert found == pytest.approx(law / law.sum(), rel=1e-9)
    assert value("bt", strengths(*w), pairs=Pairs(len(w))) == pytest.approx(np.log(s) - np.log(s).mean(), abs=1e-9)


def test_scores_with_ties() -> None:
    assert value("borda", TIES) == pytest.approx([0.5375, 0.3375, 0.3625], abs=1e-9)
    assert value("bt", TIES) == pytest.approx([0.475438, -0.334222, -0.141216], abs=1e-6)
    assert value("bt", TIES, "logit") == pytest.approx([0.103173, -0.307369, 0.204196], abs=1e-6)
    assert value("rank_centrality", TIES) == pytest.approx([0.354591, 0.332833, 0.312576], abs=1e-6)
    assert value("win_tie_half", TIES).sum() == pytest.approx(1.5)


def test_the_projection_is_least_squares_on_differences_of_strengths() -> None:
    pairs, mu = Pairs(5), random_mu(5, 3)[:1]
    odds = pairs.square(np.log(mu[0, :, 0] / mu[0, :, 1]))
    edges = list(itertools.combinations(range(5), 2))
    B, l = np.zeros((len(edges), 5)), np.zeros(len(edges))  # noqa: E741
    for row, (j, k) in enumerate(edges):
        B[row, j], B[row, k], l[row] = 1, -1, (odds[j, k] - odds[k, j]) / 2
    H = np.linalg.svd(np.ones((1, 5)))[2][1:].T
    expected = H @ np.linalg.solve(H.T @ B.T @ B @ H, H.T @ B.T @ l)
    assert value("bt", mu, pairs=pairs) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize(("name", "link"), FORMS)
def test_jacobians_are_central_differences(name: FunctionalName, link: BtLink, unordered: bool) -> None:
    for K, C in ((3, 3), (4, 4)):
        pairs, mu = Pairs(K), random_mu(K, 1, C)
        F, J = functionals.functional(name, link)
        if unordered:
            F, J = functionals.unordered(pairs, F, J)
        found = J(pairs, mu)
        for p, c in itertools.product(range(pairs.size), range(C)):
            step = np.zeros_like(mu)
            step[:, p, c] = 1e-6
            difference = (F(pairs, mu + step) - F(pairs, mu - step)) / 2e-6
            assert found[:, p, c] == pytest.approx(difference, abs=1e-6)
        if name in ("bt", "rank_centrality"):
            assert np.abs(found.sum(-1)).max() < 1e-12


@pytest.mark.parametrize("name", ["borda", "bt", "rank_centrality", "win_tie_half"])
def test_names_do_not_matter(name: FunctionalName) -> None:
    order = np.array([2, 0, 1])
    mu = TIES[:, THREE.at(order[THREE.j], order[THREE.k])]
    assert value(name, mu) == pytest.approx(value(name, TIES)[order], abs=1e-12)


def test_the_printed_link_depends_on_names() -> None:
    worst = 0.0
    for permutation in itertools.permutations(range(3)):
        order = np.array(permutation)
        mu = TIES[:, THREE.at(order[THREE.j], order[THREE.k])]
        worst = max(worst, float(np.abs(value("bt", mu, "logit") - value("bt", TIES, "logit")[order]).max()))
    assert worst == pytest.approx(0.61, abs=0.01)


@pytest.mark.parametrize(("name", "link"), FORMS)
def test_exchanging_sides_and_verdicts_changes_nothing(name: FunctionalName, link: BtLink) -> None:
    exchanged = swapped(TIES[:, THREE.mirror])
    assert value(name, exchanged, link) == pytest.approx(value(name, TIES, link), abs=1e-12)


def test_the_plan_of_the_table() -> None:
    _, J = functionals.functional("borda", "win_loss")
    info = plans.information(THREE, TIES, J)
    where = [THREE.at(np.array(j), np.array(k)) for j, k in TABLE]
    expected = [0.028125, 0.025938, 0.025625, 0.028125, 0.030938, 0.029844]
    assert info[0, where] == pytest.approx(expected, abs=1e-6)
    chosen, lam = plans.a_optimal(info, np.ones(6), 2.0, 0.01)
    assert lam == pytest.approx(0.2525985, abs=1e-7)
    assert chosen[0, where] == pytest.approx([0.333681, 0.320441, 0.318505, 0.333681, 0.349967, 0.343725], abs=1e-6)
    assert chosen.sum() == pytest.approx(2, abs=1e-9)
    chosen, lam = plans.a_optimal(info, np.ones(6), 5.9, 0.01)
    assert lam == pytest.approx(0.0283395, abs=1e-7)
    assert chosen[0, where] == pytest.approx([0.996208, 0.956682, 0.950902, 0.996208, 1, 1], abs=1e-6)


def test_an_optimiser_finds_the_same_plan() -> None:
    rng = np.random.default_rng(0)
    info, costs = rng.uniform(0.01, 1, (3, 6)), rng.uniform(0.5, 2, 6)
    chosen, _ = plans.a_optimal(info, costs, 1.5, 0.05)
    spent = {"type": "eq", "fun": lambda p: (p.reshape(3, 6) * costs).sum(1).mean() - 1.5}
    best = minimize(
        lambda p: (info / p.reshape(3, 6)).sum(), np.full(18, 0.2), bounds=[(0.05, 1)] * 18, constraints=[spent],
        options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    assert chosen.ravel() == pytest.approx(best.x, abs=2e-3)
    assert (chosen * costs).sum(1).mean() == pytest.approx(1.5, abs=1e-9)
    uniform = np.full((3, 6), 1.5 / costs.sum())
    assert plans.variance(info, chosen) < plans.variance(info, uniform)


def test_the_quantile_of_three_independent_scores() -> None:
    assert intervals.max_t(np.eye(3), 0.95, 0) == pytest.approx(2.3877, abs=0.02)
    assert intervals.max_t(np.ones((3, 3)), 0.95, 0) == pytest.approx(1.96, abs=0.02)


def test_ranks_leave_open_what_is_open() -> None:
    theta, covariance = np.array([1.0, 0.99, 0.0]), np.diag([1e-2, 1e-2, 1e-2]) ** 2
    found = intervals.compare(theta, covariance, 0.05, 0)
    best, worst = intervals.ranks(found, 3)
    assert best.tolist() == [1, 1, 3]
    assert worst.tolist() == [2, 2, 3]
