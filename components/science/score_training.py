"""A score model is learned by denoising: the network sees noised points and gives back the clean ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kfp_methods.checkpoints import Resumable, uninterrupted
from kfp_methods.components.science.score_choices import TRAINED_SIGMAS
from kfp_methods.components.science.score_networks import Architecture, Preconditioned, build
from kfp_methods.errors import InputError, Problem

_LOSS_EVERY = 20  # a step of a small network is shorter than reading its loss from a GPU


@dataclass(frozen=True)
class Recipe:
    """How a score model is trained.

    Attributes:
        steps: of Adam; its rate falls to 0 along a cosine.
        batch_size: points in a step.
        learning_rate: initial.
        sigma_min: smallest noise level, in standard deviations of the data.
        sigma_max: largest; levels are log-uniform between the two.
    """

    steps: int = 1200
    batch_size: int = 128
    learning_rate: float = 1e-3
    sigma_min: float = TRAINED_SIGMAS[0]
    sigma_max: float = TRAINED_SIGMAS[1]


@dataclass(frozen=True)
class Trained:
    """A trained network and its loss, averaged over every 20 steps."""

    net: Preconditioned
    losses: tuple[float, ...]


def train(
    x: Tensor,
    architecture: Architecture,
    recipe: Recipe,
    *,
    seed: int,
    label: str = "training the score model",
    resumable: Resumable = uninterrupted,
) -> Trained:
    """A denoiser of points x [N, D] of standard deviation 1, in evaluation mode, on the device of x.

    Minimises the mean over features of (sigma^2+1)/sigma^2 |D(x + sigma eps, sigma) - x|^2 (EDM's weight).

    Args:
        seed: of initial weights, batches and noise, each from its own generator.
        label: of the progress bar and of the checkpoint.
        resumable: the loop over steps.

    Raises:
        InputError: the loss left the finite numbers.
    """
    seeds = np.random.SeedSequence(seed).generate_state(2)
    net = Preconditioned(build(architecture, int(seeds[0]))).to(x.device).train()
    adam = torch.optim.Adam(net.parameters(), lr=recipe.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, recipe.steps)
    generator = torch.Generator(x.device).manual_seed(int(seeds[1]))
    losses: list[float] = []
    window = {"loss": torch.zeros((), device=x.device)}
    states = {"net": net, "adam": adam, "schedule": schedule, "generator": generator}
    for step in resumable(range(recipe.steps), label, **states, losses=losses, window=window):
        adam.zero_grad()
        loss = _loss(net, x, recipe, generator)
        loss.backward()
        adam.step()
        schedule.step()
        window["loss"] = window["loss"] + loss.detach()
        if (step + 1) % _LOSS_EVERY == 0 or step + 1 == recipe.steps:
            losses.append(float(window["loss"]) / (step % _LOSS_EVERY + 1))
            window["loss"] = torch.zeros((), device=x.device)
            _check_finite(losses[-1], recipe)
    return Trained(net.eval(), tuple(losses))


def _loss(net: nn.Module, x: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    options: dict[str, Any] = {"generator": generator, "device": x.device}
    clean = x[torch.randint(len(x), (recipe.batch_size,), **options)]
    low, high = np.log(recipe.sigma_min), np.log(recipe.sigma_max)
    sigma = (low + (high - low) * torch.rand(recipe.batch_size, 1, **options)).exp()
    noised = clean + sigma * torch.randn(clean.shape, **options)
    weight = (sigma.square() + 1) / sigma.square()
    return (weight * (net(noised, sigma) - clean).square()).mean()


def _check_finite(loss: float, recipe: Recipe) -> None:
    if not np.isfinite(loss):
        problem = "the training loss is not finite"
        raise InputError(Problem("learning_rate", recipe.learning_rate, problem, "Give a smaller one"))
