"""Dominance, distances, covers and margins against numbers by hand, brute force and another library."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from paretoset import paretoset

from kfp_methods.components.tabular.weak_monotonicity import frontier
from kfp_methods.components.tabular.weak_monotonicity.learners import Pool, size_allowed

CROSS = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def random_risks(seed: int, M: int = 10, K: int = 3, ties: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.round(rng.random((M, K)), 1 if ties else 9)


def test_a_model_that_is_beaten_somewhere_and_nowhere_strictly_everywhere_has_margin_0() -> None:
    found = frontier.domination(CROSS)
    assert found.on_frontier.tolist() == [True, True, False]
    assert found.margin.tolist() == [0, 0, 0]
    literal, fixed = Pool(CROSS, tie_fix=False), Pool(CROSS)
    assert [literal.adaptive(n)[2] for n in (1, 4, 100)] == [False, False, False]
    assert [bool(fixed.adaptive(n)[2]) for n in (1, 2)] == [False, True]


@pytest.mark.parametrize("seed", range(20))
def test_distances_obey_their_laws(seed: int) -> None:
    R = random_risks(seed)
    d, found = frontier.distances(R), frontier.domination(R)
    assert (np.diag(d) == 0).all()
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-12).all()  # d(f, h) <= d(f, g) + d(g, h)
    weakly = (R[:, None] <= R[None]).all(2)
    assert ((d == 0) == weakly).all()
    strictly = (R[None] < R[:, None]).all(2).any(1)
    assert ((found.margin > 0) == strictly).all()
    dominated = ((R[None] <= R[:, None]).all(2) & (R[None] < R[:, None]).any(2)).any(1)
    assert (found.on_frontier == ~dominated).all()


@pytest.mark.parametrize("seed", range(10))
def test_the_frontier_is_that_of_another_library(seed: int) -> None:
    R = random_risks(seed, 60, 3)
    assert (frontier.domination(R).on_frontier == paretoset(R, sense=["min"] * 3, distinct=False)).all()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("t", [0.0, 0.1, 0.3])
def test_covers_are_the_smallest(seed: int, t: float) -> None:
    R = random_risks(seed, 8, 2)
    d = frontier.distances(R)

    def covers(chosen: tuple[int, ...]) -> bool:
        return bool((d[list(chosen)].min(0) <= t + 1e-12).all())

    least = next(k for k in range(1, 9) if any(covers(c) for c in combinations(range(8), k)))
    found = frontier.cover(R, t)
    assert len(found) == least
    assert covers(tuple(found))
    assert frontier.domination(R).on_frontier[found].all()


def test_covering_numbers_fall_from_the_frontiers_size_to_one() -> None:
    R = random_risks(3, 40, 3, ties=False)
    grid = np.linspace(0, frontier.distances(R).max(), 60)
    numbers = frontier.covering_numbers(R, grid)
    assert numbers[0] == frontier.domination(R).on_frontier.sum()
    assert numbers[-1] == 1
    assert (np.diff(numbers) <= 0).all()
    assert numbers.tolist() == [len(frontier.cover(R, float(t))) for t in grid]
    reach = frontier.distances(R) <= 0.2
    assert len(frontier.greedy(reach)) >= len(frontier.cover(R, 0.2))
    assert frontier.covering_numbers(R[:, :1], np.array([0.0])).tolist() == [1]


@pytest.mark.parametrize("t", [0.05, 0.1, 0.24])
def test_a_trade_off_line_needs_one_model_for_each_piece(t: float) -> None:
    x = np.linspace(0, 1, 201)
    R = np.column_stack([x, 1 - x])
    assert frontier.domination(R).on_frontier.all()
    assert frontier.distances(R)[30, 70] == pytest.approx(0.2)
    assert abs(len(frontier.cover(R, t)) - np.ceil(1 / (2 * t))) <= 1


def test_moduli_of_a_target_that_is_the_source() -> None:
    R = random_risks(5, 30, 1, ties=False)
    grid = np.array([0.0, 0.3])
    assert (frontier.upper_modulus(R, R[:, 0], grid, 1.0) <= grid + 1e-12).all()
    assert (frontier.lower_modulus(R, R[:, 0], grid, 0.0) >= grid - 1e-12).all()
    ordered, pairs = frontier.monotone_pairs(R, R[:, 0])
    assert ordered == pairs == 30 * 29 // 2
    assert frontier.monotone_pairs(R, -R[:, 0])[0] == 0


def test_sizes_that_the_adaptive_rule_allows() -> None:
    assert [size_allowed(n, 60, 2) for n in (1, 2, 4, 8, 16, 32)] == [2, 4, 7, 16, 54, 60]
    R = random_risks(7, 60, 3, ties=False)
    pool = Pool(R)
    assert [int(pool.adaptive(n).sum()) for n in (4, 8, 32)] == [
        max(int(pool.on_frontier.sum()), size_allowed(n, 60, 0)) for n in (4, 8, 32)
    ]
    assert pool.adaptive(1)[pool.on_frontier].all()


def test_five_thousand_models_take_blocks() -> None:
    R = random_risks(1, 5_000, 4, ties=False)
    found = frontier.domination(R)
    small = frontier.domination(R[:500])
    assert found.on_frontier.sum() > 5
    assert (small.margin <= found.margin[:500] + 1e-15).all()
