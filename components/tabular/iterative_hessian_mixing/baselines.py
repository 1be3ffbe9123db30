"""What the paper compares with: AdaSSP, linear mixing and private gradient descent, for a stack of releases."""

from __future__ import annotations

import math

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import FAILURE_SHARE, SketchPlan
from kfp_methods.components.tabular.iterative_hessian_mixing.choices import AdaSSPVariant
from kfp_methods.components.tabular.iterative_hessian_mixing.mixing import private_floor, solve
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Data, Floats, sketch
from kfp_methods.components.tabular.privacy import gaussian_sd

LEARNING_RATE = 0.25


def adassp(
    data: Data, epsilon: float, delta: float, noise: Noise, *, clip: float = 1.0, variant: AdaSSPVariant = "official"
) -> Floats:
    """Adaptive sufficient statistics perturbation (Wang, arXiv 1803.02596): a third of the budget each for the least
    eigenvalue, X'X and X'y; a ridge that grows as the eigenvalue falls [B, d].

    variant: how far the eigenvalue is lowered, by s^2 as in the paper's code or by s sqrt(ln(6 / delta)) as Wang does;
    s is the standard deviation of its noise.
    """
    d, moments = data.d, data.moments
    s1, s2 = (gaussian_sd(epsilon / 3, delta / 3, sensitivity) for sensitivity in (1.0, clip))
    lowered = s1**2 if variant == "official" else s1 * math.sqrt(math.log(6 / delta))
    least = np.maximum(0.0, data.least + s1 * noise.normal() - lowered)
    spread = math.sqrt(d * math.log(2 * d * d / (FAILURE_SHARE * delta))) * s1
    ridge = np.maximum(0.0, spread - least)
    upper = np.triu(noise.normal(d, d))
    symmetric = upper + np.triu(upper, 1).transpose(0, 2, 1)
    gram = moments.gram + s1 * symmetric + ridge[:, None, None] * np.eye(d)
    return solve(gram, moments.cross + s2 * noise.normal(d))


def linear_mixing(data: Data, plan: SketchPlan, noise: Noise) -> Floats:
    """Least squares on one private sketch of [X y] (Lev et al., 2025) [B, d]."""
    d, moments = data.d, data.moments
    joint = np.block([[moments.gram, moments.cross[:, None]], [moments.cross[None], np.array([[moments.square]])]])
    least = max(0.0, float(np.linalg.eigvalsh(joint)[0]))
    level = np.maximum(0.0, plan.gamma - private_floor(least, plan, noise))
    A = sketch(joint, plan.rows, level, noise)
    normal = A.transpose(0, 2, 1) @ A
    return solve(normal[:, :d, :d], normal[:, :d, d])


def gradient_descent(
    data: Data, epsilon: float, delta: float, iterations: int, noise: Noise, *, clip: float = 1.0
) -> Floats:
    """Gradient descent with clipped residuals and noisy mean gradients, its budget counted in zCDP [B, d]."""
    log = math.log(1 / delta)
    rho = (math.sqrt(epsilon + log) - math.sqrt(log)) ** 2
    sd = math.sqrt(2 * iterations * clip**2 / rho)
    theta = np.zeros((len(noise), data.d))
    for _ in range(iterations):
        noisy = data.gradient(theta, clip) + sd * noise.normal(data.d)
        theta = theta + LEARNING_RATE * noisy / data.moments.n
    return theta
