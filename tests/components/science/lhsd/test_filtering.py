"""The filter is the paper's, and the counts of a Gaussian on a plane are those that the formula gives."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from kfp_methods.components.science.lhsd.estimate import Quadrature, eigenvalues, spectra
from kfp_methods.components.science.lhsd.filtering import Filter, probe_deviation
from tests.components.science.lhsd.conftest import GaussianPlane


def test_the_filter_is_one_at_zero_half_at_the_cut_even_and_falling() -> None:
    f, sigma = Filter(c=0.3, p=4), 0.5
    kappa = f.c / sigma**2
    values = torch.tensor([0.0, kappa, -kappa, 2 * kappa, -2 * kappa], dtype=torch.double)
    filtered = f(values, sigma)
    assert filtered[0] == 1
    assert filtered[1].item() == pytest.approx(0.5)
    assert torch.equal(filtered[1::2], filtered[2::2])
    assert (f(torch.linspace(0, 9, 50), sigma).diff() < 0).all()


def test_the_cut_scales_with_the_inverse_square_of_sigma() -> None:
    f, values = Filter(), torch.linspace(0, 5, 11, dtype=torch.double)
    torch.testing.assert_close(f(values, 0.5), f(values * 4, 0.25))


@pytest.mark.parametrize(("c", "leak"), [(0.5, 0.0588), (0.2, 0.0016), (0.1, 1e-4)])
def test_a_normal_direction_leaks_what_the_formula_says(c: float, leak: float) -> None:
    f, sigma = Filter(c=c), 0.07
    assert f.normal_leak() == pytest.approx(leak, rel=0.01)
    assert f(torch.tensor(1 / sigma**2, dtype=torch.double), sigma).item() == pytest.approx(f.normal_leak())


def test_a_tangent_direction_loses_what_the_formula_says() -> None:
    f, sigma, variance = Filter(), 0.3, 2.0
    kept = f(torch.tensor(1 / (variance + sigma**2), dtype=torch.double), sigma).item()
    assert 1 - kept == pytest.approx(f.tangent_loss(variance, sigma), rel=1e-9)


@pytest.mark.parametrize(("c", "count"), [(0.2, 10.1437), (0.5, 15.2941), (0.1, 10.0080)])
def test_a_gaussian_on_a_plane_counts_its_dimension_and_the_leak(c: float, count: float) -> None:
    plane = GaussianPlane(D=100, d=10)
    H = eigenvalues(plane.model(), plane.points(3), 0.1, Quadrature())
    assert H is not None
    dimension = Filter(c=c)(H, 0.1).sum(-1).squeeze(1)
    assert dimension.tolist() == pytest.approx([count] * 3, abs=1e-3)


def test_padding_with_constant_coordinates_adds_only_their_leak() -> None:
    f, sigma = Filter(), 0.1
    counts = []
    for D in (100, 150):
        H = eigenvalues(GaussianPlane(D=D, d=10).model(), GaussianPlane(D=D, d=10).points(1), sigma, Quadrature())
        assert H is not None
        counts.append(float(f(H, sigma).sum()))
    assert counts[1] - counts[0] == pytest.approx(50 * f.normal_leak(), abs=1e-9)


def test_the_band_is_relative_or_in_eigenvalues_as_asked() -> None:
    sigma, one = 0.5, torch.ones(1, 5) / 5
    values = torch.tensor([[0.0, 0.17, 0.2, 0.23, 1.0]]) / sigma**2
    assert [float(part) for part in Filter().mass(values, one, sigma)] == pytest.approx([0.2, 0.6, 0.2])
    narrow = Filter(delta=0.1, band="absolute")  # within .1 of kappa = .8, that is .025 of c in units of 1/sigma^2
    assert [float(part) for part in narrow.mass(values, one, sigma)] == pytest.approx([0.4, 0.2, 0.4])


def test_the_probes_deviation_is_that_of_a_random_projector() -> None:
    """All 2^D sign vectors, averaged over random d-planes of R^D."""
    D, d, K = 8, 3, 1
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=D)), dtype=torch.double)
    variances = []
    for seed in range(300):
        Q = GaussianPlane(D=D, d=d, seed=seed).plane
        variances.append(float((signs @ Q).square().sum(1).var(correction=0)))
    expected = float(probe_deviation(torch.tensor(float(d)), D, K))
    assert math.sqrt(np.mean(variances)) == pytest.approx(expected, rel=0.03)
    assert float(probe_deviation(torch.tensor(900.0), 3072, 8)) == pytest.approx(12.6, abs=0.05)


def test_the_reported_standard_error_is_that_of_the_mean_over_probes() -> None:
    plane = GaussianPlane(D=64, d=20)
    found = spectra(plane.model(), plane.points(40), 0.1, Quadrature(probes=32, steps=3))
    estimates, stderr = found.dimension(Filter())
    exact = 20 + 44 * Filter().normal_leak()
    assert float(((estimates - exact) / stderr).square().mean()) == pytest.approx(1, abs=0.45)
