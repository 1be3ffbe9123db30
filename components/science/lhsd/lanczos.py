"""Stochastic Lanczos quadrature: the spectrum of a matrix as a few probes see it, from products with vectors alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Tridiagonal:
    """Lanczos' matrices T of R rows: diagonals alpha [R, m], off-diagonals beta [R, m-1], float64.

    After a breakdown (an invariant subspace was found) the remaining entries are zero: that block does not touch
    the first vector, so it carries no weight.
    """

    alpha: Tensor
    beta: Tensor

    @property
    def steps(self) -> int:
        return self.alpha.shape[-1]

    def first(self, steps: int) -> Tridiagonal:
        """What Lanczos would have given after fewer steps, at no cost: a leading block."""
        return Tridiagonal(self.alpha[..., :steps], self.beta[..., : steps - 1])

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Gauss nodes theta and weights tau^2 [R, m]: (v^T f(H) v) / |v|^2 is about sum_j tau_j^2 f(theta_j).

        theta: eigenvalues of T; tau: first components of its eigenvectors, so the weights sum to 1.
        """
        T = torch.diag_embed(self.alpha)
        T = T + torch.diag_embed(self.beta, 1) + torch.diag_embed(self.beta, -1)
        theta, vectors = torch.linalg.eigh(T)
        return theta, vectors[..., 0, :].square()


def lanczos(product: Callable[[Tensor], Tensor], v: Tensor, steps: int, floor: float) -> Tridiagonal:
    """Lanczos from v [R, D], a matrix for each row, with two passes of full re-orthogonalisation.

    Args:
        product: [R, D] -> [R, D], symmetric for each row.
        v: starting vectors, any length.
        steps: m.
        floor: a size of the matrix; a residual that is tiny beside it, and beside the first diagonal entry, means
            that the Krylov space is exhausted.
    """
    q = v / v.norm(dim=1, keepdim=True)
    tiny = 1e-8 if v.dtype == torch.float64 else 1e-5
    basis, alphas, betas = [q], [], []
    alive = torch.ones(len(v), dtype=torch.bool, device=v.device)
    for step in range(steps):
        w = product(q)
        alpha = torch.where(alive, (q * w).sum(1), 0)
        alphas.append(alpha.double())
        if step == steps - 1:
            break
        Q = torch.stack(basis, dim=1)  # [R, step+1, D]
        for _ in range(2):
            w = w - torch.einsum("rjd,rj->rd", Q, torch.einsum("rjd,rd->rj", Q, w))
        beta = w.norm(dim=1)
        alive = alive & (beta >= tiny * alphas[0].abs().clamp(min=floor).to(beta))
        beta = torch.where(alive, beta, 0)
        betas.append(beta.double())
        q = torch.where(alive[:, None], w / beta.clamp(min=torch.finfo(w.dtype).tiny)[:, None], 0)
        basis.append(q)
    empty = alphas[0].new_zeros(len(v), 0)
    return Tridiagonal(torch.stack(alphas, dim=1), torch.stack(betas, dim=1) if betas else empty)


def rademacher(seed: int, point: int, probes: int, n_features: int) -> Tensor:
    """Random signs [K, D], float32: a function of seed and point, whose first rows do not depend on K."""
    bits = np.random.Generator(np.random.Philox(key=[seed, point])).bytes(probes * -(-n_features // 8))
    signs = np.unpackbits(np.frombuffer(bits, np.uint8).reshape(probes, -1), axis=1)[:, :n_features]
    return torch.from_numpy(signs.astype(np.float32) * 2 - 1)
