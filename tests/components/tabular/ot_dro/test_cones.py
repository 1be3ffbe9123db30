"""Values, decisions and derivatives of the cone programs."""

from __future__ import annotations

import cvxpy as cp
import diffcp
import numpy as np
import pytest
from scipy import sparse

from kfp_methods.components.tabular.ot_dro import cones, derivative
from kfp_methods.components.tabular.ot_dro.choices import Problem
from kfp_methods.components.tabular.ot_dro.cones import Floats
from tests.components.tabular.ot_dro.cases import EPS, MEAN, L, diabetes, portfolio, solved

ALL: list[Problem] = ["po_mean", "po_cvar", "reg_abs", "reg_sq"]


def of(problem: Problem) -> tuple[cones.Data, Floats]:
    """A problem with a metric that is no identity."""
    if problem.startswith("po"):
        return portfolio(problem), L
    metric = np.eye(4) + np.tril(np.random.default_rng(0).normal(0, 0.2, (4, 4)))
    return diabetes(problem), metric


def test_the_portfolio_by_worst_expected_return() -> None:
    value, w, *_ = solved(portfolio(), L)
    assert value == pytest.approx(-0.118018, abs=1e-6)
    assert w == pytest.approx([0.085262, 0.356768, 0.557971], abs=1e-4)
    value, w, *_ = solved(portfolio(), np.eye(3))
    assert value == pytest.approx(-0.047247, abs=1e-6)
    assert w == pytest.approx([0.115115, 0.333333, 0.551551], abs=1e-4)


def test_the_portfolio_by_worst_cvar() -> None:
    value, w, *_ = solved(portfolio("po_cvar"), L)
    assert value == pytest.approx(1.162212, abs=1e-6)
    assert w == pytest.approx([0.311510, 0.436204, 0.252286], abs=1e-4)


def test_the_regressions() -> None:
    value, w, *_ = solved(diabetes("reg_abs"), np.eye(4), 0.1)
    assert value == pytest.approx(0.787316, abs=1e-6)
    assert w == pytest.approx([-0.065843, -0.024700, 0.468491], abs=1e-4)
    root, w, *_ = solved(diabetes("reg_sq"), np.eye(4), 0.1)
    assert root == pytest.approx(0.911024, abs=1e-6)
    assert root**2 == pytest.approx(0.829965, abs=1e-6)
    assert w == pytest.approx([0.054222, -0.040564, 0.512614], abs=1e-4)


@pytest.mark.parametrize("problem", ALL)
def test_cvxpy_finds_the_same(problem: Problem) -> None:
    data, metric = of(problem)
    w = cp.Variable(data.size)
    inverse = np.linalg.inv(metric)
    if problem.startswith("po"):
        ball, rules = cp.norm(inverse @ w), [w >= 0, cp.sum(w) == 1]
        loss = -MEAN @ w
        if problem == "po_cvar":
            loss = loss + data.tail * cp.norm(data.root.T @ w)
    else:
        X, y = data.rows[:, :-1], data.rows[:, -1]
        ball, rules = cp.norm(inverse @ cp.hstack([-w, np.ones(1)])), []
        errors = y - X @ w
        loss = cp.norm1(errors) / len(y) if problem == "reg_abs" else cp.norm(errors) / np.sqrt(len(y))
    expected = cp.Problem(cp.Minimize(loss + EPS * data.slope * ball), rules).solve(solver="CLARABEL")
    assert solved(data, metric)[0] == pytest.approx(expected, abs=1e-6)


def test_the_second_order_costs_the_same_as_the_first() -> None:
    points = MEAN + np.random.default_rng(0).normal(0, 1, (30, 3))
    points += MEAN - points.mean(0)
    program = cones.build_dense(MEAN, points, L, EPS)
    dense = cones.solve(program)
    value, w, *_ = solved(portfolio(), L)
    assert dense.value == pytest.approx(value, abs=1e-6)
    assert dense.x[program.w] == pytest.approx(w, abs=1e-3)


def test_bounds_of_weights() -> None:
    value, w, *_ = solved(cones.Data("po_mean", MEAN, np.eye(3), np.zeros((0, 0)), upper=0.4), L)
    assert w.max() == pytest.approx(0.4, abs=1e-6)
    assert value > solved(portfolio(), L)[0]
    short = cones.Data("po_mean", MEAN, np.eye(3), np.zeros((0, 0)), lower=-1.0)
    value, w, *_ = solved(short, L, 0.05)
    assert w.min() < -0.1
    assert w.sum() == pytest.approx(1)
    assert value < solved(portfolio(), L, 0.05)[0]


def test_the_limits_of_the_radius() -> None:
    saa = solved(portfolio(), L, 0.0)
    assert saa[0] == pytest.approx(-0.3, abs=1e-8)
    assert saa[1] == pytest.approx([0, 0, 1], abs=1e-6)
    assert solved(portfolio(), L, 1e-6)[1] == pytest.approx([0, 0, 1], abs=1e-3)
    assert solved(portfolio(), np.eye(3), 1e4)[1] == pytest.approx(np.full(3, 1 / 3), abs=1e-4)
    assert solved(portfolio(), L, 1e4)[1] == pytest.approx([0.211706, 0.529265, 0.259029], abs=1e-4)
    weights = L @ L.T @ np.ones(3)
    assert solved(portfolio(), L, 1e4)[1] == pytest.approx(weights / weights.sum(), abs=1e-4)
    for problem in ("reg_abs", "reg_sq"):
        assert solved(diabetes(problem), np.eye(4), 1e4)[1] == pytest.approx(np.zeros(3), abs=1e-4)
    rows = diabetes("reg_sq").rows
    plain = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
    assert solved(diabetes("reg_sq"), np.eye(4), 0.0)[1] == pytest.approx(plain, abs=1e-6)


