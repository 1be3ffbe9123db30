"""Iterative Hessian mixing: Newton steps for least squares with privately sketched Hessians and noisy gradients.

Lev, Shenfeld, Srinivasan, Ligett and Wilson, "Near-optimal private linear regression via iterative Hessian mixing",
arXiv 2601.07545. Neighbouring data sets differ by one row that is there or is replaced by zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan, SketchPlan
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Data, Floats


@dataclass(frozen=True)
class Step:
    """One of T steps of B releases: all that they make public in it, and where it leads.

    Attributes:
        floor: private underestimate of the least eigenvalue of X'X [B], the same in every step.
        level: noise that this leaves to add to X'X [B].
        before: parameters before the step [B, d].
        hessian: A'A / k [B, d, d].
        gradient: noisy [B, d].
        theta: parameters after the step [B, d].
    """

    floor: Floats
    level: Floats
    before: Floats
    hessian: Floats
    gradient: Floats
    theta: Floats


def steps(data: Data, plan: Plan, noise: Noise) -> Iterator[Step]:
    """The T steps of B private releases; the noise has B sources."""
    floor = private_floor(data.least, plan.sketch, noise)
    level = np.maximum(0.0, plan.sketch.gamma - floor)
    theta = np.zeros((len(noise), data.d))
    for _ in range(plan.iterations):
        hessian = data.sketched_hessian(plan.sketch.rows, level, noise)
        gradient = data.gradient(theta, plan.clip) + plan.sigma * noise.normal(data.d)
        after = theta + solve(hessian, gradient)
        yield Step(floor, level, theta, hessian, gradient, after)
        theta = after


def release(data: Data, plan: Plan, noise: Noise) -> Floats:
    """The parameters theta_T of B private releases [B, d]."""
    *_, last = steps(data, plan, noise)
    return last.theta


def private_floor(least: float, plan: SketchPlan, noise: Noise) -> Floats:
    """max(0, least - eta (tau - Z)) [B]: too large with a probability below a share of delta only."""
    return np.maximum(0.0, least - plan.eta * (plan.tau - noise.normal()))


def solve(hessian: Floats, gradient: Floats) -> Floats:
    """H^-1 G [B, d]; the solution of least norm where some H is singular."""
    try:
        return np.asarray(np.linalg.solve(hessian, gradient[..., None])[..., 0], np.float64)
    except np.linalg.LinAlgError:
        return (np.linalg.pinv(hessian) @ gradient[..., None])[..., 0]
