"""TD3 (Fujimoto, van Hoof and Meger 2018), stacked over seeds: the baseline that nothing ties to the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kfp_methods.components.control.frictional_q.critics import TwinCritics, adam, descend, follow, frozen_copy
from kfp_methods.components.control.frictional_q.noise import Noise, derived_seed
from kfp_methods.components.control.frictional_q.variants import Member, Settings
from kfp_methods.components.control.replay import Batch
from kfp_methods.networks import StackedMLP

SMOOTHING, SMOOTHING_CLIP = 0.2, 0.5
_WEIGHTS, _DRAWS = 1, 3


class TD3(nn.Module):
    """One member a seed: a deterministic actor, twin critics, smoothed targets, delayed actor updates."""

    def __init__(self, settings: Settings, seeds: Sequence[int], device: str) -> None:
        super().__init__()
        S, D, H = settings.n_states, settings.n_actions, settings.hidden
        self.settings, self.device = settings, device
        self.members = tuple(Member("td3", number) for number in range(len(seeds)))
        self.seed_of = torch.arange(len(seeds), device=device)
        generators = [torch.Generator(device).manual_seed(derived_seed(seed, _WEIGHTS)) for seed in seeds]
        self.critics, self.actor = TwinCritics(S, D, H, generators), StackedMLP([S, H, H, D], generators)
        self.target_actor, self.target_critics = frozen_copy(self.actor), frozen_copy(self.critics)
        self.noise = Noise(seeds, _DRAWS, device)
        self.actor_adam, self.critic_adam = adam(self.actor, settings.actor_lr), adam(self.critics, settings.critic_lr)

    def update(self, batch: Batch, step: int) -> None:
        """One update; steps count from 1."""
        descend(self.critics.loss(batch.states, batch.actions, self.targets(batch)), self.critic_adam)
        if step % self.settings.policy_frequency == 0:
            descend(-self.q1(batch.states, self._policy(self.actor, batch.states)).mean(1).sum(), self.actor_adam)
            follow(self.target_actor, self.actor, self.settings.tau)
            follow(self.target_critics, self.critics, self.settings.tau)

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """r + gamma (1 - done) min of both critics at the target actor's action plus clipped noise [K, B]."""
        m = self.settings.max_action
        drawn = self.noise.normal(*batch.actions.shape[1:])
        smoothing = (SMOOTHING * drawn).clamp(-SMOOTHING_CLIP, SMOOTHING_CLIP) * m
        actions = (self._policy(self.target_actor, batch.next_states) + smoothing).clamp(-m, m)
        least = torch.minimum(*self.target_critics(batch.next_states, actions))
        return batch.rewards + self.settings.gamma * (1 - batch.done) * least

    @torch.no_grad()
    def act(self, states: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """What each member does in states [K, N, S], and its Q1 of it: [K, N, D], [K, N]; nothing is random."""
        actions = self._policy(self.actor, states)
        return actions, self.q1(states, actions)

    def q1(self, states: Tensor, actions: Tensor) -> Tensor:
        """The critic that trains the actor [K, N]."""
        return self.critics.q1(states, actions)

    def states(self) -> dict[str, Any]:
        """All that training changes, by name, to save and restore."""
        return {
            "nets": self,
            "adam_actor": self.actor_adam,
            "adam_critics": self.critic_adam,
            **self.noise.states("noise"),
        }

    def _policy(self, actor: nn.Module, states: Tensor) -> Tensor:
        return self.settings.max_action * torch.tanh(actor(states))
