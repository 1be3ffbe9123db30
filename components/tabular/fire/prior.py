"""The prior of the network: random tables with one target, in the shapes that FIRE shows it.

A batch has one shape: the same number of inputs, of context rows, and the same appended columns. Half of the batches
are shaped as FIRE's second stage: two related functions g and f, a prediction of g with its error bar appended, and
the residual of f to be predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kfp_methods.components.tabular.fire.functions import (
    Source,
    gaussian_processes,
    random_network,
    sparse_polynomial,
    standardised,
    trees,
)

QUERIES, LARGEST_CONTEXT = 32, 128
NORMAL_QUANTILES = {levels: torch.special.ndtri(torch.tensor(levels, dtype=torch.float64)).float()
                    for levels in (tuple(i / 10 for i in range(1, 10)), (0.1, 0.9))}  # fmt: skip
_NINE, _TWO = NORMAL_QUANTILES
Shaping = Literal["plain", "nine", "two", "mean", "switch"]
_TRIES = 10


@dataclass(frozen=True)
class Tasks:
    """x [batch, n + QUERIES, F] and y [batch, n + QUERIES]; the first n rows are the context."""

    x: Tensor
    y: Tensor
    n: int


def tasks(source: Source, batch: int) -> Tasks:
    """A batch of one shape; a task whose context says nothing (spread below a tenth of all rows') is replaced."""
    n_inputs = source.integer(1, 10)
    n = round(math.exp(source.number(math.log(4), math.log(LARGEST_CONTEXT))))
    shaping = _shaping(source)
    x, y = _draw(source, batch, n, n_inputs, shaping)
    for _ in range(_TRIES):
        dull = _dull(y, n)
        if not bool(dull.any()):
            break
        x[dull], y[dull] = _draw(source, int(dull.sum()), n, n_inputs, shaping)
    kept = ~_dull(y, n)
    return Tasks(x[kept], y[kept], n)


def _dull(y: Tensor, n: int) -> Tensor:
    return y[:, :n].std(1, correction=0) < 0.1 * y.std(1, correction=0).clamp_min(1e-9)


def _shaping(source: Source) -> Shaping:
    u = source.number(0, 1)
    if u < 0.5:
        return "nine" if u < 0.25 else "two" if u < 0.375 else "mean"
    return "switch" if u < 0.55 else "plain"


def _draw(source: Source, batch: int, n: int, n_inputs: int, shaping: Shaping) -> tuple[Tensor, Tensor]:
    x = _inputs(source, batch, n + QUERIES, n_inputs)
    g = _functions(x, source)
    unit_noise = _noise(x, source)
    if shaping == "plain":
        return x, g + unit_noise
    f = _related(x, g, source)
    noise = f.std(1, correction=0, keepdim=True) * unit_noise
    if shaping == "switch":
        level = (source.uniform(0, 1, *g.shape) < source.uniform(0.1, 0.9, batch, 1)).float()
        level[:, n:] = 1  # the questions are about the higher fidelity
        return torch.cat([x, level[..., None]], -1), torch.where(level > 0, f, g) + noise
    sd = torch.exp(0.5 * gaussian_processes(x, source)) * 10 ** source.uniform(-2, -0.3, batch, 1)
    mean = g + sd * gaussian_processes(x, source)
    appended = [x, mean[..., None]]
    if shaping != "mean":
        z = NORMAL_QUANTILES[_NINE if shaping == "nine" else _TWO].to(x)
        appended += [(sd**2)[..., None], mean[..., None] + sd[..., None] * z]
    return torch.cat(appended, -1), f + noise - mean


def _inputs(source: Source, batch: int, rows: int, n_inputs: int) -> Tensor:
    """Uniform on the unit cube (0.7), or correlated normal and scaled to it."""
    x = source.uniform(0, 1, batch, rows, n_inputs)
    z = source.normal(batch, rows, n_inputs) @ source.normal(batch, n_inputs, n_inputs)
    low, high = z.amin(1, keepdim=True), z.amax(1, keepdim=True)
    return torch.where(source.uniform(0, 1, batch, 1, 1) < 0.7, x, (z - low) / (high - low).clamp_min(1e-9))


def _functions(x: Tensor, source: Source) -> Tensor:
    """One standardised function for each task: GP 0.4, network 0.3, polynomial 0.15, trees 0.15."""
    kinds = torch.bucketize(source.uniform(0, 1, len(x)).cpu(), torch.tensor([0.4, 0.7, 0.85])).tolist()
    f = torch.zeros(x.shape[:2], device=x.device)
    smooth = [i for i, kind in enumerate(kinds) if kind == 0]
    if smooth:
        f[smooth] = gaussian_processes(x[smooth], source)
    for i, kind in enumerate(kinds):
        if kind:
            f[i] = (random_network, sparse_polynomial, trees)[kind - 1](x[i], source)
    return standardised(f)


def _noise(x: Tensor, source: Source) -> Tensor:
    """For a function of unit spread: its sd is 10^U(-3, -0.5), for a fifth of the tasks varying smoothly with x."""
    batch = len(x)
    sd = 10 ** source.uniform(-3, -0.5, batch, 1).expand(x.shape[:2])
    varies = source.uniform(0, 1, batch, 1) < 0.2
    smooth = torch.exp(0.5 * gaussian_processes(x, source))
    return torch.where(varies, sd * smooth, sd) * source.normal(*x.shape[:2])


def _related(x: Tensor, g: Tensor, source: Source) -> Tensor:
    """The higher fidelity: rho g + s delta, rho ~ N(1, 0.5^2), s = 10^U(-1.3, 0)."""
    rho = 1 + 0.5 * source.normal(len(x), 1)
    return rho * g + 10 ** source.uniform(-1.3, 0, len(x), 1) * _functions(x, source)
