"""Bar distributions against numbers by hand and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from kfp_methods.components.tabular.fire.bars import Bars

BORDERS = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=torch.float64)


def test_moments_and_quantiles_of_three_bars() -> None:
    bars, p = Bars(BORDERS, tails=False), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    mean, variance = bars.moments(p)
    assert (float(mean), float(variance)) == pytest.approx((0.6, 0.573333), abs=1e-6)
    levels = torch.tensor([0.1, 0.2, 0.5, 0.9], dtype=torch.float64)
    assert bars.quantiles(p, levels).tolist() == pytest.approx([-0.5, 0.0, 0.6, 1.666667], abs=1e-6)


def test_with_tails_density_moments_and_quantiles_agree() -> None:
    bars = Bars(BORDERS)
    logits = torch.tensor([0.3, 1.0, 0.2, -0.5, 0.1], dtype=torch.float64)
    p = logits.softmax(0)

    def density(y: float) -> float:
        at = torch.tensor([y], dtype=torch.float64)
        return float(bars.log_density(logits[None], at).exp())

    def moment(power: int) -> float:
        inner = integrate.quad(lambda y: y**power * density(y), -1, 2, points=[0, 1])[0]
        ends = [(-np.inf, -1), (2, np.inf)]
        return inner + sum(integrate.quad(lambda y: y**power * density(y), *end)[0] for end in ends)

    mean, variance = bars.moments(p)
    assert moment(0) == pytest.approx(1, abs=1e-6)
    assert float(mean) == pytest.approx(moment(1), abs=1e-5)
    assert float(variance) == pytest.approx(moment(2) - moment(1) ** 2, rel=1e-3)
    for level in (0.02, 0.1, 0.4, 0.7, 0.95):
        at = float(bars.quantiles(p, torch.tensor([level], dtype=torch.float64)))
        below = integrate.quad(density, -np.inf, min(at, -1))[0]
        below += integrate.quad(density, -1, at, points=[x for x in (0, 1, 2) if -1 < x < at])[0] if at > -1 else 0
        assert below == pytest.approx(level, abs=1e-6)


def test_half_a_tails_mass_is_within_its_neighbours_width() -> None:
    bars = Bars(torch.tensor([0.0, 0.5, 3.0], dtype=torch.float64))
    only_right = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    levels = torch.tensor([0.5, 0.9], dtype=torch.float64)
    half, far = bars.quantiles(only_right, levels).tolist()
    assert half == pytest.approx(3.0 + 2.5, abs=1e-6)
    assert far == pytest.approx(3.0 + 2.5 * stats.t.ppf(0.95, 3) / stats.t.ppf(0.75, 3), abs=1e-6)


def test_quantiles_rise() -> None:
    p = torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul(3).softmax(-1)
    found = Bars(BORDERS).quantiles(p, torch.linspace(0.001, 0.999, 99, dtype=torch.float64))
    assert bool((found.diff(dim=-1) >= 0).all())


@pytest.mark.parametrize("borders", [[1.0], [0.0, 0.0], [1.0, 0.0]])
def test_borders_that_do_not_rise_are_refused(borders: list[float]) -> None:
    with pytest.raises(ValueError, match="increase"):
        Bars(torch.tensor(borders))
