"""The noise level is found where the spectrum has a gap, and its absence is noticed."""

from __future__ import annotations

import torch
from torch import Tensor

from kfp_methods.components.science.lhsd.estimate import Quadrature
from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.lhsd.noise_level import MOST_IN_BAND, search
from kfp_methods.components.science.score_models import CallableScore, EmpiricalScore
from tests.components.science.lhsd.conftest import GaussianPlane

F, Q = Filter(), Quadrature()


def gaussian(variances: Tensor) -> CallableScore:
    return CallableScore(lambda y, sigma: -y / (variances + sigma**2), sigma_range=(0.03, 3.0))


def test_a_gap_is_found_between_the_two_scales() -> None:
    variances = torch.tensor([1.0] * 10 + [1e-4] * 30).double()
    found = search(gaussian(variances), torch.randn(9, 40).double(), F, Q)
    assert found.has_gap
    # The cut at c lies between sigma^2/(1 + sigma^2) and sigma^2/(1e-4 + sigma^2) for .005 < sigma < .5.
    assert 0.03 <= found.sigma < 0.5
    assert found.safe[found.chosen]
    assert found.below[found.chosen] > 0.15
    assert found.within[found.chosen] < MOST_IN_BAND


def test_a_cut_outside_both_peaks_is_not_safe() -> None:
    """All eigenvalues on one side: nothing in the band, and nothing counted either."""
    found = search(gaussian(torch.full((40,), 1e-6).double()), torch.randn(9, 40).double(), F, Q)
    assert max(found.within) == 0
    assert not found.has_gap


def test_a_few_eigenvalues_in_the_band_are_no_gap_when_few_are_counted() -> None:
    """Less than 2% in the band is no gap where the tangent directions are 2% too: the count would be half chance."""
    variances = torch.cat([torch.tensor([40.0, 40.0, 4.0, 4.0]), torch.full((252,), 1e-4)]).double()
    model = CallableScore(lambda y, sigma: -y / (variances + sigma**2), sigma_range=(0.99, 1.01))
    found = search(model, torch.randn(16, 256).double(), F, Q, n_levels=2)
    assert max(found.within) < MOST_IN_BAND
    assert min(found.below) > 0.5 / 256
    assert not found.has_gap


def test_smoothing_beyond_the_data_s_spread_leaves_no_gap() -> None:
    cloud = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)).double()
    model = EmpiricalScore(cloud)
    model.sigma_range = (20.0, 200.0)
    found = search(model, cloud, F, Q)
    assert not found.has_gap
    assert min(found.above) > 0.99


def test_the_middle_of_the_longest_safe_run_is_chosen() -> None:
    plane = GaussianPlane(D=40, d=10)
    model = plane.model()
    model.sigma_range = (0.03, 3.0)
    found = search(model, plane.points(9), F, Q)
    run = [index for index, safe in enumerate(found.safe) if safe]
    assert run == list(range(run[0], run[-1] + 1))
    assert found.chosen == run[0] + (len(run) - 1) // 2
