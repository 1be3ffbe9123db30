"""From assessed points to the method's outputs: report, metrics, claims, table and model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kfp_methods.components.science.lhsd import claims, figures, measures, running, tables
from kfp_methods.components.science.lhsd.assessment import Assessed
from kfp_methods.components.science.lhsd.choices import TITLES
from kfp_methods.components.science.lhsd.component import LhsdInputs, LhsdOutputs
from kfp_methods.components.science.lhsd.model import DimensionModel
from kfp_methods.components.science.lhsd.user_data import UserData
from kfp_methods.report import Figure, Report, Table, Text, format_interval

if TYPE_CHECKING:
    from kfp_methods.claims import ClaimResult
    from kfp_methods.context import Context

_EXAMPLE_ROWS = 3


def outputs(inputs: LhsdInputs, found: running.Found, data: UserData | None, context: Context) -> LhsdOutputs:
    """All that the method returns; the table of points and the model are the first seed's."""
    first = [one for one in found.parts if one.seed == found.parts[0].seed]
    for warning in _warnings(first):
        context.warn(warning)
    judged = claims.results(found.parts, found.costs)
    return LhsdOutputs(
        report=Report(_summary(found.parts, judged), tuple(_parts(found))),
        metrics=measures.metrics(found.parts),
        claims=judged,
        lid=tables.points(first),
        dimension_model=fitted(first[0], data.columns if data else ()),
    )


def fitted(one: Assessed, columns: tuple[str, ...]) -> DimensionModel:
    """The score model with the noise level and probes of the assessment, on the CPU."""
    running.move(one.model, "cpu")
    return DimensionModel(
        model=one.model,
        sigma=one.spectra.sigma,
        filter=one.settings.filter,
        quadrature=one.settings.quadrature,
        columns=columns or tuple(f"x{index}" for index in range(one.question.x.shape[1])),
        rows=one.question.x[:_EXAMPLE_ROWS],
    )


def _parts(found: running.Found) -> list[Figure | Table | Text]:
    names = dict.fromkeys(one.question.name for one in found.parts)
    groups = [[one for one in found.parts if one.question.name == name] for name in names]
    parts: list[Figure | Table | Text | None] = []
    for number, group in enumerate(groups):
        first, main = group[0], number == 0
        parts += [figures.truth_figure(group) if main else None]
        parts += [figures.dimension_figure(first) if first.question.lid_true is None else None]
        parts += [tables.methods(group, f"methods-{first.question.name}")]
        parts += [figures.gallery(first), figures.spectrum_figure(first)]
        parts += (
            [figures.search_figure(first), figures.levels_figure(group), figures.sweep_figure(group)] if main else []
        )
        parts += [tables.lowest(first)]
    parts += [tables.costs(found.costs) if found.costs else None, figures.loss_figure(found.parts)]
    return [part for part in parts if part is not None]


def _warnings(parts: Sequence[Assessed]) -> list[str]:
    found = []
    for one in parts:
        name = one.question.name
        if measures.no_gap(one):
            found.append(
                f"{name}: no noise level has a gap in the spectrum at the cut: read the order of the dimensions, for "
                "their level depends on sigma"
            )
        if one.spectra.asymmetry > 0.5 and one.settings.quadrature.symmetrise:
            found.append(f"{name}: the score is far from a gradient (asymmetry {one.spectra.asymmetry:.2f})")
        missing = [key for key, values in one.others.items() if key not in ("nb",) and np.isnan(values).any()]
        if missing:
            found.append(f"{name}: {', '.join(missing)} undefined at some points, whose neighbours are copies")
    return found


def _summary(parts: Sequence[Assessed], judged: Sequence[ClaimResult]) -> str:
    """The answer in words."""
    first = parts[0]
    low, middle, high = np.quantile(first.lid, [0.05, 0.5, 0.95])
    words = [
        f"At sigma = {first.spectra.sigma:.3g} the median local dimension of {len(first.lid):,} points in "
        f"{first.spectra.n_features:,} dimensions is {middle:.1f} (90% of them: {low:.1f} to {high:.1f}; standard "
        f"error of one: {first.stderr.mean():.1f})."
    ]
    for claim, text in (
        (claims.SMALL_ERROR, "LHSD misses the true dimension by {} on average"),
        (claims.MEMORISED, "a memorised image has the lower dimension of two with probability {}"),
    ):
        result = next(one for one in judged if one.claim == claim)
        if result.value is not None:
            interval = (
                f" (95% interval {format_interval(result.low, result.high)})"
                if result.low is not None and result.high is not None
                else ""
            )
            sentence = text.format(f"{result.value:.2f}{interval}")
            words.append(f"{sentence[0].upper()}{sentence[1:]}.")
    same = [one for one in parts if one.question.name == first.question.name]
    errors = {name: error for name in first.others if (error := tables.mean([one.error(name) for one in same])) >= 0}
    if errors:
        listed = ", ".join(f"{TITLES[name]} {error:.2f}" for name, error in errors.items())
        words.append(f"The others miss it by: {listed}.")
    if first.levels and (best := [found for name in ("lhsd", "flipd", "nb") if (found := _least(first, name))]):
        words.append(f"Each at its own best noise level, which only the truth tells: {', '.join(best)}.")
    if measures.no_gap(first):
        words.append("The spectrum has no gap, so read the order of the points and not the level.")
    return " ".join(words)


def _least(one: Assessed, method: str) -> str:
    found = one.levels.least(method) if one.levels else None
    return f"{TITLES[method]} {found[0]:.2f}" if found else ""
