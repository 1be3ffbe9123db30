"""Friction: how far a policy leaves the logged actions sideways, and how steep its critic is there; diagnosis only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kfp_methods.components.control.frictional_q.cvae import mean_of
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.noise import Noise
from kfp_methods.components.control.frictional_q.normals import SMALLEST_ACTION, normal_rows, split
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.replay import Batch

NEIGHBOURS = 10
PROPOSALS = 10
EQUAL_CLIP = 0.5


@dataclass(frozen=True)
class Friction:
    """Of each member [K].

    Attributes:
        q_mean: mean Q1 of the policy's actions at logged states.
        anisotropy: mean size of dQ1/da at right angles to the logged action / mean size along it.
        normal_deviation: mean distance, in units of m, by which the policy leaves a logged action of a near state
            sideways.
        stick_fraction: share of states where that distance is at most mu.
    """

    q_mean: Tensor
    anisotropy: Tensor
    normal_deviation: Tensor
    stick_fraction: Tensor


def friction(learner: ProposalLearner | TD3, probe: Batch, logged: Batch, mu: float, noise: Noise) -> Friction:
    """Diagnoses every member at the states of `probe` [K, P, …], against logged transitions [K, M, …]."""
    m = learner.settings.max_action
    actions, values = learner.act(probe.states, noise)
    along, across = split(_slope(learner, probe), probe.actions)
    usable = (probe.actions.norm(dim=-1) >= SMALLEST_ACTION).to(along)
    near, known = _nearest(probe.states, actions, logged)
    deviation = split(actions - near, near)[1] / m
    return Friction(
        q_mean=values.mean(1),
        anisotropy=mean_of(across, usable) / mean_of(along, usable),
        normal_deviation=mean_of(deviation, known),
        stick_fraction=mean_of((deviation <= mu).to(known), known),
    )


def _slope(learner: ProposalLearner | TD3, probe: Batch) -> Tensor:
    """dQ1/da at logged pairs [K, P, D]."""
    actions = probe.actions.clone().requires_grad_()
    (slope,) = torch.autograd.grad(learner.q1(probe.states, actions).sum(), actions)
    return slope


def _nearest(states: Tensor, actions: Tensor, logged: Batch) -> tuple[Tensor, Tensor]:
    """Of the ten logged states nearest to each state (entries scaled to sd 1), the action nearest to the policy's.

    Returns them [K, P, D], and 1 where they have a direction, else 0 [K, P].
    """
    spread = logged.states.std(1, keepdim=True)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    distance = torch.cdist(states / spread, logged.states / spread)
    rows = distance.topk(min(NEIGHBOURS, distance.shape[2]), dim=2, largest=False).indices  # [K, P, 10]
    K, P, n = rows.shape
    D = actions.shape[-1]
    theirs = logged.actions.gather(1, rows.reshape(K, P * n, 1).expand(K, P * n, D)).reshape(K, P, n, D)
    best = (theirs - actions[:, :, None]).norm(dim=-1).argmin(2)
    near = theirs.gather(2, best[..., None, None].expand(K, P, 1, D)).squeeze(2)
    return near, (near.norm(dim=-1) >= SMALLEST_ACTION).to(actions)


@dataclass(frozen=True)
class Reconstruction:
    """Of each member [K]; NaN where a member has no such part.

    Attributes:
        rec_tangent: squared error of logged actions.
        rec_normal: squared error of normal actions.
        kl_z: divergence of the tangent latent.
        kl_s: divergence of the shared latent.
        disc_loss: the discriminator's loss; 2 ln 2 is a guess.
        preference: share of the proposals that are closer in angle to the logged action than to any normal of it; of
            directions at random 1 / D.
        preference_both_signs: the same where the negated normals are rivals too; at random 1 / (2 D).
        preference_at_equal_clip: the same with plain normals, and every member's latents clamped to ±0.5.
        angles: between proposals and logged actions in degrees [K, P * 10].
    """

    rec_tangent: Tensor
    rec_normal: Tensor
    kl_z: Tensor
    kl_s: Tensor
    disc_loss: Tensor
    preference: Tensor
    preference_both_signs: Tensor
    preference_at_equal_clip: Tensor
    angles: Tensor


@torch.no_grad()
def reconstruction(learner: ProposalLearner, probe: Batch, noise: Noise) -> Reconstruction:
    """How well each member's VAE rebuilds logged and normal actions, and what it proposes."""
    K, terms = len(learner.members), learner.vae_terms(probe, noise)
    drawn = noise.normal(probe.rewards.shape[1], PROPOSALS, 2 * learner.settings.latent)[learner.seed_of]
    preference, both_signs, angles = _preference(learner, probe, drawn, None)
    disc_loss = terms.kl_normal.new_zeros(0)
    if learner.discriminator is not None:
        members = learner.with_normals
        disc_loss = learner.discriminator.loss(terms.shared[members], terms.z[members])
    return Reconstruction(
        rec_tangent=terms.tangent_error,
        rec_normal=_filled(terms.normal_error, K),
        kl_z=terms.kl_z,
        kl_s=_filled(terms.kl_s, K),
        disc_loss=_filled(disc_loss, K),
        preference=preference,
        preference_both_signs=both_signs,
        preference_at_equal_clip=_preference(learner, probe, drawn, EQUAL_CLIP)[0],
        angles=angles,
    )


def _preference(
    learner: ProposalLearner, probe: Batch, drawn: Tensor, clip: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares [K] against the normals and against those of both signs, and angles in degrees [K, P * proposals].

    Logged actions without a direction are left out of the shares.
    """
    K, P, n, _ = drawn.shape
    repeated = probe.states[:, :, None].expand(K, P, n, probe.states.shape[-1]).flatten(1, 2)
    proposals = learner.policy.propose(repeated, drawn.flatten(1, 2), clip).unflatten(1, (P, n))
    rows, valid = normal_rows(probe.actions, 1.0)
    u = probe.actions / probe.actions.norm(dim=-1, keepdim=True).clamp_min(SMALLEST_ACTION)
    towards = (proposals * u[:, :, None]).sum(-1)  # [K, P, n], proportional to the cosines
    beside = torch.einsum("kpnd,kprd->kpnr", proposals, rows)
    shares = [mean_of((towards > rivals.amax(-1)).to(u).mean(2), valid.to(u)) for rivals in (beside, beside.abs())]
    cosine = towards / proposals.norm(dim=-1).clamp_min(SMALLEST_ACTION)
    return shares[0], shares[1], torch.rad2deg(torch.acos(cosine.clamp(-1, 1))).flatten(1)


def _filled(values: Tensor, K: int) -> Tensor:
    return torch.cat([values, values.new_full((K - len(values),), torch.nan)])
