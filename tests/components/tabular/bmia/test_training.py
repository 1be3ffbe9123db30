"""Training: deterministic, by the recipe, the same side by side as one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kfp_methods.checkpoints import Checkpoints
from kfp_methods.components.tabular.bmia import architectures, sample
from kfp_methods.components.tabular.bmia.architectures import Architecture, build, last_layer_weights
from kfp_methods.components.tabular.bmia.parallel import Job, train_all
from kfp_methods.components.tabular.bmia.posterior import with_bias
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import reference_jobs
from kfp_methods.components.tabular.bmia.training import Recipe, accuracy, derived_seed, outputs, train
from kfp_methods.context import Context
from kfp_methods.errors import InputError

SMALL = Recipe(hidden=(16,), epochs=2)


@pytest.fixture(scope="module")
def digits() -> Records:
    return sample.digits().take(np.arange(300))


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_training_depends_on_its_seed_alone(digits: Records) -> None:
    state = torch.get_rng_state()
    first = train(digits, 10, SMALL, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert same(first, train(digits, 10, SMALL, seed=1))
    assert not same(first, train(digits, 10, SMALL, seed=2))


def test_the_recipe_is_nesterov_with_coupled_decay_and_a_cosine_an_epoch(digits: Records) -> None:
    """Against the update rule written out."""
    recipe = Recipe("linear", epochs=3, batch_size=300)
    trained = train(digits, 10, recipe, seed=4)
    initial = build("linear", digits.x.shape[1:], 10, seed=derived_seed(4, 0))
    weights = last_layer_weights(initial)
    phi, target = with_bias(digits.x.flatten(1)), nn.functional.one_hot(digits.y, 10).double()
    velocity = torch.zeros_like(weights)
    for epoch in range(3):
        rate = 0.05 * (1 + np.cos(np.pi * epoch / 3)) / 2
        gradient = (torch.softmax(phi @ weights.T, -1) - target).T @ phi / 300 + 5e-4 * weights
        velocity = 0.9 * velocity + gradient
        weights = weights - rate * (gradient + 0.9 * velocity)
    torch.testing.assert_close(last_layer_weights(trained), weights, rtol=1e-4, atol=1e-6)


def test_the_default_recipe_learns_the_digits(digits: Records) -> None:
    model = train(digits, 10, Recipe(hidden=(64,)), seed=0)
    assert accuracy(outputs(model, digits.x)[1], digits.y) > 0.98


def test_trainings_side_by_side_equal_single_ones_on_any_number_of_threads(digits: Records) -> None:
    jobs = [Job(digits.take(np.arange(k, 300)), 10, SMALL, seed=k) for k in range(3)]
    alone = [train(job.records, 10, SMALL, seed=job.seed) for job in jobs]
    before, calls = torch.get_num_threads(), []

    def counted(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
        for item in items:
            yield item
            calls.append(item)

    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            together = train_all(jobs, resumable=counted)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        assert all(same(one, other.model) for one, other in zip(alone, together, strict=True))
    assert calls == [0, 1, 2] * 2
    assert all(one.seconds > 0 for one in together)


def test_an_interruption_stops_the_trainings_still_running(digits: Records) -> None:
    endless = Recipe(hidden=(16,), epochs=1_000_000)
    jobs = [Job(digits, 10, SMALL, 0), Job(digits, 10, endless, 1)]

    def interrupted(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
        yield items[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_all(jobs, resumable=interrupted)


def test_what_was_trained_before_an_interruption_is_not_trained_again(digits: Records, tmp_path: Path) -> None:
    jobs = [Job(digits, 10, SMALL, seed=k) for k in range(3)]
    whole = train_all(jobs)
    first, second = (
        Context(tmp_path, "cpu", find_checkpoints=lambda: Checkpoints(tmp_path, "bmia", {}, every_seconds=0))
        for _ in range(2)
    )

    def cut_off(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
        for item in first.resumable(items, label, **states):
            if item == 2:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        train_all(jobs, resumable=cut_off)
    done: list[int] = []

    def going_on(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
        for item in second.resumable(items, label, **states):
            done.append(item)
            yield item

    again = train_all(jobs, resumable=going_on)
    assert done == [2]
    assert all(same(one.model, other.model) for one, other in zip(whole, again, strict=True))


def test_epochs_are_reported(digits: Records) -> None:
    seen: list[int] = []
    train(digits, 10, SMALL, seed=0, on_epoch=seen.append)
    assert seen == [1, 2]


def test_divergence_is_an_error_of_the_learning_rate(digits: Records) -> None:
    unscaled = Records(digits.x * 1e25, digits.y)
    with pytest.raises(InputError, match=r"lr=0\.05: the training loss is not finite"):
        train(unscaled, 10, Recipe("linear", epochs=5), seed=0)


def test_references_train_on_random_halves_of_the_pool(digits: Records) -> None:
    few, many = (reference_jobs(digits, K, 10, SMALL, seed=5) for K in (1, 3))
    assert [len(job.records) for job in many] == [150] * 3
    assert few[0].seed == many[0].seed
    assert few[0].records.x.equal(many[0].records.x)
    assert not many[0].records.x.equal(many[1].records.x)
    assert len({job.seed for job in many}) == 3


@pytest.mark.parametrize(
    ("architecture", "shape", "n_parameters"),
    [
        ("linear", (5,), 5 * 3 + 3),
        ("mlp", (28, 28), 784 * 256 + 256 + 256 * 256 + 256 + 256 * 3 + 3),
        ("cnn", (3, 12, 12), 27 * 32 + 32 + 288 * 64 + 64 + 1024 * 128 + 128 + 128 * 3 + 3),
        ("resnet18", (28, 28), 11_168_832 - 1_152 + 512 * 3 + 3),
    ],
)
def test_an_architecture_ends_in_a_linear_layer_over_the_features(
    architecture: Architecture, shape: tuple[int, ...], n_parameters: int
) -> None:
    model = build(architecture, shape, 3, seed=0).eval()
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    features, logits = outputs(model, x)
    assert sum(p.numel() for p in model.parameters()) == n_parameters
    torch.testing.assert_close(with_bias(features) @ last_layer_weights(model).T, logits.double(), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(model(x), logits)
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["cnn", "resnet18"])
def test_convolutional_networks_train(architecture: Architecture, digits: Records) -> None:
    few = digits.take(np.arange(64))
    recipe = Recipe(architecture, epochs=8, batch_size=16, learning_rate=0.02, mixed_precision=architecture == "cnn")
    model = train(few, 10, recipe, seed=0)
    assert accuracy(outputs(model, few.x)[1], few.y) > 0.8


def test_initial_weights_follow_torchs_default_law() -> None:
    layer = architectures.last_layer(build("linear", (400,), 300, seed=0))
    assert layer.weight.abs().max().item() <= 1 / 20
    assert layer.weight.std().item() == pytest.approx(1 / 20 / 3**0.5, rel=0.01)


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="training mode"):
        outputs(build("linear", (4,), 2, seed=0).train(), torch.zeros(1, 4))


def test_a_model_that_ends_in_something_else_is_refused() -> None:
    with pytest.raises(InputError, match="the last layer is ReLU, not linear"):
        architectures.last_layer(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_convolutions_over_table_rows_are_refused() -> None:
    with pytest.raises(InputError, match="arch=cnn: needs images"):
        build("cnn", (7,), 2, seed=0)
