"""Products with the Hessian agree with dense Jacobians, whichever way they are differentiated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kfp_methods.components.science.lhsd.operator import Hessian, dense, forward_rule


@pytest.fixture
def score() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 5)).double()


@pytest.fixture
def y() -> Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.double)


def jacobians(score: nn.Module, y: Tensor) -> Tensor:
    return torch.stack([torch.autograd.functional.jacobian(score, row[None]).squeeze() for row in y])


@pytest.mark.parametrize("how", ["forward", "double-backward"])
def test_products_are_those_of_the_dense_jacobian(score: nn.Module, y: Tensor, how: Any) -> None:
    J, v = jacobians(score, y), torch.randn_like(y)
    operator = Hessian(score, y, how=how)
    torch.testing.assert_close(operator.transposed(v), torch.einsum("nij,ni->nj", J, v))
    torch.testing.assert_close(operator.forward(v), torch.einsum("nij,nj->ni", J, v))
    torch.testing.assert_close(operator(v), -torch.einsum("nij,nj->ni", (J + J.mT) / 2, v))
    assert operator.products == 4
    paper = Hessian(score, y, symmetrise=False, how=how)
    torch.testing.assert_close(paper(v), -torch.einsum("nij,ni->nj", J, v))
    assert paper.products == 1


def test_one_graph_serves_many_vectors(score: nn.Module, y: Tensor) -> None:
    J, operator = jacobians(score, y), Hessian(score, y)
    for seed in range(3):
        v = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
        torch.testing.assert_close(operator.forward(v), torch.einsum("nij,nj->ni", J, v))


@pytest.mark.parametrize("rows_at_once", [1, 7, 100])
def test_the_dense_hessian_is_symmetric_and_complete(score: nn.Module, y: Tensor, rows_at_once: int) -> None:
    J = jacobians(score, y)
    torch.testing.assert_close(dense(score, y, rows_at_once), -(J + J.mT) / 2)


class Once(torch.autograd.Function):
    """The derivative of y -> y^3 along a cotangent; it cannot be differentiated again."""

    @staticmethod
    def forward(y: Tensor, cotangent: Tensor) -> Tensor:
        return 3 * y**2 * cotangent

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        raise NotImplementedError("no second derivative")


class ForwardOnly(torch.autograd.Function):
    """y -> y^3, as a fused kernel with a forward derivative and one backward derivative."""

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return y**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return Once.apply(ctx.saved_tensors[0], cotangent)

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * tangent


class ZeroTangents(ForwardOnly):
    """The same, but its forward derivative is silently zero, as a loaded TorchScript module's is."""

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return torch.zeros_like(tangent)


class ZeroTangentsTwice(ZeroTangents):
    """Zero tangents, but a backward derivative that can be differentiated."""

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * cotangent


@pytest.mark.parametrize(
    ("function", "how"),
    [(ForwardOnly, "forward"), (ZeroTangentsTwice, "double-backward"), (torch.sin, "double-backward")],
)
def test_the_way_that_works_is_taken(y: Tensor, function: Any, how: Any) -> None:
    score = getattr(function, "apply", function)
    v = torch.ones_like(y)
    assert forward_rule(score, y, v) == how
    J = jacobians(score, y)
    torch.testing.assert_close(Hessian(score, y, how=how)(v), -torch.einsum("nij,nj->ni", J, v))


def test_where_no_way_works_that_is_said(y: Tensor) -> None:
    with pytest.raises(RuntimeError, match="backwards only"):
        forward_rule(ZeroTangents.apply, y, torch.ones_like(y))


def test_a_random_direction_that_cancels_is_no_contradiction() -> None:
    """J = I and a v whose flipped self is orthogonal to it: the comparison must not divide by chance zeros."""
    y, v = torch.randn(2, 4), torch.tensor([[1.0, 1.0, -1.0, -1.0]] * 2)
    assert forward_rule(lambda points: points * 1.0, y, v) == "double-backward"
