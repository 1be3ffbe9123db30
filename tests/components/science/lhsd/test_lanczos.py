"""Lanczos quadrature is exact where theory says so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.lhsd.lanczos import Tridiagonal, lanczos, rademacher
from tests.components.science.lhsd.conftest import GaussianPlane

F, SIGMA = Filter(), 0.6


def symmetric(D: int, seed: int = 0) -> Tensor:
    A = torch.randn(D, D, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    return A + A.T


def quadratic_form(H: Tensor, v: Tensor) -> Tensor:
    """v^T f(H) v of each row, from all eigenvalues."""
    values, vectors = torch.linalg.eigh(H)
    return ((v @ vectors).square() * F(values, SIGMA)).sum(1)


def estimated(H: Tensor, v: Tensor, steps: int) -> Tensor:
    theta, weight = lanczos(lambda q: q @ H, v, steps, 1.0).nodes()
    return v.square().sum(1) * (weight * F(theta, SIGMA)).sum(1)


def test_with_as_many_steps_as_dimensions_each_probe_is_exact() -> None:
    H, v = symmetric(12), torch.randn(20, 12, dtype=torch.double)
    torch.testing.assert_close(estimated(H, v, 12), quadratic_form(H, v), rtol=1e-8, atol=1e-8)


def test_two_eigenvalues_need_two_steps() -> None:
    H = GaussianPlane(D=30, d=4).precision(1.0, SIGMA)
    v = torch.stack([rademacher(0, row, 1, 30)[0] for row in range(9)]).double()
    found = lanczos(lambda q: q @ H, v, 6, 1 / SIGMA**2)
    torch.testing.assert_close(estimated(H, v, 2), quadratic_form(H, v), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(estimated(H, v, 6), quadratic_form(H, v), rtol=1e-8, atol=1e-8)
    assert not found.beta[:, 1:].any()
    assert not found.alpha[:, 2:].any()


def test_a_breakdown_in_one_row_leaves_the_others_alone() -> None:
    H, v = symmetric(8), torch.randn(3, 8, dtype=torch.double)
    v[1] = torch.linalg.eigh(H)[1][:, 2]  # an eigenvector: the Krylov space has one dimension
    torch.testing.assert_close(estimated(H, v, 8), quadratic_form(H, v), rtol=1e-8, atol=1e-8)


def test_all_sign_vectors_together_give_the_trace() -> None:
    D = 9
    H = symmetric(D)
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=D)), dtype=torch.double)
    trace = float(F(torch.linalg.eigvalsh(H), SIGMA).sum())
    assert float(estimated(H, signs, D).mean()) == pytest.approx(trace, rel=1e-10)


def test_nodes_are_the_eigenvalues_that_scipy_finds_and_weights_sum_to_one() -> None:
    found = lanczos(lambda q: q @ symmetric(20), torch.randn(4, 20, dtype=torch.double), 7, 1.0)
    theta, weight = found.nodes()
    assert weight.sum(1).tolist() == pytest.approx([1.0] * 4)
    for row in range(4):
        values, vectors = eigh_tridiagonal(found.alpha[row].numpy(), found.beta[row].numpy())
        np.testing.assert_allclose(theta[row].numpy(), values, atol=1e-10)
        np.testing.assert_allclose(weight[row].numpy(), vectors[0] ** 2, atol=1e-10)


def test_fewer_steps_are_a_leading_block() -> None:
    H, v = symmetric(15), torch.randn(5, 15, dtype=torch.double)
    long, short = lanczos(lambda q: q @ H, v, 9, 1.0), lanczos(lambda q: q @ H, v, 4, 1.0)
    torch.testing.assert_close(long.first(4).alpha, short.alpha)
    torch.testing.assert_close(long.first(4).beta, short.beta)
    assert isinstance(long.first(1).nodes()[0], Tensor)


def test_float32_products_with_many_steps_stay_orthogonal() -> None:
    """Without re-orthogonalisation copies of the extreme eigenvalues appear and the weights drift."""
    values = torch.logspace(-3, 3, 60)
    vectors = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(1)))[0]
    H = (vectors * values) @ vectors.T
    v = torch.stack([rademacher(3, row, 1, 60)[0] for row in range(6)])
    found = lanczos(lambda q: q @ H, v, 40, 1.0)
    theta, _ = found.nodes()
    assert (theta > 0.9e3).sum(1).max() == 1
    exact = quadratic_form(H.double(), v.double())
    theta, weight = found.nodes()
    torch.testing.assert_close(60 * (weight * F(theta, SIGMA)).sum(1), exact, rtol=2e-3, atol=2e-3)


def test_signs_depend_on_seed_and_point_and_not_on_how_many_are_drawn() -> None:
    few, many = rademacher(5, 3, 4, 21), rademacher(5, 3, 11, 21)
    assert torch.equal(few, many[:4])
    assert set(many.unique().tolist()) == {-1.0, 1.0}
    assert not torch.equal(few, rademacher(5, 4, 4, 21))
    assert not torch.equal(few, rademacher(6, 3, 4, 21))
    assert abs(float(rademacher(0, 0, 400, 100).mean())) < 0.02


def test_a_single_step_has_one_node() -> None:
    theta, weight = Tridiagonal(torch.full((2, 1), 3.0), torch.zeros(2, 0)).nodes()
    assert theta.tolist() == [[3.0], [3.0]]
    assert weight.tolist() == [[1.0], [1.0]]
