"""Training a classifier by the reference recipe: SGD with Nesterov momentum and a cosine schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from kfp_methods.components.tabular.bmia.architectures import build
from kfp_methods.components.tabular.bmia.choices import Architecture
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.errors import InputError, Problem
from kfp_methods.networks import one_core

EVALUATION_ROWS = 1_000  # keeps a convolutional network's activations small


@dataclass(frozen=True)
class Recipe:
    """How a classifier is built and trained.

    Attributes:
        architecture: see `architectures.build`.
        hidden: widths of an MLP.
        epochs: passes over the data; the learning rate falls to 0 along a cosine, stepped once an epoch.
        learning_rate: initial.
        momentum: Nesterov's.
        weight_decay: coupled, as an L2 gradient of every parameter.
        batch_size: the last batch of an epoch may be smaller.
        mixed_precision: forward passes in bfloat16 while training (a large GPU).
    """

    architecture: Architecture = "mlp"
    hidden: tuple[int, ...] = (256, 256)
    epochs: int = 30
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128
    mixed_precision: bool = False


@one_core()
def train(
    records: Records,
    n_classes: int,
    recipe: Recipe,
    *,
    seed: int,
    device: str = "cpu",
    on_epoch: Callable[[int], None] | None = None,
) -> nn.Sequential:
    """A trained classifier in evaluation mode on `device`; no augmentation.

    Args:
        records: training data.
        n_classes: number of classes C.
        recipe: architecture and optimiser.
        seed: of initial weights and batch order, each from its own generator.
        device: where to train.
        on_epoch: called after each epoch with its number, from 1.

    Raises:
        InputError: the loss left the finite numbers, or the architecture does not fit the records.
    """
    model = build(
        recipe.architecture, records.x.shape[1:], n_classes, seed=derived_seed(seed, 0), hidden=recipe.hidden
    ).to(device)
    x, y = records.x.to(device), records.y.to(device)
    order = torch.Generator().manual_seed(derived_seed(seed, 1))
    optimiser = torch.optim.SGD(
        model.parameters(),
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.momentum > 0,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.epochs)
    loss = torch.zeros(())
    for epoch in range(recipe.epochs):
        for batch in torch.randperm(len(records), generator=order).to(device).split(recipe.batch_size):
            optimiser.zero_grad()
            with torch.autocast(x.device.type, torch.bfloat16, enabled=recipe.mixed_precision):
                loss = nn.functional.cross_entropy(model(x.index_select(0, batch)), y[batch])
            loss.backward()
            optimiser.step()
        schedule.step()
        if on_epoch:
            on_epoch(epoch + 1)
    if not loss.isfinite():
        problem = "the training loss is not finite"
        raise InputError(Problem("lr", recipe.learning_rate, problem, "Standardise x or give a smaller lr"))
    return model.eval()


@torch.no_grad()
def outputs(model: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    """Penultimate features [n, d] and logits [n, C] of inputs [n, ...], on the model's device.

    Raises:
        ValueError: the model is in training mode, where batch normalisation would mix the records.
    """
    if model.training:
        raise ValueError("the model is in training mode: call model.eval() before it is audited")
    device = next(model.parameters()).device
    features = torch.cat([model[:-1](block.to(device)) for block in x.split(EVALUATION_ROWS)])
    return features, model[-1](features)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of records [n, C] whose largest logit is the label's [n]."""
    return float((logits.argmax(-1).cpu() == labels).double().mean())


def derived_seed(*path: int) -> int:
    """A seed for one purpose, well separated for every path such as (run's seed, reference's number)."""
    return int(np.random.SeedSequence(path).generate_state(1)[0])