def test_scaling_the_metric_scales_the_radius() -> None:
    assert solved(portfolio(), 3 * L, 3 * EPS)[0] == pytest.approx(solved(portfolio(), L)[0], abs=1e-8)


def test_the_worst_law_has_the_certificate_as_its_loss() -> None:
    """Shifting every row by -eps H^-1 w / ||w||_{H^-1} costs eps."""
    value, w, *_ = solved(portfolio(), L)
    inverse = np.linalg.inv(L @ L.T)
    shift = -EPS * inverse @ w / np.sqrt(w @ inverse @ w)
    assert np.linalg.norm(L.T @ shift) == pytest.approx(EPS, abs=1e-8)
    assert -(MEAN + shift) @ w == pytest.approx(value, abs=1e-8)


def test_the_gradient_of_the_worst_expected_return() -> None:
    _, w, *_ = solved(portfolio(), L)
    expected = [[0.001536, 0, 0], [-0.006990, -0.012877, 0], [-0.015516, -0.028583, -0.071342]]
    assert derivative.envelope(portfolio(), L, EPS, w) == pytest.approx(np.array(expected), abs=2e-6)


@pytest.mark.parametrize("problem", ALL)
def test_both_gradients_are_central_differences(problem: Problem) -> None:
    data, metric = of(problem)
    _, w, program, solution = solved(data, metric)
    differences = np.zeros_like(metric)
    for i, j in zip(*np.tril_indices(len(metric)), strict=True):
        step = np.zeros_like(metric)
        step[i, j] = 1e-5
        differences[i, j] = (solved(data, metric + step)[0] - solved(data, metric - step)[0]) / 2e-5
    assert derivative.envelope(data, metric, EPS, w) == pytest.approx(differences, abs=1e-5)
    adjoint = derivative.conic(program, solution, program.c)
    assert adjoint.gradient == pytest.approx(differences, abs=1e-5)
    assert not adjoint.singular


def test_the_solutions_own_derivative_is_central_differences() -> None:
    """Of a loss that is not the optimal value: here one weight."""
    _, _, program, solution = solved(portfolio(), L)
    dx = np.zeros_like(program.c)
    dx[1] = 1.0
    found = derivative.conic(program, solution, dx).gradient
    for i, j in zip(*np.tril_indices(3), strict=True):
        step = np.zeros((3, 3))
        step[i, j] = 1e-4
        difference = (solved(portfolio(), L + step)[1][1] - solved(portfolio(), L - step)[1][1]) / 2e-4
        assert found[i, j] == pytest.approx(difference, abs=2e-4)


def test_diffcp_finds_the_same_derivative() -> None:
    _, _, program, _ = solved(portfolio(), L)
    rows = {"zero": [], "nonnegative": [], "second_order": []}
    sizes: dict[str, list[int]] = {"zero": [], "nonnegative": [], "second_order": []}
    at = 0
    for kind, size in program.cones:
        rows[kind] += list(range(at, at + size))
        sizes[kind].append(size)
        at += size
    order = rows["zero"] + rows["nonnegative"] + rows["second_order"]
    theirs = {"z": sum(sizes["zero"]), "l": sum(sizes["nonnegative"]), "q": sizes["second_order"]}
    A = sparse.csc_matrix(program.A[order])
    x, _, s, _, adjoint = diffcp.solve_and_derivative(A, program.b[order], program.c, theirs, solve_method="CLARABEL")
    dx = np.zeros_like(x)
    dx[1] = 1.0
    dA = adjoint(dx, np.zeros_like(s), np.zeros_like(s))[0].toarray()
    back = np.zeros(program.A.shape)
    back[order] = dA
    _, _, _, solution = solved(portfolio(), L)
    ours = derivative.conic(program, solution, dx).gradient
    theirs_L = np.tril(back[program.L_rows, program.L_columns])
    stored = np.abs(np.tril(L)) > 0  # theirs is of stored entries only
    assert ours[stored] == pytest.approx(theirs_L[stored], abs=1e-4)


def test_a_decision_at_a_vertex() -> None:
    data = portfolio(mean=np.array([1.0, 0, 0]))
    _, w, program, solution = solved(data, np.eye(3), 0.1)
    assert w == pytest.approx([1, 0, 0], abs=1e-6)
    expected = np.zeros((3, 3))
    expected[0, 0] = -0.1
    assert derivative.envelope(data, np.eye(3), 0.1, w) == pytest.approx(expected, abs=1e-6)
    assert derivative.conic(program, solution, program.c).gradient == pytest.approx(expected, abs=1e-6)


def test_what_cannot_be_solved_says_its_status() -> None:
    data = cones.Data("po_mean", MEAN, np.eye(3), np.zeros((0, 0)), upper=0.2)
    with pytest.raises(cones.NotSolvedError, match="nfeasible"):
        solved(data, L)
