"""From what was measured, or from one release, to the method's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.claims import not_measured
from kfp_methods.components.tabular.iterative_hessian_mixing import claims, decision, figures, tables
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan
from kfp_methods.components.tabular.iterative_hessian_mixing.component import (
    IterativeHessianMixingInputs,
    IterativeHessianMixingMetrics,
    IterativeHessianMixingOutputs,
)
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import Measured
from kfp_methods.components.tabular.iterative_hessian_mixing.model import Coefficients
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats
from kfp_methods.components.tabular.iterative_hessian_mixing.running import Found, Released
from kfp_methods.components.tabular.iterative_hessian_mixing.scaling import Scaling
from kfp_methods.components.tabular.iterative_hessian_mixing.statement import NOT_PRIVATE, statement
from kfp_methods.components.tabular.privacy_audit import Audit
from kfp_methods.report import Figure, Report, Table, Text, format_number

if TYPE_CHECKING:
    from kfp_methods.components.tabular.iterative_hessian_mixing.user_data import UserData
    from kfp_methods.context import Context

_OWNER = (
    "This page is for the owner of the data alone: its errors come from the data themselves and are not private. "
    "Choosing a budget by it tells a little of them, too; where that matters, choose by earlier or public data."
)


def compared(inputs: IterativeHessianMixingInputs, found: Found, context: Context) -> IterativeHessianMixingOutputs:
    """All that a comparison leaves."""
    first = found.measured[0]
    public = first.case.scaling is not None and first.case.scaling.public
    for remark in _remarks(inputs, found):
        context.warn(remark)
    told = statement(
        found.plan,
        rows=first.case.data.moments.n,
        columns=first.case.data.d,
        released=False,
        public=public,
        strict=inputs.strict,
    )
    results = tables.results(found.measured)
    return IterativeHessianMixingOutputs(
        report=Report(_summary(inputs, found), tuple(_parts(inputs, found, results))),
        metrics=_metrics(found),
        claims=claims.results(found.measured, found.dimensions),
        results=results,
        privacy_report=told,
        coefficients=_simulated(found, told),
    )


def released(inputs: IterativeHessianMixingInputs, data: UserData, one: Released) -> IterativeHessianMixingOutputs:
    """All that a release leaves: nothing but the coefficients comes from the data."""
    rows, columns = len(data.training.y), data.scaling.d
    told = statement(one.plan, rows=rows, columns=columns, released=True, public=True, strict=inputs.strict)
    about = _about(one.plan, released=True, public=True)
    model = _coefficients(data.training.features, data.training.target, data.scaling, one.theta, about, told)
    table = Table("coefficients", "Private coefficients", _frame(model), highlight=True)
    budget = f"epsilon = {format_number(one.plan.epsilon)}, delta = {format_number(one.plan.delta)}"
    summary = (
        f"These coefficients may be published: they are private with {budget}. What they cost in accuracy is not "
        "measured here, for that would have to come from the data; a run without release=true tells it to the owner."
    )
    why = "A release measures nothing on the data."
    plain = {"data": "Your data", "method": "iterative Hessian mixing", "epsilon": one.plan.epsilon}
    return IterativeHessianMixingOutputs(
        report=Report(summary, (table, _plan_text(one.plan))),
        metrics=IterativeHessianMixingMetrics.model_validate(_plan_metrics(one.plan)),
        claims=[not_measured(claim, why) for claim in claims.CLAIMS],
        results=Table("results", "The release", pd.DataFrame([plain | {"delta": one.plan.delta, "releases": 1}])),
        privacy_report=told,
        coefficients=model,
    )


def _summary(inputs: IterativeHessianMixingInputs, found: Found) -> str:
    # Of the sample only what a release could be made of: the scaling as in the paper is not private.
    decided = [one for one in found.decisions if _is_public(one.measured) or not inputs.uses_sample]
    sentences = [one.sentence(found.plan.delta) for one in decided[:1]]
    if others := [f"{one.measured.case.name} {_short(one)}" for one in decided[1:]]:
        sentences.append(f"Others: {'; '.join(others)}.")
    if found.audit is not None:
        sentences.append(_audit_sentence(found.audit, found.plan))
    return " ".join(sentences)


def _short(one: decision.Decision) -> str:
    return "no" if one.recommended is None else f"from epsilon = {format_number(one.recommended)}"


def _audit_sentence(audit: Audit, plan: Plan) -> str:
    proven, promised = format_number(audit.epsilon), format_number(plan.epsilon)
    if audit.epsilon > plan.epsilon:
        return f"The promise is broken: an attack proves epsilon >= {proven}, promised was {promised}."
    tried = f"The strongest attack, on {2 * audit.trials:,} pairs of simulated releases, proves"
    if audit.epsilon == 0:
        return f"{tried} nothing against the promised {promised}."
    return f"{tried} epsilon >= {proven} ({audit.level:.0%} confidence) of the promised {promised}."


def _remarks(inputs: IterativeHessianMixingInputs, found: Found) -> list[str]:
    remarks = []
    if not inputs.uses_sample and found.measured[0].case.scaling is not None and inputs.data_dependent_scaling:
        remarks.append(f"{NOT_PRIVATE}: means, spreads and the largest row were taken from the data")
    if found.audit is not None and found.audit.epsilon > found.plan.epsilon:
        remarks.append(_audit_sentence(found.audit, found.plan))
    if inputs.uses_sample and found.decisions:
        remarks.append("the sample's bounds are the ends of its own columns, which public bounds would not be")
    return remarks


def _parts(inputs: IterativeHessianMixingInputs, found: Found, results: Table) -> list[Figure | Table | Text]:
    parts: list[Figure | Table | Text | None] = []
    if found.decisions:
        shown = next((one for one in found.decisions if one.recommended is not None), found.decisions[0])
        parts += [figures.decision(shown), tables.decision(shown, inputs.wanted_share)]
        parts += [tables.overview(found.decisions) if len(found.decisions) > 1 else None]
    parts += [figures.errors(one, number) for number, one in enumerate(found.measured)]
    parts += [figures.ratios(found.measured), tables.columns(found.dimensions) if found.dimensions else None]
    parts += [results, _plan_text(found.plan), Text("Who may see this page", _OWNER)]
    return [part for part in parts if part is not None]


def _plan_text(plan: Plan) -> Text:
    number = format_number
    body = (
        f"Of epsilon = {number(plan.epsilon)} one half pays {plan.iterations} sketches of {plan.sketch.rows} rows "
        f"(gamma = {number(plan.sketch.gamma)}) and one noisy eigenvalue (sd {number(plan.sketch.eta)}), the other "
        f"half {plan.iterations} gradients (sd {number(plan.sigma)}). The output privacy_report says all of it."
    )
    return Text("How the budget is spent", body)


def _plan_metrics(plan: Plan) -> dict[str, float | int]:
    sketch = plan.sketch
    return {
        "epsilon_reported": plan.epsilon,
        "delta": plan.delta,
        "gamma": sketch.gamma,
        "eta": sketch.eta,
        "sigma_grad": plan.sigma,
        "k": sketch.rows,
    }


def _metrics(found: Found) -> IterativeHessianMixingMetrics:
    first, epsilon = found.measured[0], found.reported
    least = first.case.least
    ihm, adassp = first.cells["ihm", epsilon], first.cells.get(("adassp", epsilon))
    values: dict[str, float | int | None] = {**_plan_metrics(found.plan)}
    values |= {"train_mse_ihm": float(ihm.train.mean()), "train_mse_ols": least}
    if adassp is not None:
        values["excess_ratio_adassp_ihm"] = _ratio(float(adassp.train.mean()) - least, float(ihm.train.mean()) - least)
        values["ihm_adassp_time_ratio"] = ihm.seconds / adassp.seconds
    if found.decisions:
        one = found.decisions[0]
        explained = first.r_squared("ihm", epsilon)
        assert explained is not None  # noqa: S101 (there is a decision, so a test part)
        values |= {
            "epsilon_recommended": one.recommended,
            "rmse_ihm": float(np.median(decision.rmse(first, "ihm", epsilon))),
            "rmse_ols": float(decision.rmse(first, "ols", epsilon)[0]),
            "r2_ihm": float(np.median(explained)),
            "r2_ihm_p10": float(np.quantile(explained, 1 - decision.SURE)),
            "r2_ols": one.r2_ols,
        }
    values["audit_epsilon"] = None if found.audit is None else found.audit.epsilon
    values["explicit_covariance_time_ratio"] = found.explicit_ratio
    return IterativeHessianMixingMetrics.model_validate(values)


def _simulated(found: Found, told: str) -> Coefficients:
    """The first seed's release of the first data set at the reported budget."""
    case = found.measured[0].case
    theta = found.measured[0].cells["ihm", found.reported].theta
    scaling, features = case.scaling, case.features
    if scaling is None:
        d = case.data.d
        features = tuple(f"x{index}" for index in range(d))
        scaling = Scaling(np.zeros(d), np.ones(d), 0.0, 1.0, 1.0, intercept=False, public=True)
    about = _about(found.plan, released=False, public=scaling.public)
    return _coefficients(features, case.target, scaling, theta, about, told)


def _coefficients(
    features: tuple[str, ...], target: str, scaling: Scaling, theta: Floats, about: dict[str, object], told: str
) -> Coefficients:
    slopes, intercept = scaling.original(theta)
    return Coefficients(features, target, slopes, intercept, theta, scaling.center, about, told)


def _about(plan: Plan, *, released: bool, public: bool) -> dict[str, object]:
    return {
        "kind": "a private release" if released else "a simulation: not private, not to be published",
        "scaling": "public bounds" if public else NOT_PRIVATE,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "iterations": plan.iterations,
    }


def _frame(model: Coefficients) -> pd.DataFrame:
    names = ["intercept", *model.features]
    return pd.DataFrame({"column": names, "coefficient": [model.intercept, *model.slopes]})


def _is_public(measured: Measured) -> bool:
    return measured.case.scaling is not None and measured.case.scaling.public


def _ratio(first: float, second: float) -> float | None:
    return first / second if second > 0 else None
