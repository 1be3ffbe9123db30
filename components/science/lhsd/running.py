"""From validated inputs to assessed points: of models trained on the embedded sample, or of the user's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kfp_methods.components.science.lhsd import tables
from kfp_methods.components.science.lhsd.assessment import Assessed, Question, Settings, assess
from kfp_methods.components.science.lhsd.costs import Cost, costs
from kfp_methods.components.science.lhsd.estimate import Quadrature
from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.lhsd.sample import Part, part
from kfp_methods.components.science.score_files import NetworkScore, NetworkSettings
from kfp_methods.components.science.score_models import EmpiricalScore, ScoreModel, Standardisation
from kfp_methods.components.science.score_networks import Architecture
from kfp_methods.components.science.score_training import Recipe, train
from kfp_methods.errors import InputError, Problem
from kfp_methods.networks import one_core

if TYPE_CHECKING:
    from kfp_methods.components.science.lhsd.component import LhsdInputs
    from kfp_methods.components.science.lhsd.user_data import UserData
    from kfp_methods.context import Context

_IMAGE_SIDE = 28
_FAR_OUTSIDE = 3.0


@dataclass(frozen=True)
class Found:
    """All that a run found: assessed parts, seed by seed, and the costs that each seed measured."""

    parts: list[Assessed]
    costs: dict[int, list[Cost]] = field(default_factory=dict)


@one_core()
def sample(inputs: LhsdInputs, context: Context) -> Found:
    """Trains and assesses each part of the sample, once a seed; each is kept as it is finished."""
    found = Found([])
    for seed in range(inputs.seed, inputs.seed + inputs.n_seeds):
        for name in dict.fromkeys(inputs.sample_parts):
            drawn = part(name, seed, size=inputs.sample_size, n_points=inputs.n_points, law=inputs.sample_law)
            check_steps(inputs, drawn.data.shape[1])
            model, losses = learn(inputs, context, drawn.data, drawn.shape, seed, f"{name}, seed {seed}")
            compare = seed == inputs.seed  # it takes as long as the search itself, so once
            one = _assess(inputs, context, _question(drawn), model, seed, losses, drawn.sigma, compare)
            found.parts.append(one)
            context.keep(tables.methods([one], f"{name}-seed-{seed}"))
            _follow(one, len(found.parts), context)
        if inputs.cost_dimensions:
            found.costs[seed] = costs(inputs.cost_dimensions, quadrature_of(inputs, seed), seed, context.device)
    return found


@one_core()
def user(inputs: LhsdInputs, data: UserData, context: Context) -> Found:
    """Assesses the user's points by their model, or by one that is trained on their data."""
    losses: tuple[float, ...] = ()
    if data.model is not None:
        model = data.model
        move(model, context.device)
    else:
        assert data.training is not None  # noqa: S101 (the contract requires one of the two)
        model, losses = learn(inputs, context, data.training, data.question.shape, inputs.seed, "your data")
    _warn_of_other_scale(model, data.question.x, context)
    return Found([_assess(inputs, context, data.question, model, inputs.seed, losses, None)])


def learn(
    inputs: LhsdInputs, context: Context, data: Tensor, shape: tuple[int, ...], seed: int, label: str
) -> tuple[ScoreModel, tuple[float, ...]]:
    """The empirical score of data [N, D], or a network trained on them, with its losses."""
    standardise = Standardisation.of(data)
    x = standardise(data)
    largest = float(x.abs().max())
    if inputs.model_kind == "empirical":
        return EmpiricalScore(x.to(context.device), standardise.center, standardise.scale), ()
    recipe = Recipe(steps=inputs.train_steps, batch_size=inputs.batch_size, learning_rate=inputs.learning_rate)
    architecture = architecture_of(inputs, shape, context.device)
    trained = train(
        x.to(context.device),
        architecture,
        recipe,
        seed=seed,
        label=f"training the score model: {label}",
        resumable=context.resumable,
    )
    settings = NetworkSettings(
        kind=architecture.kind,
        shape=architecture.shape,
        width=architecture.width,
        blocks=architecture.blocks,
        sigma_min=recipe.sigma_min,
        sigma_max=recipe.sigma_max,
        largest=largest,
    )
    return NetworkScore(trained.net, settings, standardise), trained.losses


