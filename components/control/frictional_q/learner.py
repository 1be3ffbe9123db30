"""Frictional Q-Learning's updates for many members at once; BCQ and the ablation are members with other settings.

Each update: the VAE (its discriminator first), then the critics, then every second time the actor and the slow copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kfp_methods.components.control.frictional_q.critics import adam, descend, follow, frozen_copy
from kfp_methods.components.control.frictional_q.cvae import Discriminator, Latent, mean_of, squared_error
from kfp_methods.components.control.frictional_q.noise import Noise, derived_seed
from kfp_methods.components.control.frictional_q.normals import normal_rows
from kfp_methods.components.control.frictional_q.policy import ProposalPolicy
from kfp_methods.components.control.frictional_q.variants import Member, Settings, Variant
from kfp_methods.components.control.replay import Batch

_WEIGHTS, _DRAWS = 1, 2


class Terms(NamedTuple):
    """The VAE's losses, one for each member that has them: K members, the first H with a shared latent, the first C
    with normals."""

    tangent_error: Tensor  # [K]
    kl_z: Tensor  # [K]
    kl_s: Tensor  # [H]
    normal_error: Tensor  # [C]
    kl_normal: Tensor  # [C]
    z: Tensor  # [K, B, L]
    shared: Tensor  # [H, B, L]


class ProposalLearner:
    """Trains a `ProposalPolicy` for each variant and seed.

    Args:
        settings: shared by all members.
        variants: the contrastive ones first, those without a shared latent last.
        seeds: one member of each variant a seed; its first weights and its noise are the same in every variant.
        device: where to compute.
    """

    def __init__(self, settings: Settings, variants: Sequence[Variant], seeds: Sequence[int], device: str) -> None:
        pairs = [(variant, number) for variant in variants for number in range(len(seeds))]
        self.settings, self.device = settings, device
        self.members = tuple(Member(variant.method, number) for variant, number in pairs)
        each = [variant for variant, _ in pairs]
        self.seed_of = torch.tensor([number for _, number in pairs], device=device)
        self.with_shared = slice(0, sum(variant.shared for variant in each))
        self.with_normals = slice(0, sum(variant.contrastive for variant in each))
        generators = [torch.Generator(device).manual_seed(derived_seed(seeds[n], _WEIGHTS)) for _, n in pairs]
        self.policy = ProposalPolicy(settings, each, generators)
        self.target_actor, self.target_critics = frozen_copy(self.policy.actor), frozen_copy(self.policy.critics)
        contrasted = self.with_normals.stop if settings.use_tc else 0
        self.discriminator = Discriminator(settings.latent, generators[:contrasted]) if contrasted else None
        self.noise = Noise(seeds, _DRAWS, device)
        self.optimisers = {
            "cvae": adam(self.policy.cvae, settings.cvae_lr),
            "critics": adam(self.policy.critics, settings.critic_lr),
            "actor": adam(self.policy.actor, settings.actor_lr),
        }
        if self.discriminator is not None:
            self.optimisers["discriminator"] = adam(self.discriminator, settings.cvae_lr)

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, device=device)[:, None, None]

        self.beta = column([variant.beta for variant in each])[:, 0, 0]
        self.least = column([variant.least for variant in each])
        self.log_std = column([v.log_std[0] for v in each]), column([v.log_std[1] for v in each])
        self.n_target = column([variant.n_target for variant in each]).long()
        self.most_targets = max(variant.n_target for variant in each)

    def update(self, batch: Batch, step: int) -> None:
        """One update of everything; steps count from 1."""
        self.train_cvae(batch)
        self.train_critics(batch)
        if step % self.settings.policy_frequency == 0:
            self.train_actor(batch)
            follow(self.target_actor, self.policy.actor, self.settings.tau)
            follow(self.target_critics, self.policy.critics, self.settings.tau)

    @torch.no_grad()
    def adopt(self, base: ProposalPolicy, members: list[int]) -> None:
        """Starts some members from the weights of a policy of one member, the slow copies included."""
        own = self.policy.state_dict()
        for name, tensor in base.state_dict().items():
            own[name][members] = tensor.to(own[name])
        follow(self.target_actor, self.policy.actor, 1.0)
        follow(self.target_critics, self.policy.critics, 1.0)

    def act(self, states: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """What each member does in states [K, N, S], and its Q1 of it: [K, N, D], [K, N]."""
        drawn = noise.normal(states.shape[1], self.settings.n_act, 2 * self.settings.latent)
        return self.policy.choose(states, drawn[self.seed_of])

    def q1(self, states: Tensor, actions: Tensor) -> Tensor:
        """The critic that chooses actions [K, N]."""
        return self.policy.critics.q1(states, actions)

    def train_cvae(self, batch: Batch) -> None:
        """The discriminator learns from the latents as they are, then the VAE learns with the discriminator fixed."""
        terms = self.vae_terms(batch, self.noise)
        loss = terms.tangent_error.sum() + terms.normal_error.sum() + (self.beta * terms.kl_z).sum()
        loss = loss + (self.beta[self.with_shared] * terms.kl_s).sum()
        loss = loss + (self.beta[self.with_normals] * terms.kl_normal).sum()
        if self.discriminator is not None:
            shared, z = terms.shared[self.with_normals], terms.z[self.with_normals]
            descend(self.discriminator.loss(shared.detach(), z.detach()).sum(), self.optimisers["discriminator"])
            loss = loss + self.discriminator.total_correlation(shared, z).sum()
        descend(loss, self.optimisers["cvae"])

    def vae_terms(self, batch: Batch, noise: Noise) -> Terms:
        """The VAE's losses on a batch [K, B, …]."""
        cvae, (K, B), L = self.policy.cvae, batch.rewards.shape, self.settings.latent
        inputs = torch.cat([batch.states, batch.actions], dim=-1)
        tangent = cvae.tangent(inputs, self.log_std)
        shared = self._shared(inputs[self.with_shared], self.with_shared)
        drawn = noise.normal(B, 2 * L)[self.seed_of]
        z, s = tangent.sample(drawn[..., :L]), shared.sample(drawn[self.with_shared][..., L:])
        absent = s.new_zeros(K - len(s), B, L)
        rebuilt = cvae.decode(batch.states, z, torch.cat([s, absent]))
        normal_error, kl_normal = self._normal_terms(batch.of(self.with_normals), noise)
        return Terms(
            tangent_error=squared_error(rebuilt, batch.actions),
            kl_z=tangent.kl().mean(1),
            kl_s=shared.kl().mean(1),
            normal_error=normal_error,
            kl_normal=kl_normal,
            z=z,
            shared=s,
        )

    def _shared(self, inputs: Tensor, members: slice) -> Latent:
        return self.policy.cvae.shared(inputs, (self.log_std[0][members], self.log_std[1][members]), members)

    def _normal_terms(self, batch: Batch, noise: Noise) -> tuple[Tensor, Tensor]:
        """Squared error and KL of normal actions rebuilt from the shared latent alone, each [C]."""
        members = self.with_normals
        if not len(batch.rewards):
            return batch.rewards.new_zeros(0), batch.rewards.new_zeros(0)
        actions, states, weights = self.background(batch)
        latent = self._shared(torch.cat([states, actions], dim=-1), members)
        shared = latent.sample(noise.normal(actions.shape[1], self.settings.latent)[self.seed_of[members]])
        rebuilt = self.policy.cvae.decode(states, torch.zeros_like(shared), shared, members)
        return squared_error(rebuilt, actions, weights), mean_of(latent.kl(), weights)

    @torch.no_grad()
    def background(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Normal actions [C, R, D] with their states [C, R, S] and weights [C, R], 0 where the logged action is none.

        One for each transition, where Q1 is lowest ("critic"), or all ("augmentation").
        """
        rows, valid = normal_rows(batch.actions, self.settings.max_action)  # [C, B, D - 1, D]
        if self.settings.both_signs:
            rows = torch.cat([rows, -rows], dim=2)
        C, B, R, _ = rows.shape
        states = batch.states[:, :, None].expand(C, B, R, batch.states.shape[-1]).flatten(1, 2)
        if self.settings.normal_mode == "augmentation":
            return rows.flatten(1, 2), states, valid[..., None].expand(C, B, R).flatten(1, 2).to(rows)
        if R > 1:
            inputs = torch.cat([states, rows.flatten(1, 2)], dim=-1)
            worst = self.policy.critics.first(inputs, self.with_normals).reshape(C, B, R).argmin(dim=2)
            rows = rows.gather(2, worst[..., None, None].expand(C, B, 1, rows.shape[-1]))
        return rows.squeeze(2), batch.states, valid.to(rows)

    def train_critics(self, batch: Batch) -> None:
        """Regression of both critics on the target."""
        descend(self.policy.critics.loss(batch.states, batch.actions, self.targets(batch)), self.optimisers["critics"])

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """r + gamma (1 - done) max over proposals of the critics' lesser estimate [K, B]; BCQ blends in the greater."""
        drawn = self.noise.normal(batch.rewards.shape[1], self.most_targets, 2 * self.settings.latent)[self.seed_of]
        size = self.policy.rows_at_once(self.most_targets)
        parts = zip(batch.next_states.split(size, dim=1), drawn.split(size, dim=1), strict=True)
        best = torch.cat([self._best(states, noise) for states, noise in parts], dim=1)
        return batch.rewards + self.settings.gamma * (1 - batch.done) * best

    def _best(self, states: Tensor, noise: Tensor) -> Tensor:
        """The greatest value of a proposal [K, B] in states [K, B, S], for noise [K, B, n, 2 L]."""
        K, B, n, _ = noise.shape
        repeated = states[:, :, None].expand(K, B, n, states.shape[-1]).flatten(1, 2)
        proposals = self.policy.propose(repeated, noise.flatten(1, 2))
        actions = self.policy.refine(self.target_actor, repeated, proposals)
        q1, q2 = (q.unflatten(1, (B, n)) for q in self.target_critics(repeated, actions))
        value = self.least * torch.minimum(q1, q2) + (1 - self.least) * torch.maximum(q1, q2)
        surplus = torch.arange(n, device=self.device) >= self.n_target
        return value.masked_fill(surplus, -torch.inf).amax(dim=2)

    def train_actor(self, batch: Batch) -> None:
        """Ascends Q1 of refined proposals; the gradient reaches the actor alone."""
        with torch.no_grad():
            drawn = self.noise.normal(batch.rewards.shape[1], 2 * self.settings.latent)[self.seed_of]
            proposals = self.policy.propose(batch.states, drawn)
        refined = self.policy.refine(self.policy.actor, batch.states, proposals)
        descend(-self.q1(batch.states, refined).mean(1).sum(), self.optimisers["actor"])

    def states(self) -> dict[str, Any]:
        """All that training changes, by name, to save and restore."""
        modules: dict[str, Any] = {
            "policy": self.policy,
            "target_actor": self.target_actor,
            "target_critics": self.target_critics,
        }
        if self.discriminator is not None:
            modules["discriminator"] = self.discriminator
        optimisers = {f"adam_{name}": optimiser for name, optimiser in self.optimisers.items()}
        return {**modules, **optimisers, **self.noise.states("noise")}
