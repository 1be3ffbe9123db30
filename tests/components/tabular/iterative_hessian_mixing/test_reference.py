"""Errors on the real tables against those of an independent implementation, and of its sweep over T."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kfp_methods.components.tabular.iterative_hessian_mixing import baselines, mixing, sample
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import linear_mixing_plan, plan
from kfp_methods.components.tabular.iterative_hessian_mixing.component import IterativeHessianMixingInputs
from kfp_methods.components.tabular.iterative_hessian_mixing.dimensions import dimensions
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Regression
from kfp_methods.components.tabular.iterative_hessian_mixing.running import settings_of
from tests.components.tabular.iterative_hessian_mixing.conftest import paper_scaled

# Mean training errors and half widths of their 95% intervals: least squares, null, then each mechanism.
_TABLE: list[tuple[str, float, int, float, float, dict[str, tuple[float, float]]]] = [
    ("boston", 0.2, 1_000, 0.0313, 0.1173, {"ihm": (0.0806, 0.0011), "ada": (0.1, 0.0007), "lin": (0.0966, 0.0028)}),
    ("diabetes", 0.6, 1_000, 0.0746, 0.1645, {"ihm": (0.0952, 7e-4), "ada": (0.1202, 7e-4), "lin": (0.1215, 0.0031)}),
    ("diamonds", 0.2, 100, 0.0046, 0.2439, {"ihm": (0.0393, 0.001), "ada": (0.1373, 0.0015), "lin": (0.0821, 0.0069)}),
]
_DESCENT = {"boston": 0.1128, "diabetes": 0.1569, "diamonds": 0.2431}


@pytest.mark.parametrize(("name", "power", "n_seeds", "ols", "null", "expected"), _TABLE)
def test_errors_of_the_reference(
    name: Any, power: float, n_seeds: int, ols: float, null: float, expected: dict[str, tuple[float, float]]
) -> None:
    data, epsilon = paper_scaled(name), 10**power
    moments, delta, d = data.moments, 1 / len(data.y) ** 2, data.d
    assert moments.mse(moments.least_squares) == pytest.approx(ols, abs=6e-5)
    assert moments.square / moments.n == pytest.approx(null, abs=6e-5)
    thetas = {
        "ihm": mixing.release(
            data, plan(epsilon, delta, d, iterations=3, strict=False), Noise.seeded(range(n_seeds), 1)
        ),
        "ada": baselines.adassp(data, epsilon, delta, Noise.seeded(range(n_seeds), 2)),
        "lin": baselines.linear_mixing(
            data, linear_mixing_plan(epsilon, delta, d, strict=False), Noise.seeded(range(n_seeds), 3)
        ),
    }
    for key, theta in thetas.items():
        found = moments.mse(theta)
        value, half = expected[key]
        ours = 1.96 * found.std(ddof=1) / np.sqrt(n_seeds)
        assert found.mean() == pytest.approx(value, abs=1.5 * np.hypot(half, ours)), key
    descent = moments.mse(baselines.gradient_descent(data, epsilon, delta, 3, Noise.seeded(range(30), 4)))
    assert descent.mean() == pytest.approx(_DESCENT[name], abs=3e-4)


@pytest.mark.parametrize(
    ("T", "expected"),
    [(1, (0.0712, 0.0499, 0.0329)), (2, (0.0648, 0.0373, 0.0219)), (3, (0.0595, 0.0306, 0.0167)),
     (5, (0.0519, 0.0261, 0.0125)), (12, (0.047, 0.020, 0.0096))],
)  # fmt: skip
def test_more_steps_help_as_in_the_reference(T: int, expected: tuple[float, float, float]) -> None:
    data = paper_scaled("boston")
    least = data.moments.mse(data.moments.least_squares)
    for epsilon, value in zip((1.0, 4.0, 10.0), expected, strict=True):
        planned = plan(epsilon, 1 / 404**2, 13, iterations=T, strict=False)
        excess = data.moments.mse(mixing.release(data, planned, Noise.seeded(range(500)))) - least
        assert excess.mean() == pytest.approx(value, abs=0.002)


def test_adassp_wins_with_few_well_conditioned_columns_and_loses_with_many() -> None:
    """Ratios of the mean excess of the reference: 0.56 to 0.66 at 10 columns, 4.3 to 6.1 at 40."""
    for d, low, high in ((10, 0.5, 0.7), (40, 4.0, 6.5)):
        data = Regression(*sample.directions(20_000, d, 0))
        least, delta = data.moments.mse(data.moments.least_squares), 1 / 20_000**2
        ours = mixing.release(data, plan(1.0, delta, d, iterations=3, strict=False), Noise.seeded(range(200), 5))
        theirs = baselines.adassp(data, 1.0, delta, Noise.seeded(range(200), 6))
        excess = [float((data.moments.mse(theta) - least).mean()) for theta in (ours, theirs)]
        assert low < excess[1] / excess[0] < high


@pytest.mark.slow
def test_the_gap_grows_with_columns_seed_by_seed() -> None:
    inputs = IterativeHessianMixingInputs.parse({"n_noise_seeds": 6})
    few, more = dimensions(settings_of(inputs), columns=(10, 40))
    assert few.ratio < 1
    assert more.ratio > 2
    assert (more.log_ratio > few.log_ratio).all()


def test_the_textbook_s_adassp_keeps_more_of_the_eigenvalue() -> None:
    data = paper_scaled("diamonds")
    delta = 1 / len(data.y) ** 2
    official, wang = (
        data.moments.mse(baselines.adassp(data, 1.0, delta, Noise.seeded(range(30)), variant=variant)).mean()
        for variant in ("official", "wang")
    )
    assert wang <= official


def test_baselines_without_noise_are_least_squares() -> None:
    data = paper_scaled("diabetes")
    best = data.moments.least_squares
    np.testing.assert_allclose(baselines.adassp(data, 1e9, 0.05, Noise.seeded([0]))[0], best, atol=0.02)
    theta = np.zeros((1, data.d))
    for _ in range(3):
        theta = theta + 0.25 * data.gradient(theta, 1.0) / len(data.y)
    np.testing.assert_allclose(baselines.gradient_descent(data, 1e9, 0.05, 3, Noise.seeded([0])), theta, atol=1e-4)
