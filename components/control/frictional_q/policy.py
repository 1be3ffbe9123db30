"""A policy that proposes actions like the logged ones, refines them, and does the one its critic likes best."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from kfp_methods.components.control.frictional_q.critics import TwinCritics
from kfp_methods.components.control.frictional_q.cvae import ContrastiveVAE
from kfp_methods.components.control.frictional_q.variants import Settings, Variant
from kfp_methods.networks import StackedMLP

# Entries of the widest layer at once, without gradients. On a GPU a bound on memory; on the CPU small enough for the
# cache, and for the allocator to keep: a layer of several MB costs more in page faults than in arithmetic.
_MOST_NUMBERS = {"cuda": 2**24, "cpu": 2**18}


class ProposalPolicy(nn.Module):
    """K members' VAEs, actors and critics.

    Args:
        settings: shared by all.
        variants: each member's.
        generators: of each member's first weights.
    """

    remap: Tensor
    phi: Tensor
    clip: Tensor
    has_shared: Tensor

    def __init__(self, settings: Settings, variants: Sequence[Variant], generators: list[Generator]) -> None:
        super().__init__()
        S, D, H = settings.n_states, settings.n_actions, settings.hidden
        self.settings = settings
        self.cvae = ContrastiveVAE(S, D, settings.latent, settings.cvae_hidden, settings.max_action, generators)
        self.critics = TwinCritics(S, D, H, generators)
        self.actor = StackedMLP([S + D, H, H, D], generators)
        for name, values in (
            ("remap", [variant.remap for variant in variants]),
            ("phi", [variant.phi for variant in variants]),
            ("clip", [variant.latent_clip for variant in variants]),
            ("has_shared", [float(variant.shared) for variant in variants]),
        ):
            column = torch.tensor(values, device=generators[0].device)[:, None, None]
            self.register_buffer(name, column, persistent=False)

    def propose(self, states: Tensor, noise: Tensor, clip: float | None = None) -> Tensor:
        """Decoded prior draws [K, R, D] for states [K, R, S] and standard normal noise [K, R, 2 L].

        clip: instead of the members' own bound on the latents.
        """
        bound = self.clip if clip is None else torch.full_like(self.clip, clip)
        z, shared = torch.clamp(noise, -bound, bound).chunk(2, dim=-1)
        return self.cvae.decode(states, z, shared * self.has_shared)

    def refine(self, actor: nn.Module, states: Tensor, proposals: Tensor) -> Tensor:
        """The actor's version of the proposals [K, R, D]; `actor` is the online or the target one."""
        m = self.settings.max_action
        shift = m * torch.tanh(actor(torch.cat([states, proposals], dim=-1)))
        return torch.where(self.remap, shift, (proposals + self.phi * shift).clamp(-m, m))

    @torch.no_grad()
    def choose(self, states: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The best of the refined proposals by Q1, and its Q1.

        Args:
            states: [K, N, S].
            noise: standard normal [K, N, n, 2 L], n proposals each.

        Returns:
            Actions [K, N, D] and values [K, N].
        """
        size = self.rows_at_once(noise.shape[2])
        split = zip(states.split(size, dim=1), noise.split(size, dim=1), strict=True)
        parts = [self._choose(*part) for part in split]
        return torch.cat([actions for actions, _ in parts], dim=1), torch.cat([values for _, values in parts], dim=1)

    def rows_at_once(self, proposals: int) -> int:
        """For how many states of each member so many proposals are made and judged at a time."""
        widest = len(self.clip) * proposals * max(self.settings.hidden, self.settings.cvae_hidden)
        return max(1, _MOST_NUMBERS[self.clip.device.type] // widest)

    def _choose(self, states: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        K, N, n, _ = noise.shape
        repeated = states[:, :, None].expand(K, N, n, states.shape[-1]).flatten(1, 2)
        actions = self.refine(self.actor, repeated, self.propose(repeated, noise.flatten(1, 2)))
        values, best = self.critics.q1(repeated, actions).unflatten(1, (N, n)).max(dim=2)
        index = best[..., None, None].expand(K, N, 1, actions.shape[-1])
        return actions.unflatten(1, (N, n)).gather(2, index).squeeze(2), values
