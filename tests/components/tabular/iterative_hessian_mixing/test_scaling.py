"""Scaling and back, the embedded tables, and rows on a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kfp_methods.components.tabular.iterative_hessian_mixing import mixing, sample
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import plan
from kfp_methods.components.tabular.iterative_hessian_mixing.device_regression import DeviceRegression, directions
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import check_bounds
from kfp_methods.components.tabular.iterative_hessian_mixing.scaling import Scaling
from tests.components.tabular.iterative_hessian_mixing.conftest import regression

RNG = np.random.default_rng(0)
X = RNG.uniform([-3, 0, 100], [5, 1, 400], (200, 3))
Y = RNG.uniform(-20, 60, 200)
BOUNDS = np.array([[-3.0, 5.0], [0.0, 1.0], [100.0, 400.0]])


@pytest.mark.parametrize(
    "scaling",
    [
        Scaling.from_bounds(BOUNDS, (-20, 60), intercept=True),
        Scaling.from_bounds(BOUNDS, (-20, 60), intercept=False),
        Scaling.from_bounds(BOUNDS, (-20, 60), intercept=True, row_clip=1.3),
        Scaling.from_data(X, Y),
    ],
)
def test_coefficients_in_both_units_predict_the_same(scaling: Scaling) -> None:
    theta = RNG.normal(size=scaling.d)
    slopes, intercept = scaling.original(theta)
    scaled = scaling.rows(X, clip=False) @ theta * scaling.y_width + scaling.y_center
    np.testing.assert_allclose(X @ slopes + intercept, scaled, rtol=1e-10)
    check_bounds(scaling.rows(X, clip=True), scaling.targets(Y, clip=True), 1.0)


def test_the_slope_by_hand() -> None:
    scaling = Scaling.from_bounds(BOUNDS, (-20, 60), intercept=True)
    slopes, _ = scaling.original(np.array([0.3, 0.0, 0.0, 0.0]))
    assert slopes[0] == pytest.approx(0.3 * 80 / (8 * np.sqrt(4)))


def test_values_outside_their_bounds_are_clipped_and_counted() -> None:
    scaling = Scaling.from_bounds(np.array([[0.0, 1.0]]), (0, 1), intercept=True)
    x, y = np.array([[-5.0], [0.5], [1.0], [9.0]]), np.array([0.5, 2.0, 0.0, 1.0])
    np.testing.assert_allclose(scaling.rows(x, clip=True)[:, 0], np.array([-1, 0, 1, 1]) / np.sqrt(2))
    np.testing.assert_allclose(scaling.targets(y, clip=True), [0, 1, -1, 1])
    np.testing.assert_allclose(scaling.targets(y, clip=False), [0, 3, -1, 1])
    assert scaling.outside(x, y) == (0.5, 0.25)


def test_clipped_rows_have_norm_one() -> None:
    scaling = Scaling.from_bounds(BOUNDS, (-20, 60), intercept=True, row_clip=1.2)
    norms = np.linalg.norm(scaling.rows(X, clip=True), axis=1)
    assert norms.max() == pytest.approx(1.0)
    assert scaling.shortened(X) == pytest.approx((norms > 1 - 1e-12).mean())


def test_the_paper_s_scaling() -> None:
    scaling = Scaling.from_data(X, Y)
    rows = scaling.rows(X, clip=True)
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(rows.std(0), rows.std(0)[0])
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(1)
    assert np.abs(scaling.targets(Y, clip=True)).max() == pytest.approx(1)


def test_the_embedded_tables() -> None:
    boston, diabetes, diamonds = (sample.table(name) for name in ("boston", "diabetes", "diamonds"))
    assert boston.x.shape == (506, 13)
    assert boston.x[0].tolist() == [0.00632, 18.0, 2.31, 0, 0.538, 6.575, 65.2, 4.09, 1, 296, 15.3, 396.9, 4.98]
    assert (boston.target, boston.y[0], boston.y.mean()) == ("medv", 24.0, pytest.approx(22.532806))
    assert diabetes.x.shape == (442, 10)
    assert diamonds.x.shape == (53_920, 23)
    first = dict(zip(diamonds.features, diamonds.x[0], strict=True))
    assert (first["carat"], first["depth"], first["x"], first["y"], first["z"]) == (0.23, 61.5, 3.95, 3.98, 2.43)
    assert first["cut Ideal"] == first["color E"] == first["clarity SI2"] == 1
    assert np.exp(diamonds.y[0]) == pytest.approx(326)
    assert np.exp(diamonds.y).mean() == pytest.approx(3930.99, abs=0.01)
    assert diamonds.x[:, 0].mean() == pytest.approx(0.797698, abs=1e-6)


def test_made_rows_have_norm_one_and_small_targets() -> None:
    rows, y = sample.directions(500, 7, 3)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    assert 0.8 < np.abs(y).max() <= 1


def test_rows_on_a_device_are_the_same_regression() -> None:
    made = regression(n=300, d=4)
    data = DeviceRegression(torch.from_numpy(made.X).float(), torch.from_numpy(made.y))
    np.testing.assert_allclose(data.moments.gram, made.moments.gram, rtol=1e-5)
    assert data.least == pytest.approx(made.least, rel=1e-4)
    theta = np.random.default_rng(0).normal(size=(6, 4))
    np.testing.assert_allclose(data.gradient(theta, 0.2), made.gradient(theta, 0.2), rtol=1e-4, atol=1e-5)
    draws = 2_000
    found = data.sketched_hessian(10, np.full(draws, 0.5), Noise.seeded(range(draws)))
    error = found.std(0, ddof=1) / np.sqrt(draws)
    assert (np.abs(found.mean(0) - made.moments.gram - 0.5 * np.eye(4)) < 4 * error).all()


def test_large_made_rows_meet_their_bounds_and_are_fitted() -> None:
    data = directions(20_000, 5, 0, "cpu")
    check_bounds(data.X.double().numpy(), data.y.numpy(), 1.0)
    theta = mixing.release(data, plan(10.0, 1e-9, 5, iterations=3), Noise.seeded([0, 1]))
    least = data.moments.mse(data.moments.least_squares)
    assert (data.moments.mse(theta) < least + 0.01).all()
    assert not np.array_equal(theta[0], theta[1])
