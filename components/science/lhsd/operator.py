"""Products of a vector with the Hessian of -log p_t, by differentiating the score: the matrix is never formed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.func import jvp, vjp

Vectors = Callable[[Tensor], Tensor]
Forward = Literal["forward", "double-backward"]
_AGREE = 1e-3


class Hessian:
    """v -> -1/2 (J + J^T) v with J the score's Jacobian at each of the points y [R, D]; or -J^T v (the paper's).

    A learned score is no exact gradient, so J is not symmetric, and Lanczos needs a symmetric operator.

    Args:
        score: y [R, D] -> [R, D], each row by itself.
        y: points at which it is differentiated.
        symmetrise: 1/2 (J + J^T), or J^T alone.
        how: J v by differentiating the linear map u -> J^T u, or by forward mode; see `forward_rule`.

    Attributes:
        products: derivative products computed so far for each row.
    """

    def __init__(self, score: Vectors, y: Tensor, *, symmetrise: bool = True, how: Forward = "double-backward") -> None:
        self._score, self._y, self._symmetrise, self._how = score, y, symmetrise, how
        output, self._vjp, *_ = vjp(score, y)
        self._of_linear: Callable[[Tensor], tuple[Tensor]] | None = None
        self._shape = output.shape
        self.products = 0

    def __call__(self, v: Tensor) -> Tensor:
        """H v for a vector of each row [R, D]."""
        transposed = self.transposed(v)
        if not self._symmetrise:
            return -transposed
        return -(transposed + self.forward(v)) / 2

    def transposed(self, v: Tensor) -> Tensor:
        """J^T v [R, D]: a vector-Jacobian product."""
        self.products += 1
        return self._vjp(v)[0].detach()

    def forward(self, v: Tensor) -> Tensor:
        """J v [R, D]: a Jacobian-vector product."""
        self.products += 1
        if self._how == "forward":
            return jvp(self._score, (self._y,), (v,))[1].detach()
        if self._of_linear is None:  # J^T u is linear in u, so one graph serves every v
            _, self._of_linear, *_ = vjp(lambda u: self._vjp(u)[0], self._y.new_zeros(self._shape))
        return self._of_linear(v)[0].detach()


def forward_rule(score: Vectors, y: Tensor, v: Tensor) -> Forward:
    """How J v can be had of this score; y, v: a few rows [R, D].

    Differentiating twice backwards is the faster way and works wherever second derivatives exist; forward mode is
    the other. Either is taken only once it is seen to agree with J^T, for fused kernels raise and some modules silently
    give zeros: with w = J^T v, v^T (J w) = |w|^2.

    Raises:
        RuntimeError: neither way works.
    """
    w = Hessian(score, y).transposed(v)
    squared = w.square().sum(1)
    ways: tuple[Forward, ...] = ("double-backward", "forward")
    for how in ways:
        try:
            form = (v * Hessian(score, y, how=how).forward(w)).sum(1)
        except (NotImplementedError, RuntimeError):
            continue
        if float((form - squared).norm()) <= _AGREE * float(squared.norm()):
            return how
    raise RuntimeError("the score can be differentiated backwards only, and once")


def dense(score: Vectors, y: Tensor, rows_at_once: int) -> Tensor:
    """The symmetrised Hessian -1/2 (J + J^T) [N, D, D] at points y [N, D], from D vector-Jacobian products each."""
    D = y.shape[1]
    identity = torch.eye(D, dtype=y.dtype, device=y.device)
    jacobians = []
    for some in y.split(max(1, rows_at_once // D)):
        operator = Hessian(score, some.repeat_interleave(D, 0), symmetrise=False)
        jacobians.append(-operator(identity.repeat(len(some), 1)).unflatten(0, (len(some), D)))
    J = torch.cat(jacobians)
    return -(J + J.mT) / 2
