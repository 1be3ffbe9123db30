"""Training learns a known score, repeats to the last bit, and goes on after a kill as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kfp_methods.checkpoints import Checkpoints
from kfp_methods.components.science.score_networks import Architecture
from kfp_methods.components.science.score_training import Recipe, train
from kfp_methods.context import Context
from kfp_methods.errors import InputError

MLP = Architecture("mlp", (2,), 32, 2)
QUICK = Recipe(steps=60, batch_size=32)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(300, 2, generator=torch.Generator().manual_seed(0))


def weights(net: torch.nn.Module) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in net.state_dict().values()])


@pytest.mark.slow
def test_the_denoiser_of_a_gaussian_is_learned(x: Tensor) -> None:
    net = train(x, MLP, Recipe(steps=1500), seed=0).net
    y = torch.randn(500, 2, generator=torch.Generator().manual_seed(2))
    for sigma in (0.1, 0.5, 2.0):
        noised = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
        exact = noised / (1 + sigma**2)
        with torch.no_grad():
            error = (net(noised, torch.full((500, 1), sigma)) - exact).square().mean().sqrt()
        assert float(error) < 0.2 * sigma / (1 + sigma**2) ** 0.5


def test_the_same_seed_trains_the_same_network_whatever_the_global_generator(x: Tensor) -> None:
    torch.manual_seed(1)
    first = train(x, MLP, QUICK, seed=3)
    torch.manual_seed(2)
    again = train(x, MLP, QUICK, seed=3)
    assert torch.equal(weights(first.net), weights(again.net))
    assert first.losses == again.losses
    assert len(first.losses) == 3
    assert not torch.equal(weights(first.net), weights(train(x, MLP, QUICK, seed=4).net))


def test_losses_are_averages_over_windows(x: Tensor) -> None:
    fifty = train(x, MLP, Recipe(steps=50, batch_size=32), seed=0)
    assert len(fifty.losses) == 3
    assert all(0 < loss < 10 for loss in fifty.losses)


class KilledError(BaseException):
    """What SIGKILL is to a test."""


@pytest.mark.parametrize("killed_after", [1, 20, 33, 59])
def test_a_killed_training_goes_on_to_the_same_bits(x: Tensor, tmp_path: Path, killed_after: int) -> None:
    whole = train(x, MLP, QUICK, seed=0)

    def context() -> Context:
        return Context(
            tmp_path, wanted_device="cpu", find_checkpoints=lambda: Checkpoints(tmp_path / "kept", "test", {}, 0.0)
        )

    done: list[int] = []

    def killed(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
        for step in context().resumable(items, label, **states):
            if step == killed_after:
                raise KilledError
            yield step

    with pytest.raises(KilledError):
        train(x, MLP, QUICK, seed=0, resumable=killed)

    def retried(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
        for step in context().resumable(items, label, **states):
            done.append(step)
            yield step

    resumed = train(x, MLP, QUICK, seed=0, resumable=retried)
    assert done == list(range(killed_after, 60))
    assert torch.equal(weights(resumed.net), weights(whole.net))
    assert resumed.losses == whole.losses


def test_a_training_that_leaves_the_finite_numbers_is_the_learning_rate_s_fault(x: Tensor) -> None:
    with pytest.raises(InputError, match="learning_rate"):
        train(x * 1e20, MLP, Recipe(steps=40, learning_rate=1.0), seed=0)
