"""Directions at right angles to an action: what a policy does there, the replay buffer has never tried."""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_ACTION = 1e-8


def normal_rows(actions: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """An orthogonal basis of the complement of each action, by one Householder reflection.

    With u = a/|a| and v = u + sign(u₁) e₁ (sign 0 = +1), the rows 2…D of I - 2 v vᵀ/|v|² are orthonormal and at right
    angles to u, for the reflection takes u to ∓e₁.

    Args:
        actions: [..., D] with D at least 2.
        length: of each row.

    Returns:
        The rows [..., D - 1, D], and whether the action has a direction at all [...]; rows without are arbitrary.
    """
    D = actions.shape[-1]
    size = actions.norm(dim=-1, keepdim=True)
    valid = size.squeeze(-1) >= SMALLEST_ACTION
    first = torch.zeros(D, dtype=actions.dtype, device=actions.device)
    first[0] = 1
    u = torch.where(valid[..., None], actions / size.clamp_min(SMALLEST_ACTION), first)
    sign = torch.where(u[..., :1] < 0, -1.0, 1.0).to(actions)
    v = u + sign * first
    outer = v[..., 1:, None] * v[..., None, :]  # [..., D - 1, D]
    reflection = (
        torch.eye(D, dtype=actions.dtype, device=actions.device)[1:] - 2 * outer / v.square().sum(-1)[..., None, None]
    )
    return length * reflection, valid


def split(gradients: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes of the part of a vector along the action, |uᵀg|, and at right angles to it, |(I - uuᵀ)g|: each [...]."""
    u = actions / actions.norm(dim=-1, keepdim=True).clamp_min(SMALLEST_ACTION)
    along = (u * gradients).sum(-1, keepdim=True)
    return along.abs().squeeze(-1), (gradients - along * u).norm(dim=-1)