def architecture_of(inputs: LhsdInputs, shape: tuple[int, ...], device: str) -> Architecture:
    """The network that is trained on points of this shape.

    Raises:
        InputError: a U-Net was asked for and the points are no images of sides that it can halve.
    """
    image = shape if len(shape) == 3 else (1, *shape) if len(shape) == 2 else None
    factor = 2 ** (inputs.blocks - 1)
    fits = image is not None and all(side % factor == 0 for side in image[1:])
    large = image is not None and min(image[1:]) >= _IMAGE_SIDE
    if inputs.network == "unet" and not fits:
        problem = f"points of shape {shape} are no images with sides that are multiples of {factor}"
        raise InputError(Problem("network", "unet", problem, "Give network=mlp, fewer blocks, or x as n x C x H x W"))
    if image is not None and (
        inputs.network == "unet" or (inputs.network == "auto" and device == "cuda" and large and fits)
    ):
        return Architecture("unet", image, inputs.channels, inputs.blocks)
    return Architecture("mlp", (int(torch.Size(shape).numel()),), inputs.width, inputs.blocks)


def quadrature_of(inputs: LhsdInputs, seed: int) -> Quadrature:
    """How spectra are taken in the run with that seed."""
    return Quadrature(inputs.probes, inputs.lanczos_steps, inputs.symmetrise, inputs.n_noise, seed)


def filter_of(inputs: LhsdInputs) -> Filter:
    """The filter f."""
    return Filter(inputs.cutoff_c, inputs.hill_p, inputs.delta, inputs.band)


def _assess(
    inputs: LhsdInputs,
    context: Context,
    question: Question,
    model: ScoreModel,
    seed: int,
    losses: tuple[float, ...],
    default_sigma: float | None,
    compare_levels: bool = False,
) -> Assessed:
    settings = Settings(
        filter=filter_of(inputs),
        quadrature=quadrature_of(inputs, seed),
        sigma=inputs.sigma if isinstance(inputs.sigma, float) else default_sigma,
        search_levels=inputs.search_levels,
        baselines=tuple(dict.fromkeys(inputs.baselines)),
        nb_points=inputs.nb_points,
        gap_rule=inputs.nb_gap,
    )
    return assess(
        question,
        model,
        settings,
        seed=seed,
        compare_levels=compare_levels,
        device=context.device,
        losses=losses,
        follow=context.progress,
    )


def check_sigma(model: ScoreModel, sigma: float | None) -> None:
    """Raises InputError when the noise level that was asked for is none of the model's."""
    if sigma is None:
        return
    try:
        model.level(sigma)
    except ValueError:
        low, high = model.sigma_range
        problem = "is outside the noise levels that the score model knows"
        raise InputError(Problem("sigma", sigma, problem, f"Give {low:.4g} to {high:.4g}, or auto")) from None


def check_steps(inputs: LhsdInputs, n_features: int) -> None:
    """Raises InputError when more Lanczos steps are asked for than there are dimensions."""
    if inputs.lanczos_steps > n_features:
        problem = f"is more than the {n_features} features of the points"
        raise InputError(Problem("lanczos_steps", inputs.lanczos_steps, problem, f"Give at most {n_features}"))


def _question(drawn: Part) -> Question:
    return Question(drawn.name, drawn.points, drawn.shape, drawn.rows, drawn.data, drawn.lid_true, drawn.memorised)


def move(model: ScoreModel, device: str) -> None:
    """Puts the network of a model that has one on a device."""
    module = getattr(model, "net", None) or getattr(model, "unet", None)
    if module is not None:
        module.to(device)


def _warn_of_other_scale(model: ScoreModel, x: Tensor, context: Context) -> None:
    if model.largest is None:
        return
    size = float(model.coordinates(x).abs().max())
    if size > _FAR_OUTSIDE * model.largest:
        context.warn(
            f"the points reach {size:.3g} in the score model's units, whose training data reached {model.largest:.3g}: "
            "they are probably on another scale (0 to 255 instead of -1 to 1?)"
        )


def _follow(one: Assessed, step: int, context: Context) -> None:
    """Errors and AUROC as points of curves over the assessed parts."""
    for name, value in (("lhsd_error", one.error("lhsd")), ("lhsd_auroc", one.memorised_auroc())):
        if value is not None:
            context.metric(name, value, step=step)
