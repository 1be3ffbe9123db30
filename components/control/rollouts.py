"""What following a policy from many first states gives, in gymnasium environments side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from kfp_methods.components.control.environments import BoxEnvironment

Policy = Callable[[Tensor], Tensor]
"""Observations [K, N, S] -> actions [K, N, D], in the environment's units."""


@dataclass(frozen=True)
class Rollouts:
    """One episode from each first state, of K policies.

    Attributes:
        first: observations [K, N, S].
        returns: what the task counts [K, N]: the sums of rewards over an environment's own time limit, on the point
            mass the discounted sums.
        discounted: discounted sums [K, N], over as long as was followed.
    """

    first: Tensor
    returns: Tensor
    discounted: Tensor


def roll_out(
    policy: Policy, environment: BoxEnvironment, seeds: np.ndarray, gamma: float, *, settle: float = 0.01
) -> Rollouts:
    """Follows K policies for N episodes each, all side by side.

    Args:
        environment: where.
        seeds: of the environments' resets [K, N].
        gamma: discount.
        settle: episodes that the environment does not end are followed until gamma^t is below it, beyond the
            time limit when need be, so that a cut hardly changes the discounted sum.
    """
    K, N = seeds.shape
    steps = max(environment.max_steps, int(np.ceil(np.log(settle) / np.log(gamma)))) if gamma < 1 else None
    steps = steps or environment.max_steps
    returns, discounted = np.zeros(K * N), np.zeros(K * N)
    running = np.ones(K * N, dtype=bool)
    with environment.side_by_side(K * N, max_steps=steps) as envs:
        observations, _ = envs.reset(seed=[int(seed) for seed in seeds.flat])
        first = observations = np.asarray(observations, np.float32)
        for t in range(steps):
            with torch.no_grad():
                actions = policy(torch.from_numpy(observations).reshape(K, N, -1)).reshape(K * N, -1).cpu().numpy()
            # An environment that has ended is stepped no further: it is reset, and its rewards do not count.
            observations, rewards, ended, cut, _ = envs.step(environment.clipped(actions))
            observations = np.asarray(observations, np.float32)
            discounted += np.where(running, gamma**t * rewards, 0)
            if t < environment.max_steps:
                returns += np.where(running, rewards, 0)
            stopped = ended | cut
            running &= ~stopped
            if not running.any():
                break
            if stopped.any():
                observations, _ = envs.reset(options={"reset_mask": stopped})
                observations = np.asarray(observations, np.float32)
    return Rollouts(*(torch.from_numpy(a).float().reshape(K, N, *a.shape[1:]) for a in (first, returns, discounted)))
