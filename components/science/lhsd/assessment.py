"""A set of points with every estimate of their dimension that was asked for, and what is known of the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfp_methods.components.science.lhsd import baselines
from kfp_methods.components.science.lhsd.choices import BaselineName, GapRule
from kfp_methods.components.science.lhsd.estimate import Quadrature, Spectra, eigenvalues, spectra
from kfp_methods.components.science.lhsd.filtering import Filter, probe_deviation
from kfp_methods.components.science.lhsd.levels import ErrorsByLevel, errors_by_level
from kfp_methods.components.science.lhsd.noise_level import Search, search
from kfp_methods.components.science.score_models import ScoreModel

T = TypeVar("T")
Floats = NDArray[np.float64]
Follow = Callable[[Iterable[T], str], Iterator[T]]

SWEEP = (2, 3, 5, 10, 20)


@dataclass(frozen=True)
class Question:
    """The points to score, as the user gave them.

    Attributes:
        name: of the part of the report.
        x: points [n, D] in the user's units.
        shape: of one point.
        rows: what the points are called in the tables: their row in the file or in the data [n].
        data: what neighbours are looked for in [N, D]; None when there are no data.
        lid_true: true dimensions [n]; None when unknown.
        memorised: which are memorised [n]; None when unknown.
    """

    name: str
    x: Tensor
    shape: tuple[int, ...]
    rows: NDArray[np.int64]
    data: Tensor | None = None
    lid_true: Floats | None = None
    memorised: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Settings:
    """What is asked.

    Attributes:
        filter: f.
        quadrature: probes, Lanczos steps, seed.
        sigma: noise level; None lets the spectrum tell.
        search_levels: noise levels tried then.
        baselines: other estimates.
        nb_points: first so many points get the normal-bundle estimate, which costs most.
        gap_rule: of the normal-bundle method.
        sweep_points: first so many points are looked at with 20 Lanczos steps, where the truth is known.
    """

    filter: Filter
    quadrature: Quadrature
    sigma: float | None
    search_levels: int
    baselines: tuple[BaselineName, ...]
    nb_points: int
    gap_rule: GapRule
    sweep_points: int = 30


@dataclass(frozen=True)
class Assessed:
    """What was found.

    Attributes:
        question: the points.
        model: whose score it was.
        settings: as asked.
        seed: of the run that trained the model.
        spectra: of the points at the noise level used.
        lid: LHSD [n].
        stderr: its standard error over probes [n].
        others: further estimates [n] by name, NaN where not computed: `lhsd_exact` (all eigenvalues) and baselines.
        search: how the noise level was found; None where it was given.
        sweep: mean absolute error of LHSD by the number of Lanczos steps; empty where the truth is unknown.
        seconds: for each point, by estimate.
        levels: errors of the methods at each noise level of the search; None where that was not asked for.
        losses: of the model's training.
    """

    question: Question
    model: ScoreModel
    settings: Settings
    seed: int
    spectra: Spectra
    lid: Floats
    stderr: Floats
    others: Mapping[str, Floats]
    search: Search | None
    sweep: Mapping[int, float]
    seconds: Mapping[str, float]
    levels: ErrorsByLevel | None = None
    losses: tuple[float, ...] = ()

    @property
    def estimates(self) -> dict[str, Floats]:
        """All estimates by name, LHSD first."""
        return {"lhsd": self.lid, **self.others}

    def error(self, name: str) -> float | None:
        """Mean absolute error of an estimate; None where it or the truth is missing."""
        values, truth = self.estimates.get(name), self.question.lid_true
        if values is None or truth is None or np.isnan(values).all():
            return None
        return float(np.nanmean(np.abs(values - truth)))

    def noise_floor(self) -> float | None:
        """The mean absolute error that random probes alone would cause, sqrt(2/pi) of their standard deviation."""
        truth = self.question.lid_true
        if truth is None:
            return None
        quadrature = self.settings.quadrature
        probes = quadrature.probes * self.spectra.copies
        deviation = probe_deviation(torch.from_numpy(truth), self.spectra.n_features, probes)
        return float(deviation.mean() * np.sqrt(2 / np.pi))

    def memorised_auroc(self, name: str = "lhsd") -> float | None:
        """Chance that a memorised point has a lower estimate than another; None where that is unknown."""
        from sklearn.metrics import roc_auc_score

        values, flags = self.estimates.get(name), self.question.memorised
        if values is None or flags is None:
            return None
        known = ~np.isnan(values)
        if len(np.unique(flags[known])) < 2:
            return None
        return float(roc_auc_score(flags[known], -values[known]))


def assess(
    question: Question,
    model: ScoreModel,
    settings: Settings,
    *,
    seed: int,
    compare_levels: bool = False,
    device: str = "cpu",
    losses: tuple[float, ...] = (),
    follow: Follow[float] = lambda items, label: iter(items),
) -> Assessed:
    """Every estimate at the points, at the noise level asked for or the one that the spectrum suggests.

    compare_levels: also take the errors at each noise level of the search, where the truth is known.

    Raises:
        InputError: the model cannot be used.
        ValueError: sigma is outside the model's noise levels.
    """
    x = model.coordinates(question.x.to(device)).float()
    found = None
    if settings.sigma is None:
        found = search(
            model,
            x,
            settings.filter,
            settings.quadrature,
            n_levels=settings.search_levels,
            follow=follow,
            label=f"searching the noise level of {question.name}, seed {seed}",
        )
    sigma = model.level(settings.sigma).b if settings.sigma is not None else found.sigma if found else 0.0
    spectrum = spectra(model, x, sigma, settings.quadrature)
    lid, stderr = (tensor.numpy() for tensor in spectrum.dimension(settings.filter))
    others, seconds = _others(question, model, x, sigma, settings)
    return Assessed(
        question=question,
        model=model,
        settings=settings,
        seed=seed,
        spectra=spectrum,
        lid=lid,
        stderr=stderr,
        others=others,
        search=found,
        sweep=_sweep(question, model, x, sigma, settings),
        levels=_levels(question, model, x, found, settings, follow, seed) if compare_levels else None,
        seconds={"lhsd": spectrum.seconds / len(x), **seconds},
        losses=losses,
    )


def _others(
    question: Question, model: ScoreModel, x: Tensor, sigma: float, settings: Settings
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Further estimates [n] by name, and the seconds each took for a point."""
    estimates: dict[str, Floats] = {}
    seconds: dict[str, float] = {}
    curvature = eigenvalues(model, x, sigma, settings.quadrature)
    if curvature is not None:
        estimates["lhsd_exact"] = settings.filter(curvature, sigma).sum(2).mean(1).numpy()
    for name in settings.baselines:
        if name not in ("flipd", "nb") and question.data is None:
            continue
        n = min(settings.nb_points, len(x)) if name == "nb" else len(x)
        started = time.perf_counter()
        values = _baseline(name, question, model, x[:n], sigma, settings)
        seconds[name] = (time.perf_counter() - started) / n
        estimates[name] = np.concatenate([values, np.full(len(x) - n, np.nan)])
    return estimates, seconds


