"""Between the environment's units and those that the networks see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """Observations are centred and divided; actions are moved to a box ±max_action.

    Attributes:
        center: of observations [S].
        spread: what centred observations are divided by [S].
        middle: of the actions' bounds [D].
        half: half of the width between the bounds [D].
        max_action: m, the box in which the networks act.
    """

    center: Tensor
    spread: Tensor
    middle: Tensor
    half: Tensor
    max_action: float

    @classmethod
    def of(cls, low: np.ndarray, high: np.ndarray, observations: np.ndarray | int) -> Self:
        """For actions between `low` and `high` [D].

        A box that is the same in every direction stays as it is; any other is mapped to [-1, 1].

        observations: [M, S] to bring to mean 0 and sd 1 (constant entries are only centred), or their length S to
            leave them as they are.
        """
        symmetric = np.allclose(low, -high) and np.allclose(high, high[0])
        if isinstance(observations, int):
            center, spread = np.zeros(observations), np.ones(observations)
        else:
            wide = observations.astype(np.float64)
            center, spread = wide.mean(0), wide.std(0)
            spread = np.where(spread > 1e-6 * np.abs(center).clip(1e-6), spread, 1.0)
        middle, half = ((low + high) / 2 if not symmetric else 0 * low), (high - low) / 2
        return cls(
            _tensor(center), _tensor(spread), _tensor(middle), _tensor(half), float(high[0]) if symmetric else 1.0
        )

    def to(self, device: str) -> Self:
        """The same on a device."""
        center, spread, middle, half = (t.to(device) for t in (self.center, self.spread, self.middle, self.half))
        return type(self)(center, spread, middle, half, self.max_action)

    def states(self, observations: Tensor) -> Tensor:
        """What the networks see of observations [..., S]."""
        return (observations - self.center) / self.spread

    def inner(self, actions: Tensor) -> Tensor:
        """The environment's actions [..., D] within ±max_action."""
        return (actions - self.middle) / self.half * self.max_action

    def outer(self, actions: Tensor) -> Tensor:
        """Actions within ±max_action in the environment's units."""
        return actions / self.max_action * self.half + self.middle


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32))
