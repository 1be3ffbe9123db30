"""Whatever a diffusion model's network predicts becomes the score of the noised law.

The noised law p_t is that of a x0 + b eps, with x0 a data point and eps standard normal. Variance exploding: a = 1,
b = sigma. Variance preserving: a = sqrt(1 - b^2). A noise level is named by b, which is called sigma throughout.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kfp_methods.components.science.score_choices import EMPIRICAL_SIGMAS, Prediction, Process


@dataclass(frozen=True)
class Level:
    """One noise level: p_t is the law of a x0 + b eps; `time` is what the network's own clock calls it."""

    a: float
    b: float
    time: float


def level_of(process: Process, sigma: float) -> Level:
    """The level with b = sigma of a process whose clock is sigma itself.

    Raises:
        ValueError: sigma is not positive, or not below 1 where variance is preserved.
    """
    if not sigma > 0 or (process == "vp" and not sigma < 1):
        raise ValueError(f"sigma={sigma:g} is no noise level of a {process.upper()} process")
    return Level(1.0 if process == "ve" else math.sqrt(1 - sigma**2), sigma, sigma)


def denoised_of(output: Tensor, y: Tensor, level: Level, prediction: Prediction) -> Tensor:
    """The expected clean point E[x0 | y] that a network's output [B, D] at noised points y [B, D] implies.

    epsilon: y = a x0 + b eps; v = a eps - b x0 (Salimans & Ho 2022); score: Tweedie's formula.
    """
    a, b = level.a, level.b
    if prediction == "denoised":
        return output
    if prediction == "epsilon":
        return (y - b * output) / a
    if prediction == "v":
        return (a * y - b * output) / (a * a + b * b)
    return (y + b * b * output) / a


def score_of(output: Tensor, y: Tensor, level: Level, prediction: Prediction) -> Tensor:
    """The score of p_t at y [B, D] that a network's output [B, D] implies: (a E[x0 | y] - y) / b^2."""
    if prediction == "score":
        return output
    if prediction == "epsilon":
        return -output / level.b
    return (level.a * denoised_of(output, y, level, prediction) - y) / level.b**2


class ScoreModel(ABC):
    """A model of the score of noised data, in coordinates of its own.

    Attributes:
        prediction: what `output` stands for.
        n_features: length D of a point; None when any will do.
        sigma_range: smallest and largest noise level that it knows.
        scale: length, in the user's units, of one unit of the model's coordinates.
        largest: largest |coordinate| that it was trained on; None when unknown.
    """

    prediction: Prediction
    n_features: int | None
    sigma_range: tuple[float, float]
    scale: float = 1.0
    largest: float | None = None

    @abstractmethod
    def level(self, sigma: float) -> Level:
        """The model's level nearest to b = sigma. Raises ValueError outside `sigma_range`."""

    @abstractmethod
    def output(self, y: Tensor, level: Level) -> Tensor:
        """The prediction at noised points y [B, D], in the model's coordinates; each row by itself."""

    def learned(self, y: Tensor, level: Level) -> Tensor:
        """The part of the output that was learned; one that ignores y is no model of anything."""
        return self.output(y, level)

    def score(self, y: Tensor, level: Level) -> Tensor:
        """The score of p_t at y [B, D]."""
        return score_of(self.output(y, level), y, level, self.prediction)

    def coordinates(self, x: Tensor) -> Tensor:
        """Points [N, D] in the user's units, in the model's coordinates."""
        return x

    def _check(self, sigma: float) -> None:
        low, high = self.sigma_range
        # A bound that went through a file or a formula may come back an ulp off.
        if not low * (1 - 1e-6) <= sigma <= high * (1 + 1e-6):
            raise ValueError(f"sigma={sigma:g} is outside the model's noise levels, {low:.4g} to {high:.4g}")


class CallableScore(ScoreModel):
    """Any differentiable function (y [B, D], sigma) -> [B, D] whose rows do not depend on each other."""

    def __init__(
        self,
        function: Callable[[Tensor, float], Tensor],
        *,
        prediction: Prediction = "score",
        process: Process = "ve",
        sigma_range: tuple[float, float] = (1e-6, 1e6),
        n_features: int | None = None,
    ) -> None:
        self._function, self._process = function, process
        self.prediction, self.n_features = prediction, n_features
        self.sigma_range = sigma_range if process == "ve" else (sigma_range[0], min(sigma_range[1], 1 - 1e-12))

    def level(self, sigma: float) -> Level:
        self._check(sigma)
        return level_of(self._process, sigma)

    def output(self, y: Tensor, level: Level) -> Tensor:
        return self._function(y, level.time)


class EmpiricalScore(ScoreModel):
    """The exact score of a data set smoothed by Gaussian noise: a model that memorised everything, without training.

    With weights w_i proportional to exp(-|y - x_i|^2 / 2 sigma^2): E[x0 | y] = sum_i w_i x_i.

    Args:
        points: the data [N, D], standardised.
        center: what was subtracted from the user's points [D]; None for nothing.
        scale: by which they were divided then.
    """

    prediction = "denoised"

    def __init__(self, points: Tensor, center: Tensor | None = None, scale: float = 1.0) -> None:
        self.points, self.scale = points, scale
        self.center = torch.zeros_like(points[0]) if center is None else center
        self.n_features, self.sigma_range = points.shape[1], EMPIRICAL_SIGMAS
        self.largest = float(points.abs().max())

    def level(self, sigma: float) -> Level:
        self._check(sigma)
        return level_of("ve", sigma)

    def output(self, y: Tensor, level: Level) -> Tensor:
        points = self.points.to(y)
        # |y - x|^2 without the term |y|^2, which all weights share.
        logits = (y @ points.T - points.square().sum(1) / 2) / level.b**2
        return logits.softmax(1) @ points

    def learned(self, y: Tensor, level: Level) -> Tensor:
        """The score: where the output ignores y, a point is memorised and nothing is wrong."""
        return self.score(y, level)

    def coordinates(self, x: Tensor) -> Tensor:
        return (x - self.center.to(x)) / self.scale


@dataclass(frozen=True)
class Standardisation:
    """A mean for each feature and one scale for all: ranks, angles and manifolds' dimensions stay what they are."""

    center: Tensor
    scale: float

    @classmethod
    def of(cls, x: Tensor) -> Standardisation:
        """Of points [N, D]: feature means, and the root mean square of the centred entries.

        Raises:
            ValueError: all points are equal.
        """
        center = x.double().mean(0)
        scale = float((x.double() - center).square().mean().sqrt())
        if not scale > 1e-12 * max(1.0, float(center.abs().max())):
            raise ValueError("all points are equal: they have no scale")
        return cls(center.float(), scale)

    def __call__(self, x: Tensor) -> Tensor:
        """Standardised points [N, D]."""
        return (x - self.center.to(x)) / self.scale
