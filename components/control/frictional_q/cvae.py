"""The contrastive VAE: what is common to logged actions and their normals, and what only the logged ones have.

After Abid and Zou's contrastive VAE: logged actions are the target, normal actions the background. Two encoders of
(s, a), for the tangent latent z and the shared latent; a normal action is rebuilt from the shared latent alone (z = 0).
Every network is stacked: K members at once, the first axis of every tensor. No layer has a bias.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from kfp_methods.networks import StackedLinear, StackedMLP

CLOSEST = 1e-6


class Latent(NamedTuple):
    """Mean and logarithm of the standard deviation of a diagonal Gaussian, each [K, ..., L]."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """The reparametrised draw for standard normal noise."""
        return self.mean + self.log_std.exp() * noise

    def kl(self) -> Tensor:
        """Divergence from the standard normal, summed over the L dimensions [K, ...]."""
        return 0.5 * (self.mean.square() + (2 * self.log_std).exp() - 1 - 2 * self.log_std).sum(-1)


class Encoder(nn.Module):
    """(s, a) -> a latent: two hidden layers, then mean and log-std heads (one product for both)."""

    def __init__(self, inputs: int, hidden: int, latent: int, generators: list[Generator]) -> None:
        super().__init__()
        self.trunk = StackedMLP([inputs, hidden, hidden], generators, bias=False)
        self.heads = StackedLinear(hidden, 2 * latent, generators, bias=False)

    def forward(self, inputs: Tensor, bounds: tuple[Tensor, Tensor], members: slice | None = None) -> Latent:
        """`bounds`: of the log-std, [K, 1, 1] each."""
        mean, log_std = self.heads(torch.relu_(self.trunk(inputs, members)), members).chunk(2, dim=-1)
        return Latent(mean, torch.clamp(log_std, *bounds))


class ContrastiveVAE(nn.Module):
    """Encoders of both latents and the decoder (s, z, shared) -> action in ±max_action.

    Args:
        n_states: S.
        n_actions: D.
        latent: size L of each of the two latents.
        hidden: width of both hidden layers.
        max_action: m.
        generators: one a member.
    """

    def __init__(
        self, n_states: int, n_actions: int, latent: int, hidden: int, max_action: float, generators: list[Generator]
    ) -> None:
        super().__init__()
        self.latent, self.max_action = latent, max_action
        self.tangent = Encoder(n_states + n_actions, hidden, latent, generators)
        self.shared = Encoder(n_states + n_actions, hidden, latent, generators)
        self.decoder = StackedMLP([n_states + 2 * latent, hidden, hidden, n_actions], generators, bias=False)

    def decode(self, states: Tensor, z: Tensor, shared: Tensor, members: slice | None = None) -> Tensor:
        """Actions [K, ..., D]."""
        return self.max_action * torch.tanh(self.decoder(torch.cat([states, z, shared], dim=-1), members))


class Discriminator(nn.Module):
    """Tells whether the two latents of a pair belong to one action: sigmoid of a linear map, with a bias."""

    def __init__(self, latent: int, generators: list[Generator]) -> None:
        super().__init__()
        self.linear = StackedLinear(2 * latent, 1, generators)

    def forward(self, shared: Tensor, z: Tensor) -> Tensor:
        """Probabilities [K, B], kept 1e-6 away from 0 and 1."""
        return torch.sigmoid(self.linear(torch.cat([shared, z], dim=-1)).squeeze(-1)).clamp(CLOSEST, 1 - CLOSEST)

    def loss(self, shared: Tensor, z: Tensor) -> Tensor:
        """-mean log d(pairs) - mean log(1 - d(crossed pairs)) for each member [K].

        The rows [K, B, L] are halved and the halves crossed; of an odd number the last row is left out.
        """
        half = z.shape[1] // 2
        z, shared = z[:, : 2 * half], shared[:, : 2 * half]
        crossed = torch.cat([z[:, half:], z[:, :half]], dim=1)
        return -(self(shared, z).log().mean(1) + (1 - self(shared, crossed)).log().mean(1))

    def total_correlation(self, shared: Tensor, z: Tensor) -> Tensor:
        """mean log d/(1 - d) over the pairs, an estimate of how much the latents depend on each other [K]."""
        half = z.shape[1] // 2
        d = self(shared[:, : 2 * half], z[:, : 2 * half])
        return (d.log() - (1 - d).log()).mean(1)


def squared_error(rebuilt: Tensor, actions: Tensor, weights: Tensor | None = None) -> Tensor:
    """Squared distance (a sum over D), averaged over a member's rows [K]; `weights` [K, B] are 0 for absent rows."""
    return mean_of(functional.mse_loss(rebuilt, actions, reduction="none").sum(-1), weights)


def mean_of(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over a member's rows [K]; 0 where every weight is 0."""
    if weights is None:
        return values.mean(1)
    return (values * weights).sum(1) / weights.sum(1).clamp_min(1)
