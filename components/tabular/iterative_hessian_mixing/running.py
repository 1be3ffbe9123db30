"""From validated inputs to what was measured, or to one release."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing import attack, mixing, sample, tables
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan
from kfp_methods.components.tabular.iterative_hessian_mixing.choices import METHODS, SamplePart
from kfp_methods.components.tabular.iterative_hessian_mixing.decision import Decision, decide
from kfp_methods.components.tabular.iterative_hessian_mixing.dimensions import MOST_SEEDS, Dimension, dimensions
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import (
    Case,
    Measured,
    Settings,
    case_of,
    measure,
    mechanism,
)
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats, Regression
from kfp_methods.components.tabular.iterative_hessian_mixing.scaling import Scaling
from kfp_methods.components.tabular.privacy_audit import Audit

if TYPE_CHECKING:
    from kfp_methods.components.tabular.iterative_hessian_mixing.component import IterativeHessianMixingInputs
    from kfp_methods.components.tabular.iterative_hessian_mixing.user_data import UserData
    from kfp_methods.context import Context

_SPLIT = 0  # the sample's parts are split alike in every run: its seeds are those of the noise
_TIMED = 5
_AUDITED = 77


@dataclass(frozen=True)
class Found:
    """All that a comparison found.

    Attributes:
        measured: each data set; the first is the one that metrics are of.
        decisions: on those that have a test part, in their order.
        dimensions: the gap to AdaSSP by number of columns; empty without that part.
        audit: of the first one's plan at the reported budget; None without trials.
        explicit_ratio: seconds of explicit sketches / of those from their law; None where not measured.
    """

    measured: list[Measured]
    decisions: list[Decision]
    dimensions: list[Dimension] = field(default_factory=list)
    audit: Audit | None = None
    explicit_ratio: float | None = None

    @property
    def reported(self) -> float:
        """Budget that the metrics are of."""
        return self.decisions[0].reported if self.decisions else self.measured[0].settings.epsilons[-1]

    @property
    def plan(self) -> Plan:
        """Of the first data set at the reported budget."""
        return self.measured[0].plan(self.reported)


@dataclass(frozen=True)
class Released:
    """One private release: parameters on scaled rows [d], and their plan."""

    theta: Floats
    plan: Plan


def settings_of(inputs: IterativeHessianMixingInputs) -> Settings:
    """What the mechanisms are run with."""
    return Settings(
        epsilons=tuple(sorted(set(inputs.epsilon))),
        delta=inputs.delta if isinstance(inputs.delta, float) else None,
        iterations=inputs.iterations,
        factor=inputs.sketch_factor,
        methods=tuple(name for name in METHODS if name in {*inputs.methods, "ihm", "ols"}),
        strict=inputs.strict,
        adassp_variant=inputs.adassp_variant,
        seeds=tuple(range(inputs.seed, inputs.seed + inputs.n_noise_seeds)),
    )


def release(inputs: IterativeHessianMixingInputs, data: UserData) -> Released:
    """One release from all rows; its noise is the operating system's, whatever the seed."""
    training, scaling = data.training, data.scaling
    rows = Regression(
        scaling.rows(training.x, clip=True),
        scaling.targets(training.y, clip=True),
        explicit=inputs.sketch == "explicit",
    )
    plan = settings_of(inputs).plan(inputs.epsilon[0], len(training.y), scaling.d)
    return Released(mixing.release(rows, plan, Noise.secure())[0], plan)


def compare(inputs: IterativeHessianMixingInputs, data: UserData | None, context: Context) -> Found:
    """Simulates releases of the user's rows, or of the sample's parts."""
    settings = settings_of(inputs)
    cases = _sample_cases(inputs, context) if data is None else [_user_case(inputs, data)]
    measured: list[Measured] = []
    for case in cases:
        one = measure(case, settings, partial(context.progress, label=case.name))
        context.keep(tables.kept(one, len(measured)))
        measured.append(one)
    decided = [decide(one, inputs.wanted_share) for one in measured]
    decisions = [one for one in decided if one is not None]
    found = Found(measured, decisions)
    return replace(
        found,
        dimensions=_dimensions(inputs, settings, context) if data is None else [],
        audit=_audit(inputs, found),
        explicit_ratio=_explicit_ratio(cases[0], settings) if data is None else None,
    )


def _user_case(inputs: IterativeHessianMixingInputs, data: UserData) -> Case:
    return case_of("Your data", data.training, data.test, data.scaling, explicit=inputs.sketch == "explicit")


def _sample_cases(inputs: IterativeHessianMixingInputs, context: Context) -> list[Case]:
    """The real tables by bounds, which for want of public ones are their own ends, and scaled as in the paper."""
    tables_asked: list[SamplePart] = [name for name in dict.fromkeys(inputs.sample_parts) if name in _REAL]
    by_bounds, as_paper = [], []
    for name in tables_asked:
        rows = sample.table(name)
        training, test = sample.split(rows, _SPLIT)
        ends = np.column_stack([rows.x.min(0), rows.x.max(0)])
        scaling = Scaling.from_bounds(ends, (float(rows.y.min()), float(rows.y.max())), intercept=True)
        explicit = inputs.sketch == "explicit"
        by_bounds.append(case_of(f"{name.capitalize()}, bounds", training, test, scaling, explicit=explicit))
        scaling = Scaling.from_data(training.x, training.y)
        as_paper.append(case_of(f"{name.capitalize()}, paper's scaling", training, test, scaling, explicit=explicit))
    return [*by_bounds, *as_paper, *_large(inputs, context)]


_REAL = ("boston", "diabetes", "diamonds")


def _large(inputs: IterativeHessianMixingInputs, context: Context) -> list[Case]:
    if "large" not in inputs.sample_parts:
        return []
    from kfp_methods.components.tabular.iterative_hessian_mixing.device_regression import directions

    return [Case("Large", directions(inputs.large_rows, inputs.large_columns, inputs.seed, context.device))]


def _dimensions(inputs: IterativeHessianMixingInputs, settings: Settings, context: Context) -> list[Dimension]:
    if "dimensions" not in inputs.sample_parts:
        return []
    fewer = replace(settings, seeds=settings.seeds[:MOST_SEEDS])
    return dimensions(fewer, follow=lambda columns: context.progress(columns, "columns"))


def _audit(inputs: IterativeHessianMixingInputs, found: Found) -> Audit | None:
    if inputs.audit_trials < 40:
        return None
    return attack.attack(found.plan, attack.neighbours(1.0, 2), inputs.audit_trials, _AUDITED + inputs.seed)


def _explicit_ratio(case: Case, settings: Settings) -> float | None:
    """Medians of both on the rows of the first case, one release each."""
    if not isinstance(case.data, Regression):
        return None
    seconds = []
    for explicit in (True, False):
        rows = Regression(case.data.X, case.data.y, explicit=explicit)
        run = mechanism(rows, settings, "ihm", settings.epsilons[-1])
        taken = []
        for number in range(_TIMED):
            started = time.perf_counter()
            run(Noise.joint(1, number))
            taken.append(time.perf_counter() - started)
        seconds.append(float(np.median(taken)))
    return seconds[0] / seconds[1]
