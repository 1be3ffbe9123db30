"""The strongest attack on a release by iterative Hessian mixing: the likelihood ratio of all that it makes public.

Given what came before, each part of a release has a known law on either of two data sets: the eigenvalue and the
gradients are Gaussian, a sketched Hessian is Wishart with the scale (X'X + level I) / k. So their exact ratio can be
computed, and no test distinguishes better (Neyman and Pearson).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing import mixing
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan
from kfp_methods.components.tabular.iterative_hessian_mixing.mixing import Step
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Data, Floats, Regression
from kfp_methods.components.tabular.privacy_audit import Audit, audit

_SINGULAR = 1e-12


def attack(plan: Plan, worlds: tuple[Data, Data], trials: int, seed: int, *, level: float = 0.95) -> Audit:
    """A lower bound on the epsilon of releases planned so, from `trials` on each of two neighbouring data sets."""
    scores = [
        log_ratio(mixing.steps(world, plan, Noise.joint(trials, seed, number)), plan, worlds)
        for number, world in enumerate(worlds)
    ]
    return audit(scores[0], scores[1], delta=plan.delta, level=level)


def neighbours(least: float, d: int, clip: float = 1.0) -> tuple[Regression, Regression]:
    """Two data sets, the second without one row: that along X'X's weakest direction, with the largest target.

    least: weight of this direction in X'X with the row, 1 or more; every other direction weighs four times as much.
    """
    weights = np.r_[least - 1, np.full(d - 1, 4 * least)]
    counts = np.ceil(weights).astype(int)
    lengths = np.sqrt(weights / np.maximum(counts, 1))
    others = np.repeat(lengths[:, None] * np.eye(d), counts, axis=0)
    person = np.eye(d)[0]
    X, y = np.vstack([others, person]), np.r_[np.zeros(len(others)), clip]
    return Regression(X, y, clip=clip), Regression(np.vstack([others, 0 * person]), 0 * y, clip=clip)


def log_ratio(steps: Iterable[Step], plan: Plan, worlds: tuple[Data, Data]) -> Floats:
    """ln p(release | first world) - ln p(release | second) of each of B releases [B]."""
    first, second = worlds
    total: Floats | None = None
    for step in steps:
        if total is None:
            total = _floor(step.floor, plan, first.least) - _floor(step.floor, plan, second.least)
        for sign, world in ((1, first), (-1, second)):
            total = total + sign * (_hessian(step, plan, world) + _gradient(step, plan, world))
    assert total is not None  # noqa: S101 (T is 1 or more)
    return total


def _floor(floor: Floats, plan: Plan, least: float) -> Floats:
    """ln of the law of max(0, least - eta (tau - Z)): a density above 0 and a mass at 0."""
    from scipy.special import log_ndtr

    center, eta = least - plan.sketch.eta * plan.sketch.tau, plan.sketch.eta
    return np.where(floor > 0, -0.5 * ((floor - center) / eta) ** 2, log_ndtr(-center / eta))


def _hessian(step: Step, plan: Plan, world: Data) -> Floats:
    """ln of the Wishart density, but for what both worlds share."""
    # The last term keeps a law without density, of singular X'X and no noise, far below or above the others.
    scale = world.moments.gram + (step.level[:, None, None] + _SINGULAR) * np.eye(world.d)
    _, logdet = np.linalg.slogdet(scale)
    trace = np.trace(np.linalg.solve(scale, step.hessian), axis1=1, axis2=2)
    return -0.5 * plan.sketch.rows * (logdet + trace)


def _gradient(step: Step, plan: Plan, world: Data) -> Floats:
    gap = step.gradient - world.gradient(step.before, plan.clip)
    return -0.5 * np.einsum("bi,bi->b", gap, gap) / plan.sigma**2