def _baseline(
    name: BaselineName, question: Question, model: ScoreModel, x: Tensor, sigma: float, settings: Settings
) -> Floats:
    seed = settings.quadrature.seed
    if name == "flipd":
        return baselines.flipd(model, x, sigma, settings.quadrature).numpy()
    if name == "nb":
        return baselines.normal_bundle(model, x, sigma, seed=seed, rule=settings.gap_rule).numpy()
    assert question.data is not None  # noqa: S101 (the caller leaves the estimate out)
    return baselines.neighbour_estimate(name, question.data, question.x, seed)


def _levels(
    question: Question,
    model: ScoreModel,
    x: Tensor,
    found: Search | None,
    settings: Settings,
    follow: Follow[float],
    seed: int,
) -> ErrorsByLevel | None:
    if found is None or question.lid_true is None or settings.sweep_points == 0:
        return None
    some, truth = x[: settings.sweep_points], question.lid_true[: settings.sweep_points]
    label = f"every method at every noise level of {question.name}, seed {seed}"
    return errors_by_level(
        model, some, truth, found.sigmas, settings.filter, settings.quadrature, settings.baselines, follow, label
    )


def _sweep(question: Question, model: ScoreModel, x: Tensor, sigma: float, settings: Settings) -> dict[int, float]:
    """Errors after fewer Lanczos steps of the same probes: leading blocks of one run of 20 steps."""
    if question.lid_true is None or settings.sweep_points == 0:
        return {}
    steps = sorted({m for m in (*SWEEP, settings.quadrature.steps) if m <= x.shape[1]})
    longest = replace(settings.quadrature, steps=steps[-1])
    found = spectra(model, x[: settings.sweep_points], sigma, longest)
    truth = question.lid_true[: settings.sweep_points]
    return {m: float(np.abs(found.dimension(settings.filter, m)[0].numpy() - truth).mean()) for m in steps}
