"""Distances, their gradients, and what learning makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from kfp_methods.components.tabular.ot_dro import ambiguity, learning, sample, solving
from kfp_methods.components.tabular.ot_dro.cones import Floats
from kfp_methods.components.tabular.ot_dro.learning import Settings
from kfp_methods.components.tabular.ot_dro.solving import Setup
from kfp_methods.components.tabular.ot_dro.transport import Distances, Gelbrich, Wasserstein
from tests.components.tabular.ot_dro.cases import L


@pytest.mark.parametrize("p", [1, 2])
def test_between_single_points(p: int) -> None:
    points = np.array([[0.0, 0, 0], [1, 2, 3]])
    found = Wasserstein(points, np.array([1.0, 0]), np.array([[0.0, 1], [1, 0]]), p)
    assert found.values(L) == pytest.approx([6.051446, 0], abs=1e-6)
    assert found.values(2 * L) == pytest.approx(2 * found.values(L))


@pytest.mark.parametrize("p", [1, 2])
def test_a_linear_program_finds_the_same_distance(p: int) -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(7, 3)), rng.dirichlet(np.ones(7))
    reference = np.full(7, 1 / 7)
    cost = np.linalg.norm((points[:, None] - points[None]) @ L, axis=2) ** p
    rows = np.vstack([np.kron(np.eye(7), np.ones(7)), np.kron(np.ones(7), np.eye(7))])
    best = linprog(cost.ravel(), A_eq=rows, b_eq=np.r_[reference, weights]).fun
    found = Wasserstein(points, reference, weights[None], p).values(L)
    assert found[0] == pytest.approx(best ** (1 / p), rel=1e-7)


def distances(kind: str, seed: int = 0) -> Distances:
    """Of twelve rows and four bootstraps."""
    rows = np.random.default_rng(seed).normal(size=(12, 3))
    resamples = ambiguity.counts(12, 4, np.random.default_rng([seed, 1]))
    problem = "po_cvar" if kind == "gelbrich" else "po_mean"
    p = 1 if kind == "first" else 2
    return ambiguity.distances(ambiguity.Sample.of(rows, standardise=False), problem, p, resamples)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["first", "second", "gelbrich"])
def test_gradients_of_distances_are_central_differences(kind: str) -> None:
    found, weights = distances(kind), np.array([0.3, -0.2, 1.0, 0.0])
    values, pull = found.at(L)
    assert values == pytest.approx(found.values(L))
    gradient = pull(weights)
    for i, j in zip(*np.tril_indices(3), strict=True):
        step = np.zeros((3, 3))
        step[i, j] = 1e-6
        difference = weights @ (found.values(L + step) - found.values(L - step)) / 2e-6
        assert gradient[i, j] == pytest.approx(difference, abs=1e-5)
    assert not np.triu(gradient, 1).any()


def test_gelbrich_of_equal_covariances_is_the_shift_of_means() -> None:
    S = np.cov(np.random.default_rng(0).normal(size=(3, 20)))
    shift = np.array([1.0, -2, 0.5])
    found = Gelbrich(np.zeros(3), S, shift[None], S[None])
    assert found.values(L)[0] == pytest.approx(np.linalg.norm(L.T @ shift), rel=1e-6)


def test_gelbrich_of_commuting_covariances() -> None:
    a, b, shift = np.diag([1.0, 4, 9]), np.diag([4.0, 1, 0.25]), np.array([1.0, 0, 1])
    found = Gelbrich(np.zeros(3), a, shift[None], b[None]).values(np.eye(3))[0]
    assert found == pytest.approx(np.sqrt(2 + ((np.sqrt(np.diag(a)) - np.sqrt(np.diag(b))) ** 2).sum()), rel=1e-6)


def test_gelbrich_by_matrix_square_roots() -> None:
    rng = np.random.default_rng(3)
    a, b = (np.cov(rng.normal(size=(3, 9))) for _ in range(2))
    shift, H = rng.normal(size=3), L @ L.T
    cross = sqrtm(L.T @ b @ L @ L.T @ a @ L)
    expected = np.trace(H @ (np.outer(shift, shift) + a + b)) - 2 * np.trace(np.real(cross))
    assert Gelbrich(np.zeros(3), a, shift[None], b[None]).values(L)[0] ** 2 == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 5_000))
def test_stabilising_keeps_what_is_well_conditioned(seed: int) -> None:
    rng = np.random.default_rng(seed)
    metric = np.tril(rng.normal(0, 0.3, (4, 4)))
    metric[np.diag_indices(4)] = rng.uniform(0.5, 2, 4)
    assert learning.stabilised(metric) == pytest.approx(metric, abs=1e-10)


def test_stabilising_bounds_the_eigenvalues() -> None:
    wild = np.diag([1e-9, 1.0, 1e9])
    values = np.linalg.eigvalsh(learning.stabilised(wild) @ learning.stabilised(wild).T)
    assert values == pytest.approx([1e-6, 1, 1e6], rel=1e-6)


@pytest.fixture(scope="module")
def rows() -> Floats:
    return sample.draw(50, 3)


QUICK = Settings(iterations=60)


def test_learning_lowers_the_certificate_and_keeps_coverage(rows: Floats) -> None:
    found = solving.solve(rows, Setup("po_mean", standardise=False), QUICK, 0, rows)
    certificates = {name: one.certificate for name, one in found.decisions.items()}
    assert certificates["learned"] < certificates["round"]  # type: ignore[operator]
    assert certificates["none"] < certificates["learned"]  # type: ignore[operator]
    assert found.outside <= 0.2
    assert found.learned.history["f"][0] == pytest.approx(certificates["round"])


@pytest.mark.parametrize("problem", ["po_mean", "po_cvar"])
def test_a_calibrated_set_leaves_exactly_gamma_outside(rows: Floats, problem: str) -> None:
    fit = ambiguity.Sample.of(rows, standardise=True)
    found = ambiguity.distances(fit, problem, 1, ambiguity.counts(50, 30, np.random.default_rng(0)))  # type: ignore[arg-type]
    eps = ambiguity.radius(found, 3, 0.1)
    calibrated = ambiguity.calibrated(np.eye(3) * 1.7 + np.tril(np.ones((3, 3)), -1), found, eps, 0.1)
    assert ambiguity.quantile(found.values(calibrated), 0.1) == pytest.approx(eps, rel=1e-10)


def test_both_gradients_learn_the_same(rows: Floats) -> None:
    one, two = (
        solving.solve(rows, Setup("po_mean", n_bootstrap=10), replace(QUICK, iterations=15, gradient=kind), 0)
        for kind in ("envelope", "conic")
    )  # type: ignore[arg-type]
    assert two.learned.history["f"] == pytest.approx(one.learned.history["f"], abs=1e-3)
    assert one.learned.kinks == 0


def test_the_units_of_the_data_do_not_matter(rows: Floats) -> None:
    """Percent or decimals: the same decision, certificates in their units."""
    one, two = (solving.solve(scale * rows, Setup("po_mean"), replace(QUICK, iterations=20), 0) for scale in (1, 0.01))
    assert two.decisions["learned"].w == pytest.approx(one.decisions["learned"].w, abs=1e-4)
    assert two.decisions["learned"].certificate == pytest.approx(0.01 * one.decisions["learned"].certificate, rel=1e-4)  # type: ignore[operator]


def test_the_units_of_cvar_do_not_matter_either(rows: Floats) -> None:
    quick = replace(QUICK, iterations=5)
    one, two = (solving.solve(scale * rows, Setup("po_cvar", p=2), quick, 0) for scale in (1, 1e-6))
    assert two.decisions["round"].certificate == pytest.approx(1e-6 * one.decisions["round"].certificate, rel=1e-3)  # type: ignore[operator]


@pytest.mark.parametrize("problem", ["po_mean", "po_cvar", "reg_abs", "reg_sq"])
def test_every_problem_learns_for_held_out_rows_too(problem: str) -> None:
    rows = sample.patients()[0] if problem.startswith("reg") else sample.year(2015)
    setup = Setup(problem, p=2 if problem in ("po_cvar", "reg_sq") else 1, n_bootstrap=10)  # type: ignore[arg-type]
    plain = solving.solve(rows, setup, replace(QUICK, iterations=30), 0)
    held_out = solving.solve(rows, replace(setup, upper_objective="validation_loss"), replace(QUICK, iterations=30), 0)
    assert plain.decisions["learned"].certificate < plain.decisions["round"].certificate  # type: ignore[operator]
    history = held_out.learned.history["objective"]
    assert min(history) <= history[0]


def test_the_loss_on_rows_held_out_has_the_right_gradient() -> None:
    for problem in ("po_mean", "po_cvar", "reg_abs", "reg_sq"):
        rows = sample.patients()[0] if problem.startswith("reg") else sample.year(2015)
        objective = solving._on_rows(Setup(problem), rows)  # type: ignore[arg-type]
        k = rows.shape[1] - problem.startswith("reg")
        w = np.random.default_rng(0).dirichlet(np.ones(k))
        _, gradient = objective(w)
        for i in range(k):
            step = 1e-6 * np.eye(k)[i]
            difference = (objective(w + step)[0] - objective(w - step)[0]) / 2e-6
            assert gradient[i] == pytest.approx(difference, abs=1e-4)


def test_cvar_of_rows_by_hand() -> None:
    rows, w = np.array([[-4.0], [-3], [1], [2]]), np.ones(1)
    assert solving.loss(Setup("po_cvar", beta=0.5), w, rows) == pytest.approx(3.5)
    assert solving.loss(Setup("po_cvar", beta=0.375), w, rows) == pytest.approx((4 + 0.5 * 3) / 1.5)
    assert solving.loss(Setup("po_mean"), w, rows) == pytest.approx(1.0)


def test_the_sample_is_what_it_is_said_to_be() -> None:
    assert pytest.approx([0.75, -0.4, 0.19]) == sample.PROBABILITIES @ sample.SUPPORT
    assert sample.stocks().shape == (654, 8)
    assert sample.stocks().index.year.min() == 2010
    assert len(sample.year(2022)) == 50
