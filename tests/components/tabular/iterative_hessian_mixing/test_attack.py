"""The empirical audit: what the best attack proves is below the promise, and above it where noise is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, wishart

from kfp_methods.components.tabular.iterative_hessian_mixing import mixing
from kfp_methods.components.tabular.iterative_hessian_mixing.attack import attack, log_ratio, neighbours
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan, plan
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Data

TRIALS = 6_000
PROMISES = [(1.0, 1e-5), (4.0, 1e-5), (2.0, 1e-2)]


def planned(epsilon: float, delta: float) -> Plan:
    return plan(epsilon, delta, 2, iterations=3)


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
@pytest.mark.parametrize("least", [1.0, 20.0])
def test_the_attack_stays_below_the_promise(epsilon: float, delta: float, least: float) -> None:
    found = attack(planned(epsilon, delta), neighbours(least, 2), TRIALS, 0)
    assert found.epsilon <= epsilon


def test_the_attack_is_strong_enough_to_see_a_large_budget() -> None:
    assert attack(planned(8.0, 1e-5), neighbours(1.0, 2), TRIALS, 0).epsilon > 1


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_gradients_with_too_little_noise_are_caught(epsilon: float, delta: float) -> None:
    good = planned(epsilon, delta)
    assert attack(replace(good, sigma=good.sigma / 10), neighbours(1.0, 2), TRIALS, 0).epsilon > epsilon


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_sketches_with_too_little_noise_are_caught(epsilon: float, delta: float) -> None:
    good = planned(epsilon, delta)
    weak = replace(good, sketch=replace(good.sketch, gamma=1 + (good.sketch.gamma - 1) / 30))
    assert attack(weak, neighbours(1.0, 2), TRIALS, 0).epsilon > epsilon


def test_an_eigenvalue_without_noise_is_caught() -> None:
    good = planned(1.0, 1e-5)
    bare = replace(good, sketch=replace(good.sketch, eta=0.1, tau=0.0))
    assert attack(bare, neighbours(20.0, 2), TRIALS, 0).epsilon > 1


def test_the_ratio_is_that_of_the_densities() -> None:
    good, worlds = planned(2.0, 1e-3), neighbours(40.0, 2)
    good = replace(good, sketch=replace(good.sketch, tau=0.0))
    steps = list(mixing.steps(worlds[0], good, Noise.seeded([1, 2])))

    def density(world: Data, b: int) -> float:
        k, eta = good.sketch.rows, good.sketch.eta
        total = float(norm.logpdf(steps[0].floor[b], world.least, eta))
        for step in steps:
            scale = (world.moments.gram + step.level[b] * np.eye(2)) / k
            total += wishart.logpdf(step.hessian[b], df=k, scale=scale)
            mean = world.gradient(step.before[b : b + 1], 1.0)[0]
            total += norm.logpdf(step.gradient[b], mean, good.sigma).sum()
        return total

    assert (steps[0].floor > 0).all()
    expected = [density(worlds[0], b) - density(worlds[1], b) for b in range(2)]
    np.testing.assert_allclose(log_ratio(steps, good, worlds), expected, rtol=1e-8)


@pytest.mark.parametrize("least", [1.0, 3.5, 20.0])
def test_neighbours_differ_in_one_row(least: float) -> None:
    first, second = neighbours(least, 3)
    assert first.least == pytest.approx(least)
    assert second.least == pytest.approx(least - 1)
    assert (first.X != second.X).any(1).sum() == 1
    assert not second.X[(first.X != second.X).any(1)].any()
