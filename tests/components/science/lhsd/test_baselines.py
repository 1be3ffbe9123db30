"""The baselines agree with their closed forms, and with scikit-dimension called by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import skdim
import torch
from torch import Tensor

from kfp_methods.components.science.lhsd import baselines
from kfp_methods.components.science.lhsd.baselines import flipd, neighbour_estimate, neighbours, normal_bundle
from kfp_methods.components.science.lhsd.estimate import Quadrature, evaluation_points
from tests.components.science.lhsd.conftest import GaussianPlane

SIGMA = 0.1


def closed_form(plane: GaussianPlane, x: Tensor) -> Tensor:
    """D - d sigma^2/(s^2+sigma^2) - (D-d) + sigma^2 |s|^2."""
    score = -x @ plane.precision(1.0, SIGMA)
    variance = plane.s**2 + SIGMA**2
    return plane.D - plane.d * SIGMA**2 / variance - (plane.D - plane.d) + SIGMA**2 * score.square().sum(1)


def test_flipd_is_its_closed_form_on_a_gaussian_plane() -> None:
    plane = GaussianPlane(D=60, d=7)
    x = plane.points(5)
    found = flipd(plane.model(), x, SIGMA, Quadrature(probes=8))
    torch.testing.assert_close(found, closed_form(plane, x), rtol=1e-8, atol=1e-8)
    small = flipd(plane.model(), 0 * x, 1e-4, Quadrature(probes=8))
    assert small.tolist() == pytest.approx([7.0] * 5, abs=1e-4)


def test_flipd_estimates_the_trace_above_128_features() -> None:
    plane = GaussianPlane(D=150, d=7)
    x = plane.points(4)
    found = flipd(plane.model(), x, SIGMA, Quadrature(probes=400))
    deviation = math.sqrt(2 * 7 / 400)  # of a projector's trace; the rest of the trace is exact
    assert (found - closed_form(plane, x)).abs().max() < 4 * deviation


@pytest.mark.parametrize("D", [60, 150])
def test_flipd_over_noised_copies_is_the_mean_over_them(D: int) -> None:
    plane, quadrature = GaussianPlane(D=D, d=7), Quadrature(probes=400, n_noise=3)
    model, x = plane.model(), plane.points(3)
    y = evaluation_points(x, torch.arange(3), model.level(SIGMA), quadrature)
    expected = closed_form(plane, y).unflatten(0, (3, 3)).mean(1)
    error = (flipd(model, x, SIGMA, quadrature) - expected).abs().max()
    assert error < (1e-6 if D <= 128 else 4 * math.sqrt(2 * 7 / 1200))


@pytest.mark.parametrize("process", ["ve", "vp"])
@pytest.mark.parametrize("rule", ["difference", "ratio"])
def test_the_normal_bundle_counts_a_plane_exactly(process: str, rule: str) -> None:
    plane = GaussianPlane(D=24, d=5)
    found = normal_bundle(plane.model(process), 0 * plane.points(3), 0.05, seed=0, rule=rule)  # type: ignore[arg-type]
    assert found.tolist() == [5.0] * 3


def test_off_the_mean_only_the_ratio_rule_takes_the_mean_score_for_a_normal_direction() -> None:
    """All 4 D scores share the mean's, a tangent vector; beside the noise in the others it makes the larger ratio."""
    plane = GaussianPlane(D=24, d=5)
    model, x = plane.model(), plane.points(3)
    assert normal_bundle(model, x, 0.05, seed=0, rule="difference").tolist() == [5.0] * 3
    assert normal_bundle(model, x, 0.05, seed=0, rule="ratio").tolist() == [4.0] * 3


def test_a_point_of_the_data_is_not_its_own_neighbour_but_its_copy_is() -> None:
    data = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    distances, rows = neighbours(data, torch.tensor([[5.0, 0.0], [0.0, 0.0], [4.0, 0.0]]), k=2)
    assert distances.tolist() == [[4.0, 5.0], [0.0, 1.0], [1.0, 3.0]]
    assert rows[0].tolist()[0] == 2
    assert rows[2].tolist() == [3, 2]
    assert neighbours(data, data, k=9)[0].shape == (4, 3)


def test_neighbours_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    whole = neighbours(data, data[:9], 5)
    monkeypatch.setattr(baselines, "_VALUES_AT_ONCE", 1)
    for first, second in zip(whole, neighbours(data, data[:9], 5), strict=True):
        np.testing.assert_array_equal(first, second)


def test_estimates_are_those_of_scikit_dimension() -> None:
    plane = GaussianPlane(D=8, d=3)
    data = plane.points(300)
    known = data.numpy()
    mle = skdim.id.MLE().fit(known, n_neighbors=20).dimension_pw_[:10]
    np.testing.assert_allclose(neighbour_estimate("mle", data, data[:10], 0), mle, rtol=1e-6)
    for name, kind in (("twonn", skdim.id.TwoNN), ("lpca", skdim.id.lPCA)):
        expected = kind().fit_pw(known, n_neighbors=100).dimension_pw_[:10]
        found = neighbour_estimate(name, data, data[:10], 0)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert neighbour_estimate("lpca", data, data[:10], 0).tolist() == [3.0] * 10


@pytest.mark.slow
def test_ess_sees_the_dimension_of_a_plane() -> None:
    data = GaussianPlane(D=6, d=2).points(150)
    found = neighbour_estimate("ess", data, data[:2], 0)
    np.testing.assert_allclose(found, 2, atol=0.4)
    np.testing.assert_array_equal(found, neighbour_estimate("ess", data, data[:2], 0))


@pytest.mark.parametrize("name", ["mle", "twonn", "lpca"])
def test_among_copies_of_one_point_no_dimension_is_made_up(name: str) -> None:
    data = torch.cat([torch.zeros(150, 4), torch.randn(150, 4, generator=torch.Generator().manual_seed(0))])
    found = neighbour_estimate(name, data, data[:1], 0)[0]  # type: ignore[arg-type]
    assert math.isnan(found) or found == 0
