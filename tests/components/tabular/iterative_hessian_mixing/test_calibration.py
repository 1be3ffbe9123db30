"""The calibration against numbers that were computed from scratch, closed forms and monotonicity."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import (
    least_eigenvalue,
    linear_mixing_plan,
    plan,
    sketch_divergence,
    total_epsilon,
)

_LINES = [
    (1.0, 1e-6 / 3, 60, 1, 75.290148, 65.9902),
    (0.5, 7.5e-7 / 3, 138, 3, 273.603256, 240.5092),
    (0.5, 7.5e-9 / 3, 138, 3, 322.963526, 292.2906),
    (2.5, 7.5e-7 / 3, 138, 3, 57.997331, 53.2802),
]


@pytest.mark.parametrize(("epsilon", "delta", "rows", "T", "classical", "exact"), _LINES)
def test_known_gammas(epsilon: float, delta: float, rows: int, T: int, classical: float, exact: float) -> None:
    found = least_eigenvalue(epsilon, delta, rows, releases=T, strict=False)
    assert found == pytest.approx(classical, rel=1e-6)
    assert least_eigenvalue(epsilon, delta, rows, releases=T, strict=True) == pytest.approx(exact, rel=1e-5)


def test_known_gammas_of_linear_mixing_and_of_a_large_budget() -> None:
    assert least_eigenvalue(5, 7.5e-7 / 3, 138, releases=3) == pytest.approx(28.2569, rel=1e-5)
    assert least_eigenvalue(1, 1e-6 / 3, 60, norm=2, strict=False) == pytest.approx(109.657453, rel=1e-6)
    assert least_eigenvalue(1, 1e-6 / 3, 60, norm=2, strict=True) == pytest.approx(112.9515, rel=1e-5)


def test_more_budget_needs_less_noise_and_more_releases_more() -> None:
    def gamma(epsilon: float = 1.0, delta: float = 1e-6, rows: int = 100, releases: int = 3) -> float:
        return least_eigenvalue(epsilon, delta, rows, releases=releases)

    for values in (
        [gamma(epsilon=e) for e in (8.0, 4.0, 1.0, 0.3, 0.1)],
        [gamma(delta=d) for d in (1e-2, 1e-4, 1e-8)],
        [gamma(rows=k) for k in (50, 100, 400)],
        [gamma(releases=T) for T in (1, 2, 5, 20)],
    ):
        assert values == sorted(values)
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 1.0, 30.0, 1e6])
def test_the_root_is_rounded_up_and_tight(epsilon: float, strict: bool) -> None:
    gamma = least_eigenvalue(epsilon, 1e-7, 138, releases=3, strict=strict)
    assert total_epsilon(gamma, 1e-7, 138, releases=3, strict=strict) <= epsilon
    less = 1 + (gamma - 1) * (1 - 1e-6)
    assert total_epsilon(less, 1e-7, 138, releases=3, strict=strict) > epsilon


def test_the_exact_count_never_needs_more_noise() -> None:
    for epsilon in (0.1, 1.0, 10.0):
        exact, classical = (least_eigenvalue(epsilon, 1e-6, 80, releases=3, strict=s) for s in (True, False))
        assert exact < classical


def test_the_paper_s_code_counts_linear_mixing_s_eigenvalue_short() -> None:
    """With the factor sqrt(1 + C^2) that its sensitivity has, the classical formula asks for more."""
    gamma, delta, rows = 126.525, 1e-6 / 3, 60
    sketches = total_epsilon(gamma, delta, rows, norm=2.0, strict=False)
    term = math.sqrt(2 * math.log(1.25 / delta)) * math.sqrt(rows) / gamma
    assert sketches + (math.sqrt(2) - 1) * term == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("bound", [1.5, 10.0, 300.0])
def test_the_divergence_tends_to_kullback_and_leibler_s(bound: float) -> None:
    expected = 138 / 2 * (1 / (bound - 1) + math.log1p(-1 / bound))
    assert sketch_divergence(np.array([1e-7]), bound, 138)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("order", [1.01, 2.0, 4.5])
def test_the_divergence_is_that_of_two_gaussians_and_bounds_both_directions(order: float) -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    M = root @ root.T + 3 * np.eye(3)
    v = rng.normal(size=3)
    v *= math.sqrt(1 / 5 / (v @ np.linalg.solve(M, v)))  # v' M^-1 v = 1/5
    other = M - np.outer(v, v)

    def renyi(first: np.ndarray, second: np.ndarray) -> float:
        mixed = order * second + (1 - order) * first
        logs = [np.linalg.slogdet(matrix)[1] for matrix in (mixed, first, second)]
        return float((logs[0] - (1 - order) * logs[1] - order * logs[2]) / (2 * (1 - order)))

    bracket = sketch_divergence(np.array([order - 1]), 5.0, 7)[0]
    assert bracket == pytest.approx(7 * renyi(M, other), rel=1e-10)
    assert 7 * renyi(other, M) <= bracket


def test_a_plan_spends_its_budget_and_has_enough_rows() -> None:
    found = plan(1.0, 1e-6, 13, iterations=3)
    assert found.sketch.rows == max(6 * 13, math.floor(6 * math.log(12 / 1e-7)))
    assert found.sketch.eta == found.sketch.gamma / math.sqrt(found.sketch.rows)
    assert found.sketch.tau == math.sqrt(2 * math.log(4 / 1e-7))
    assert total_epsilon(found.sketch.gamma, 0.25e-6, found.sketch.rows, releases=3) == pytest.approx(0.5, rel=1e-8)
    assert plan(1.0, 1e-6, 13, iterations=3, clip=2.0).sigma == pytest.approx(2 * found.sigma, rel=1e-12)
    assert plan(1.0, 1e-2, 200, iterations=1, factor=1.5).sketch.rows == 300
    mixed = linear_mixing_plan(1.0, 1e-6, 13)
    assert mixed.rows == math.floor(2.5 * math.log(2 / 1e-7))
    assert mixed.eta == pytest.approx(math.sqrt(2) * mixed.gamma / math.sqrt(mixed.rows))
