"""A point mass in the plane with a known best policy: the environment whose truth can be computed.

State (x, vx, y, vy), each kept within ±2; action: an acceleration in [-1, 1]²; every 0.1 s
x⁺ = x + 0.1 v + 0.005 a, v⁺ = v + 0.1 a; reward -(x² + y² + 0.1 |v|² + 0.01 |a|²) of the state and action before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from kfp_methods.components.control.replay import Transitions
from kfp_methods.components.control.rollouts import Policy, Rollouts

STATES, ACTIONS = 4, 2
LIMIT, MAX_ACTION = 2.0, 1.0
LOG_NOISE = 0.3
_A = np.array([[1.0, 0.1], [0.0, 1.0]])
_B = np.array([[0.005], [0.1]])
_STATE_COST, _ACTION_COST = np.diag([1.0, 0.1]), 0.01


def step(states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """The next states [..., 4] and the rewards [...]; actions [..., 2] are clipped to the box first."""
    actions = actions.clamp(-MAX_ACTION, MAX_ACTION)
    position, velocity = states[..., 0::2], states[..., 1::2]
    cost = position.square().sum(-1) + 0.1 * velocity.square().sum(-1) + _ACTION_COST * actions.square().sum(-1)
    moved = torch.stack([position + 0.1 * velocity + 0.005 * actions, velocity + 0.1 * actions], dim=-1)
    return moved.flatten(-2).clamp(-LIMIT, LIMIT), -cost


def starts(n: int, generator: Generator) -> Tensor:
    """Random first states [n, 4]: positions uniform in ±1, velocities in ±0.3."""
    drawn = torch.rand(n, STATES, generator=generator, device=generator.device) * 2 - 1
    return drawn * torch.tensor([1.0, 0.3, 1.0, 0.3], device=generator.device)


@dataclass(frozen=True)
class Regulator:
    """The linear-quadratic regulator of one axis, while neither states nor actions meet their limits.

    Attributes:
        gain: K, so that the best acceleration is -K (x, v).
        value: P, so that the value is -(x, v) P (x, v).
    """

    gain: np.ndarray[tuple[int], np.dtype[np.float64]]
    value: np.ndarray[tuple[int, int], np.dtype[np.float64]]

    @classmethod
    def solve(cls, gamma: float) -> Regulator:
        """From the discrete algebraic Riccati equation with the dynamics scaled by √gamma."""
        from scipy.linalg import solve_discrete_are

        A, B = gamma**0.5 * _A, gamma**0.5 * _B
        P = solve_discrete_are(A, B, _STATE_COST, [[_ACTION_COST]])
        return cls(np.linalg.solve(_ACTION_COST + B.T @ P @ B, B.T @ P @ A)[0], P)

    def act(self, states: Tensor) -> Tensor:
        """The best accelerations [..., 2], clipped to the box."""
        return self._feedback(states).clamp(-MAX_ACTION, MAX_ACTION)

    def logged(self, states: Tensor, generator: Generator, noise: float = LOG_NOISE) -> Tensor:
        """What the logged policy does: half the gain, along the position's direction alone, plus Gaussian noise.

        So the logged actions lie near a line through the origin at each state, a manifold of one dimension in two.
        """
        weak = (0.5 * self._feedback(states)).clamp(-MAX_ACTION, MAX_ACTION)
        position = states[..., 0::2]
        direction = position / position.norm(dim=-1, keepdim=True).clamp_min(1e-8)
        along = (weak * direction).sum(-1, keepdim=True) * direction
        drawn = torch.randn(along.shape, generator=generator, device=generator.device)
        return (along + noise * drawn).clamp(-MAX_ACTION, MAX_ACTION)

    def _feedback(self, states: Tensor) -> Tensor:
        position, velocity = (float(value) for value in self.gain)
        return -(position * states[..., 0::2] + velocity * states[..., 1::2])


def log(seed: int, *, episodes: int = 200, steps: int = 100, noise: float = LOG_NOISE) -> Transitions:
    """Transitions of the logged policy (see `Regulator.logged`), episode after episode."""
    generator = torch.Generator().manual_seed(seed)
    regulator, states = Regulator.solve(0.99), starts(episodes, generator)
    columns: list[tuple[Tensor, ...]] = []
    for _ in range(steps):
        actions = regulator.logged(states, generator, noise)
        following, rewards = step(states, actions)
        columns.append((states, actions, rewards, following))
        states = following
    observations, taken, earned, then = (
        torch.stack(column, dim=1).flatten(0, 1).numpy() for column in zip(*columns, strict=True)
    )
    ends = np.arange(1, episodes * steps + 1) % steps == 0
    box = np.full(ACTIONS, MAX_ACTION)
    return Transitions(observations, taken, earned, then, np.zeros_like(ends), ends, -box, box)


@torch.no_grad()
def roll_out(policy: Policy, first: Tensor, gamma: float, steps: int = 150) -> Rollouts:
    """Follows a policy from first states [K, N, 4] for `steps` steps; the task's returns are the discounted ones."""
    states, discount = first, 1.0
    returns = torch.zeros(first.shape[:-1], device=first.device)
    for _ in range(steps):
        states, rewards = step(states, policy(states))
        returns += discount * rewards
        discount *= gamma
    return Rollouts(first, returns, returns)
