"""All parametrisations of one model give one score, and the built-in model is EDM's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from kfp_methods.components.science.score_choices import Prediction, Process
from kfp_methods.components.science.score_models import (
    CallableScore,
    EmpiricalScore,
    Standardisation,
    denoised_of,
    level_of,
)
from kfp_methods.components.science.score_networks import Architecture, Preconditioned, build

VARIANCE = torch.tensor([2.0, 0.5, 1e-4], dtype=torch.double)


def prediction(kind: Prediction, process: Process) -> Any:
    """The four outputs of the exact model of a Gaussian with these variances."""

    def function(y: Tensor, sigma: float) -> Tensor:
        level = level_of(process, sigma)
        a, b = level.a, level.b
        denoised = a * VARIANCE * y / (a * a * VARIANCE + b * b)  # E[x0 | y]
        noise = (y - a * denoised) / b
        outputs = {"denoised": denoised, "epsilon": noise, "v": a * noise - b * denoised, "score": -noise / b}
        return outputs[kind]

    return function


@pytest.mark.parametrize("process", ["ve", "vp"])
@pytest.mark.parametrize("kind", ["denoised", "epsilon", "v", "score"])
@pytest.mark.parametrize("sigma", [0.05, 0.6])
def test_every_parametrisation_gives_the_exact_score(kind: Prediction, process: Process, sigma: float) -> None:
    model = CallableScore(prediction(kind, process), prediction=kind, process=process)
    level = model.level(sigma)
    y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    exact = -y / (level.a**2 * VARIANCE + level.b**2)
    torch.testing.assert_close(model.score(y, level), exact, rtol=1e-5, atol=1e-9)
    denoised = denoised_of(model.output(y, level), y, level, kind)
    torch.testing.assert_close(denoised, prediction("denoised", process)(y, sigma), rtol=1e-5, atol=1e-9)


def test_levels_keep_the_variance_or_the_signal() -> None:
    assert level_of("ve", 2.0).a == 1
    level = level_of("vp", 0.6)
    assert level.a**2 + level.b**2 == pytest.approx(1)
    for process, sigma in (("ve", 0.0), ("vp", 1.0), ("ve", math.nan)):
        with pytest.raises(ValueError, match="no noise level"):
            level_of(process, sigma)  # type: ignore[arg-type]


def test_levels_outside_the_model_s_range_are_refused() -> None:
    model = CallableScore(lambda y, sigma: -y, sigma_range=(0.1, 0.5))
    with pytest.raises(ValueError, match=r"0\.1 to 0\.5"):
        model.level(0.6)


def test_the_empirical_denoiser_is_the_weighted_mean() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    model = EmpiricalScore(points)
    middle = model.output(torch.tensor([[0.5, 7.0]]), model.level(0.3))
    torch.testing.assert_close(middle, torch.tensor([[0.5, 0.0]]))
    near = model.output(torch.tensor([[0.9, 0.0]]), model.level(0.1))
    torch.testing.assert_close(near, torch.tensor([[1.0, 0.0]]), rtol=0, atol=1e-6)


def test_standardised_points_have_mean_zero_and_one_common_scale() -> None:
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 10.0, 0.0]) + 100
    standardise = Standardisation.of(x)
    z = standardise(x)
    assert z.mean(0).tolist() == pytest.approx([0, 0, 0], abs=1e-4)
    assert float(z.square().mean()) == pytest.approx(1, abs=1e-4)
    ratio = z.std(0) / x.std(0)
    assert float(ratio[0]) == pytest.approx(float(ratio[1]), rel=1e-4)
    with pytest.raises(ValueError, match="all points are equal"):
        Standardisation.of(torch.full((9, 3), 1e6))


def test_preconditioning_is_edms_and_its_learned_part_sees_unit_variance() -> None:
    seen: list[Tensor] = []

    class Record(torch.nn.Module):
        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            seen.append(torch.cat([x, c], 1))
            return torch.ones_like(x)

    sigma_data, sigma = 0.5, torch.full((20_000, 1), 1.2)
    x = sigma_data * torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    y = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    output = Preconditioned(Record(), sigma_data)(y, sigma)
    total = sigma_data**2 + 1.2**2
    torch.testing.assert_close(output, y * sigma_data**2 / total + 1.2 * sigma_data / math.sqrt(total))
    assert float(seen[0][:, :2].std()) == pytest.approx(1, abs=0.02)
    assert float(seen[0][0, 2]) == pytest.approx(math.log(1.2) / 4)
    # The target of the learned part, (x - c_skip y) / c_out, has unit variance as well.
    target = (x - y * sigma_data**2 / total) / (1.2 * sigma_data / math.sqrt(total))
    assert float(target.std()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "architecture",
    [Architecture("mlp", (6,), 8, 2), Architecture("unet", (1, 8, 8), 8, 3), Architecture("unet", (3, 8, 4), 8, 2)],
)
def test_networks_repeat_treat_rows_alone_and_keep_the_global_generator(architecture: Architecture) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again, other = (build(architecture, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    x, c = torch.randn(4, architecture.n_features), torch.randn(4, 1)
    whole = first(x, c)
    assert whole.shape == x.shape
    assert torch.equal(whole, again(x, c))
    assert not torch.equal(whole, other(x, c))
    torch.testing.assert_close(first(x[2:3], c[2:3]), whole[2:3], rtol=1e-4, atol=1e-5)


def test_a_unet_needs_sides_that_it_can_halve() -> None:
    with pytest.raises(ValueError, match="U-Net"):
        build(Architecture("unet", (1, 10, 10), 8, 3), 0)
