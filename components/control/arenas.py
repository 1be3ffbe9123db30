"""Where policies are evaluated: the point mass with its fixed first states, or a gymnasium environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from kfp_methods.components.control import point_mass, rollouts
from kfp_methods.components.control.rollouts import Policy, Rollouts

if TYPE_CHECKING:
    from kfp_methods.components.control.environments import BoxEnvironment

_STARTS_SEED = 2_000_003
MOST_STARTS = 15_000


class Arena(Protocol):
    """A task in which K policies are followed from the same first states."""

    def roll_out(self, policy: Policy, K: int, episodes: int, gamma: float) -> Rollouts:
        """One episode of each policy from each of the first `episodes` first states."""


@dataclass(frozen=True)
class PointMassArena:
    """150 steps of the point mass; the first states are the same in every run."""

    steps: int = 150

    def roll_out(self, policy: Policy, K: int, episodes: int, gamma: float) -> Rollouts:
        """See `Arena`."""
        first = point_mass.starts(MOST_STARTS, torch.Generator().manual_seed(_STARTS_SEED))[:episodes]
        return point_mass.roll_out(policy, first.expand(K, *first.shape), gamma, self.steps)


@dataclass(frozen=True)
class GymArena:
    """A gymnasium environment; the seeds of its resets are the same in every run."""

    environment: BoxEnvironment

    def roll_out(self, policy: Policy, K: int, episodes: int, gamma: float) -> Rollouts:
        """See `Arena`."""
        seeds = np.broadcast_to(_STARTS_SEED + np.arange(episodes), (K, episodes))
        return rollouts.roll_out(policy, self.environment, seeds, gamma)
