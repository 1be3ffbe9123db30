"""From validated inputs to trained and measured models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.mcbe import measuring, sample, search, training
from kfp_methods.components.tabular.mcbe.choices import MODELS
from kfp_methods.components.tabular.mcbe.data import Data, Floats
from kfp_methods.components.tabular.mcbe.measuring import Measured
from kfp_methods.components.tabular.mcbe.training import Settings, Trained
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.mcbe.component import McbeInputs
    from kfp_methods.context import Context

_SAMPLE = {"smoke": (800, 200, 300), "sample": (4_000, 500, 1_000), "gpu": (20_000, 2_000, 2_000)}


@dataclass(frozen=True)
class Found:
    """measured: by seed, every model. best: the one that is shown and saved.

    matched: by seed, generating formulas found; None where they are not known.
    """

    data: Data
    measured: dict[int, list[Measured]]
    best: Measured
    device: str
    matched: dict[int, int] = field(default_factory=dict)
    collapsed: int = 0
    routed: Floats | None = None


def settings_of(inputs: McbeInputs, device: str) -> Settings:
    """Of training."""
    return Settings(
        hidden=inputs.hidden,
        latent=inputs.latent,
        selector=inputs.selector,
        concept_penalty=inputs.concept_penalty,
        task_penalty=inputs.task_penalty,
        weight_reg=inputs.weight_reg,
        threshold=inputs.threshold,
        int_prob=inputs.int_prob,
        disjoint=inputs.disjoint_training,
        tau=(inputs.tau_start, inputs.tau_end),
        balance=inputs.balance_weight,
        epochs=inputs.epochs,
        lr=inputs.lr,
        batch=inputs.batch_size,
        device=device,
    )


def run(inputs: McbeInputs, given: Data | None, context: Context) -> Found:
    """Trains and measures every model for every seed."""
    import torch

    device = context.device
    threads = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)  # the layers are small: threads would only wait for each other
    try:
        return _run(inputs, given, context, device)
    finally:
        torch.set_num_threads(threads)


def _run(inputs: McbeInputs, given: Data | None, context: Context, device: str) -> Found:
    seeds = range(inputs.seed, inputs.seed + inputs.n_seeds)
    data = given if given is not None else sample.digits(*_SAMPLE[inputs.preset], seeds[0])
    found = {seed: _one(inputs, given, seed, device, context) for seed in seeds}
    for seed, one in found.items():
        for model in one.measured:
            context.metric(f"score of {model.kind} {model.M}", model.score, seed)
        if skipped := sum(not note["searched"] for note in one.notes):
            context.warn(f"sr_max_fits={inputs.sr_max_fits} left {skipped} experts as constants (seed {seed})")
        for note in one.notes:
            if "failed" in note:
                context.warn(
                    f"no formula for expert {note['expert']} (seed {seed}), a constant instead: {note['failed']}"
                )
    first = found[seeds[0]]
    best = _best(first.measured)
    return Found(
        data=data,
        measured={seed: one.measured for seed, one in found.items()},
        best=best,
        device=device,
        matched={seed: one.matched for seed, one in found.items() if one.matched is not None},
        collapsed=sum(one.collapsed for one in found.values()),
        routed=measuring.routing(best, data, device),
    )


@dataclass(frozen=True)
class _Seed:
    """What one seed gave."""

    measured: list[Measured]
    notes: list[dict[str, Any]]
    matched: int | None
    collapsed: int


def _one(inputs: McbeInputs, given: Data | None, seed: int, device: str, context: Context) -> _Seed:
    """All models of one seed."""
    data = given if given is not None else sample.digits(*_SAMPLE[inputs.preset], seed)
    settings = settings_of(inputs, device)
    measured, collapsed = [], 0
    for kind, M, train in context.progress(_plan(inputs, data, settings, seed), f"models, seed {seed}"):
        trained, spread = train()
        collapsed += spread
        measured.append(measuring.measure(kind, M, seed, trained, data, device))
        _keep(context, measured)
    if inputs.variant == "linear":
        return _Seed(measured, [], None, collapsed)
    one, notes = _symbolic(inputs, data, measured, settings, seed, context)
    matched = None
    if data.group is not None:
        truths = [sample.truth(g, data.c[data.rows(2)]) for g in range(len(data.groups))]
        matched = measuring.matches(one, data, truths)
    return _Seed([*measured, one], notes, matched, collapsed)


def _keep(context: Context, measured: list[Measured]) -> None:
    """What is known if the run is interrupted later."""
    rows = [
        {"model": MODELS[one.kind], "M": one.M or None, "score": one.score, "complexity": one.complexity}
        for one in measured
    ]
    context.keep(Table(f"models-{measured[0].seed}", f"Models of seed {measured[0].seed}", pd.DataFrame(rows)))


Step = tuple[str, int, Callable[[], tuple[Trained, int]]]


def _plan(inputs: McbeInputs, data: Data, settings: Settings, seed: int) -> list[Step]:
    """Which models are trained: mixtures of all sizes, and what they are compared with."""
    sizes = sorted(set(inputs.n_experts))
    kinds = {"linear": ["linear"], "symbolic": ["mlp"], "both": ["linear", "mlp"]}[inputs.variant]
    steps: list[Step] = []
    for kind in kinds:
        # One linear expert is the concept bottleneck model; MLP experts are only needed where formulas follow.
        for M in sizes if kind == "linear" else sorted({1, sizes[-1]}):
            restarts = inputs.restarts if M > 1 else 1
            steps.append((kind, M, _mixture(data, M, kind, settings, seed, restarts)))
    if "linear" not in kinds:
        steps.append(("linear", 1, _mixture(data, 1, "linear", settings, seed, 1)))
    if seed != inputs.seed:  # what mixtures are compared with is trained once
        return [step for step in steps if not (step[0] == "mlp" and step[1] == 1 and len(sizes) > 1)]
    steps.append(("black_box", 0, lambda: (training.black_box(data, settings, seed), 0)))
    steps.append(("licem", 0, lambda: (training.per_row(data, settings, seed, embedded=False), 0)))
    if data.classes:
        steps.append(("cem", 0, lambda: (training.per_row(data, settings, seed, embedded=True), 0)))
    return steps


def _mixture(
    data: Data, M: int, kind: str, settings: Settings, seed: int, restarts: int
) -> Callable[[], tuple[Trained, int]]:
    """The best of several starts by validation, for some collapse onto one expert; and how many did."""

    def train() -> tuple[Trained, int]:
        found = [training.mixture(data, M, kind, settings, 1_000 * seed + 10 * number) for number in range(restarts)]
        used = [_used(one, data, settings) for one in found]
        return min(found, key=lambda one: one.validation), sum(count == 1 for count in used) if M > 1 else 0

    return train


def _used(trained: Trained, data: Data, settings: Settings) -> int:
    expert = measuring.predict(trained.model, data, 1, settings.device).expert
    assert expert is not None  # noqa: S101
    return len(np.unique(expert))


def _symbolic(
    inputs: McbeInputs, data: Data, measured: list[Measured], settings: Settings, seed: int, context: Context
) -> tuple[Measured, list[dict[str, Any]]]:
    """On the MLP mixture of most experts."""
    first = max((one for one in measured if one.kind == "mlp"), key=lambda one: one.M)
    regression = search.Settings(
        operators=tuple(dict.fromkeys(inputs.operators)) or default_operators(data),
        max_length=inputs.max_length,
        generations=inputs.sr_generations,
        population=inputs.sr_population,
        seed=seed,
    )
    trained, notes = training.symbolic(
        data,
        first.trained,
        settings,
        regression,
        inputs.sr_rows,
        inputs.sr_max_fits,
        seed,
        lambda todo: context.progress(todo, f"symbolic regressions, seed {seed}"),
    )
    return measuring.measure("symbolic", first.M, seed, trained, data, settings.device), notes


def default_operators(data: Data) -> tuple[str, ...]:
    """The official code's vocabularies."""
    return ("*", "+", "-") if data.classes else ("+", "-", "*", "/", "sin", "cos", "exp", "log", "tan", "tanh")


def _best(measured: list[Measured]) -> Measured:
    """Of the mixtures with formulas the one of the best validation loss."""
    written = [one for one in measured if one.total is not None]
    return min(written, key=lambda one: one.trained.validation)
