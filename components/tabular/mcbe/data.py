"""Rows with inputs, concepts and targets, split in three, and how they are standardised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Data:
    """n rows.

    Attributes:
        x: vectors [n, D] or images [n, C, H, W].
        c: concepts in their own units [n, K]; binary [K]: which are 0 or 1.
        y: targets [n, O] of a regression, classes [n] of a classification.
        part: 0 train, 1 validation, 2 test [n].
        classes: their names; empty for a regression.
        standardised: whether inputs are divided by their standard deviations.
        group: what should decide which expert is taken, where that is known [n].
    """

    x: NDArray[np.float32]
    c: Floats
    y: Any
    part: Ints
    c_names: tuple[str, ...]
    y_names: tuple[str, ...]
    binary: tuple[bool, ...]
    classes: tuple[str, ...] = ()
    group: Ints | None = None
    groups: tuple[str, ...] = ()
    standardised: bool = True

    @property
    def task(self) -> Literal["regression", "classification"]:
        """By its targets."""
        return "classification" if self.classes else "regression"

    @property
    def outputs(self) -> int:
        """O: targets, or classes (one logit for two)."""
        return len(self.y_names) if not self.classes else 1 if len(self.classes) == 2 else len(self.classes)

    def rows(self, part: int) -> Ints:
        """Of a part."""
        return np.flatnonzero(self.part == part)

    @cached_property
    def scale(self) -> Scale:
        """From the training rows."""
        train = self.rows(0)
        c_mean, c_sd = self.c[train].mean(0), self.c[train].std(0)
        keep = np.array(self.binary) | (c_sd == 0)
        c_mean, c_sd = np.where(np.array(self.binary), 0.0, c_mean), np.where(keep, 1.0, c_sd)
        if self.classes:
            y_mean, y_sd = np.zeros(self.outputs), np.ones(self.outputs)
        else:
            y_mean, y_sd = self.y[train].mean(0), self.y[train].std(0)
        axis = (0, *range(2, self.x.ndim)) if self.x.ndim > 2 else 0
        x_mean, x_sd = self.x[train].mean(axis, keepdims=True), self.x[train].std(axis, keepdims=True)
        if not self.standardised:
            x_mean, x_sd = np.zeros_like(x_mean), np.ones_like(x_sd)
        return Scale(c_mean, c_sd, y_mean, np.where(y_sd > 0, y_sd, 1.0), x_mean, np.where(x_sd > 0, x_sd, 1.0))


@dataclass(frozen=True)
class Scale:
    """Means and standard deviations: of concepts [K] (0 and 1 for binary ones), outputs [O], and inputs."""

    c_mean: Floats
    c_sd: Floats
    y_mean: Floats
    y_sd: Floats
    x_mean: NDArray[np.float32]
    x_sd: NDArray[np.float32]


@dataclass(frozen=True)
class Tensors:
    """One part of the data, standardised, on a device."""

    x: Tensor
    c: Tensor
    y: Tensor

    @classmethod
    def of(cls, data: Data, part: int, device: str) -> Tensors:
        """Inputs, concepts, and outputs (classes stay classes)."""
        at, scale = data.rows(part), data.scale
        x = torch.tensor((data.x[at] - scale.x_mean) / scale.x_sd, dtype=torch.float32, device=device)
        c = torch.tensor((data.c[at] - scale.c_mean) / scale.c_sd, dtype=torch.float32, device=device)
        if data.classes:
            y = torch.tensor(data.y[at], dtype=torch.float32 if data.outputs == 1 else torch.int64, device=device)
        else:
            y = torch.tensor((data.y[at] - scale.y_mean) / scale.y_sd, dtype=torch.float32, device=device)
        return cls(x, c, y)


def split(n: int, fractions: tuple[float, float, float], seed: int) -> Ints:
    """Part of each row, at random."""
    order = np.random.default_rng([seed, n, 1]).permutation(n)
    ends = np.round(np.cumsum(fractions) * n).astype(int)
    part = np.full(n, 2)
    part[order[: ends[0]]] = 0
    part[order[ends[0] : ends[1]]] = 1
    return part
