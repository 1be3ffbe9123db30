"""The algorithm's oracles: laws of the sketches, what is left without noise, and what one row can change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_methods.components.tabular.iterative_hessian_mixing import mixing
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan, SketchPlan, plan
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats, Regression
from kfp_methods.components.tabular.privacy import SecureNormals
from tests.components.tabular.iterative_hessian_mixing.conftest import paper_scaled, regression


class Exact(Regression):
    """Hessians without a sketch."""

    def sketched_hessian(self, rows: int, level: Floats, noise: Noise) -> Floats:
        """X'X."""
        return np.repeat(self.moments.gram[None], len(level), axis=0)


def noiseless(T: int, rows: int = 60, clip: float = 1e6) -> Plan:
    """No noise at all but the sketch's."""
    return Plan(1.0, 1e-6, T, clip, SketchPlan(rows, gamma=0.0, eta=0.0, tau=0.0), sigma=0.0)


def test_without_noise_one_step_is_least_squares_and_more_do_not_move() -> None:
    made = regression()
    data = Exact(made.X, made.y)
    expected = np.linalg.lstsq(made.X, made.y, rcond=None)[0]
    for step in mixing.steps(data, noiseless(3), Noise.seeded([0, 1])):
        np.testing.assert_allclose(step.theta, [expected, expected], rtol=0, atol=1e-10)


def test_with_sketches_alone_the_error_contracts_each_step() -> None:
    data = regression(n=1_000, d=10)
    best, gram = data.moments.least_squares, data.moments.gram
    thetas = [step.theta for step in mixing.steps(data, noiseless(4, rows=60), Noise.seeded(range(300)))]
    gaps = [np.zeros((300, 10)) - best, *(theta - best for theta in thetas)]
    norms = np.sqrt([np.einsum("bi,ij,bj->b", gap, gram, gap) for gap in gaps])
    ratios = norms[1:] / norms[:-1]
    assert ratios.mean(1).max() < 0.75
    assert 0.5 < ratios.mean() < 0.65
    assert (ratios > 1).mean() < 0.1


@pytest.mark.parametrize("explicit", [False, True])
def test_both_sketches_have_the_same_law(explicit: bool) -> None:
    data, k, level, draws = regression(n=30, d=3, explicit=explicit), 20, 0.5, 4_000
    found = data.sketched_hessian(k, np.full(draws, level), Noise.joint(draws, 7, explicit))
    expected = data.moments.gram + level * np.eye(3)
    error = found.std(0, ddof=1) / np.sqrt(draws)
    assert (np.abs(found.mean(0) - expected) < 4 * error).all()
    inverse = k / (k - 3 - 1) * np.linalg.inv(expected)
    np.testing.assert_allclose(np.linalg.inv(found).mean(0), inverse, rtol=0.03, atol=0.03 * np.abs(inverse).max())


def test_blocks_of_rows_do_not_change_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = regression(n=101, d=4)
    theta = np.random.default_rng(0).normal(size=(3, 4))
    whole = data.gradient(theta, 0.1)
    monkeypatch.setattr("kfp_methods.components.tabular.iterative_hessian_mixing.regression._BLOCK", 30)
    np.testing.assert_allclose(data.gradient(theta, 0.1), whole, rtol=1e-12)
    by_hand = [data.X.T @ np.clip(data.y - data.X @ one, -0.1, 0.1) for one in theta]
    np.testing.assert_allclose(whole, by_hand, rtol=1e-10, atol=1e-14)


def test_nothing_is_added_to_a_large_eigenvalue() -> None:
    planned = plan(1.0, 1e-6, 3, iterations=3)
    sketch = planned.sketch
    enough = sketch.gamma + sketch.eta * sketch.tau + 6 * sketch.eta
    data = Regression(np.repeat(np.eye(3), int(enough) + 1, axis=0), np.zeros(3 * (int(enough) + 1)))
    first = next(iter(mixing.steps(data, planned, Noise.joint(10_000, 0))))
    assert (first.level == 0).all()


