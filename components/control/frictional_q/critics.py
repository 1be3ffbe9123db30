"""Twin critics and what every learner here does with them: their regression, and slow copies of networks."""

from __future__ import annotations

import copy

import torch
from torch import Generator, Tensor, nn

from kfp_methods.networks import StackedMLP


class TwinCritics(nn.Module):
    """Two independent estimates of Q(s, a) for each of K members."""

    def __init__(self, n_states: int, n_actions: int, hidden: int, generators: list[Generator]) -> None:
        super().__init__()
        widths = [n_states + n_actions, hidden, hidden, 1]
        self.first, self.second = StackedMLP(widths, generators), StackedMLP(widths, generators)

    def forward(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Both estimates [K, ...]."""
        inputs = torch.cat([states, actions], dim=-1)
        return self.first(inputs).squeeze(-1), self.second(inputs).squeeze(-1)

    def q1(self, states: Tensor, actions: Tensor) -> Tensor:
        """The first estimate, which chooses actions and trains the actor [K, ...]."""
        return self.first(torch.cat([states, actions], dim=-1)).squeeze(-1)

    def loss(self, states: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        """Mean squared errors of both, summed over members."""
        return sum((q - targets).square().mean(1).sum() for q in self(states, actions))


def frozen_copy(module: nn.Module) -> nn.Module:
    """A target network: the same weights, which no gradient reaches."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Polyak averaging: target ← (1 - tau) target + tau online."""
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, tau)


def adam(module: nn.Module, rate: float) -> torch.optim.Adam:
    """Adam over all members at once; each entry has its own step, so members do not meet."""
    return torch.optim.Adam(module.parameters(), lr=rate, fused=True)


def descend(loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
    """One step of one optimiser; gradients that the loss leaves elsewhere are cleared before they are used."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