def test_the_private_eigenvalue_is_no_overestimate() -> None:
    sketch = replace(plan(1.0, 1e-2, 3, iterations=3).sketch, tau=2.0)
    floor = mixing.private_floor(500.0, sketch, Noise.joint(200_000, 0))
    assert (floor > 500).mean() == pytest.approx(0.0227501, abs=0.0015)


def test_a_release_does_not_depend_on_its_company() -> None:
    data, planned = regression(), plan(2.0, 1e-6, 5, iterations=3)
    together = mixing.release(data, planned, Noise.seeded([3, 4, 5], 1))
    np.testing.assert_allclose(mixing.release(data, planned, Noise.seeded([4], 1))[0], together[1], rtol=1e-12)
    assert np.isfinite(mixing.release(data, planned, Noise([SecureNormals()]))).all()


def test_every_stream_of_a_seed_is_its_own() -> None:
    streams = [(), (0,), (10,), (10, 0), (10, 0, 0), (0, 10)]
    drawn = [Noise.seeded([3], *stream).normal(4).ravel() for stream in streams]
    drawn += [np.random.default_rng(seed).standard_normal(4) for seed in ([3], [3, 10])]  # what makes the data
    assert len({values.tobytes() for values in drawn[:-2]}) == len(streams)
    assert not np.isin(drawn[1:-2], drawn[-2:]).any()
    np.testing.assert_array_equal(Noise.joint(4, 3, 10).normal().ravel(), drawn[2])


def test_with_all_the_budget_and_steps_the_error_vanishes() -> None:
    data = paper_scaled("boston")
    least = data.moments.mse(data.moments.least_squares)
    null = data.moments.square / data.moments.n
    for T, low, high in ((3, 3e-3, 2e-2), (10, 0.0, 1e-3), (20, 0.0, 1e-4)):
        theta = mixing.release(data, plan(1e6, 1 / 404**2, 13, iterations=T), Noise.seeded(range(50)))
        excess = float((data.moments.mse(theta) - least).mean()) / null
        assert low < excess < high  # three steps do not undo what is added for gamma near 1


def test_singular_hessians_have_a_solution() -> None:
    H = np.stack([np.eye(2), np.array([[1.0, 0.0], [0.0, 0.0]])])
    np.testing.assert_allclose(mixing.solve(H, np.array([[1.0, 2.0], [3.0, 0.0]])), [[1, 2], [3, 0]], atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.1, 2.0))
@settings(max_examples=60, deadline=None)
def test_one_row_changes_eigenvalue_and_gradient_by_their_sensitivities(seed: int, d: int, clip: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(d, 30))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-3, 3)
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.clip(rng.normal(size=n) * 10 ** rng.uniform(-2, 2), -clip, clip)
    left_out = X.copy(), y.copy()
    left_out[0][0], left_out[1][0] = 0.0, 0.0
    first, second = Regression(X, y, clip=clip), Regression(*left_out, clip=clip)
    theta = rng.normal(size=(4, d)) * 10 ** rng.uniform(-2, 2)
    assert 0 <= first.least - second.least + 1e-9 <= 1 + 2e-9
    change = np.linalg.norm(first.gradient(theta, clip) - second.gradient(theta, clip), axis=1)
    assert (change <= clip * (1 + 1e-9)).all()


def test_rows_that_would_break_the_promise_are_refused() -> None:
    X = np.array([[0.6, 0.6], [0.9, 0.9]])
    with pytest.raises(ValueError, match=r"50.00% of the rows"):
        Regression(X, np.zeros(2))
    with pytest.raises(ValueError, match=r"100.00% of the targets"):
        Regression(0.1 * X, np.array([2.0, -3.0]))
    Regression(0.1 * X, np.array([2.0, -3.0]), clip=3.0)
