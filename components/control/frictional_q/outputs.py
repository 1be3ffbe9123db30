"""From trained policies to the method's outputs: report, metrics, claims, tables and the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kfp_methods.claims import ClaimResult
from kfp_methods.components.control.frictional_q import claims, figures, tables
from kfp_methods.components.control.frictional_q.choices import TITLES, MethodName
from kfp_methods.components.control.frictional_q.component import (
    FrictionalQInputs,
    FrictionalQMetrics,
    FrictionalQOutputs,
)
from kfp_methods.components.control.frictional_q.running import Experiment
from kfp_methods.components.control.frictional_q.tables import mean_over_seeds
from kfp_methods.report import Report, format_interval, format_number

if TYPE_CHECKING:
    from kfp_methods.context import Context

_RENAMED = {
    "cvae_rec_tangent": "rec_tangent", "cvae_rec_normal": "rec_normal", "tangent_preference": "preference",
    "tangent_preference_both_signs": "preference_both_signs",
}  # fmt: skip
_OWN = (
    "return_mean", "return_std", "value_bias", "q_mean", "cvae_rec_tangent", "cvae_rec_normal", "kl_z", "kl_s",
    "disc_loss", "anisotropy", "normal_deviation", "stick_fraction", "tangent_preference",
    "tangent_preference_both_signs",
)  # fmt: skip


def outputs(inputs: FrictionalQInputs, found: Experiment, context: Context) -> FrictionalQOutputs:
    """All that the method returns."""
    for warning in _diverged(found):
        context.warn(warning)
    judged = claims.results(found, inputs.mode, inputs.updates)
    actions = tables.actions(found.fitted, found.states)
    shown = [
        figures.promise_figure(found), tables.comparison(found), figures.curve_figure(found),
        figures.angle_figure(found), tables.method_results(found),
    ]  # fmt: skip
    if found.states is not None:
        shown.append(actions)
    return FrictionalQOutputs(
        report=Report(_summary(found, judged), tuple(part for part in shown if part is not None)),
        metrics=_metrics(found),
        claims=judged,
        method_results=tables.method_results(found),
        learning_curve=tables.learning_curve(found),
        actions=actions,
        model=found.fitted,
    )


def _metrics(found: Experiment) -> FrictionalQMetrics:
    def mean(method: MethodName, name: str) -> float | None:
        return mean_over_seeds(found, method, name)

    other: MethodName = "fql_remap" if found.main == "fql_perturb" else "fql_perturb"
    compared: dict[str, MethodName] = {"other_actor": other, "bcq": "bcq", "td3": "td3", "plain_vae": "plain_vae"}
    logged = [value for value in found.behaviour if value is not None]
    values = {name: mean(found.main, _RENAMED.get(name, name)) for name in _OWN}
    for short, method in compared.items():
        values |= {f"{name}_{short}": mean(method, name) for name in ("return_mean", "value_bias")}
    for short in ("bcq", "td3"):
        values[f"normal_deviation_{short}"] = mean(compared[short], "normal_deviation")
    seconds = found.update_seconds
    return FrictionalQMetrics(
        **values,
        behaviour_return=float(np.mean(logged)) if logged else None,
        best_return=found.best,
        tangent_preference_by_chance=1 / found.n_actions,
        tangent_preference_plain_vae=mean("plain_vae", "preference"),
        update_seconds=seconds[found.main],
        update_seconds_plain_vae=seconds.get("plain_vae"),
        update_seconds_bcq=seconds.get("bcq"),
        update_seconds_td3=seconds.get("td3"),
        update_time_ratio_vs_td3=seconds[found.main] / seconds["td3"] if "td3" in seconds else None,
    )


def _diverged(found: Experiment) -> list[str]:
    """Methods whose critics left the finite numbers."""
    names = dict.fromkeys(one.method for one in found.outcomes if not np.isfinite(one.numbers["q_mean"]))
    return [f"{TITLES[name]}: the critic left the finite numbers; its figures are left out" for name in names]


def _summary(found: Experiment, judged: list[ClaimResult]) -> str:
    """The answer in words."""
    title, seeds = TITLES[found.main], len(found.seeds)
    trained = f"{title} learned from {found.where}, {seeds} time{'s' * (seeds > 1)}."
    deviation = mean_over_seeds(found, found.main, "normal_deviation")
    known = "logged" if found.offline else "tried"
    stays = (
        f" It leaves near {known} actions sideways by {format_number(deviation)} of the largest action on average"
        f"{_beside(found)}."
    )
    if not found.measured:
        return (
            f"{trained} No environment was given, so what the policy earns cannot be said, and neither whether its "
            f"critic's values are right.{stays}"
        )
    earned = format_number(mean_over_seeds(found, found.main, "return_mean"))
    logged = [value for value in found.behaviour if value is not None]
    against = f"; the logged policy earns {format_number(float(np.mean(logged)))}" if logged else ""
    bias = mean_over_seeds(found, found.main, "value_bias")
    promised = "" if bias is None else f" Its critic promises {abs(bias):.2g} too {'much' if bias > 0 else 'little'}."
    return f"{trained} Its mean return is {earned}{against}.{promised}{_against_td3(judged)}{stays}"


def _beside(found: Experiment) -> str:
    theirs = mean_over_seeds(found, "td3", "normal_deviation")
    return "" if theirs is None else f", TD3 by {format_number(theirs)}"


def _against_td3(judged: list[ClaimResult]) -> str:
    result = next(result for result in judged if result.claim is claims.BEATS_TD3)
    if result.value is None:
        return ""
    interval = ""
    if result.low is not None and result.high is not None:
        interval = f" (95% interval {format_interval(result.low, result.high)})"
    return f" Its return minus TD3's is {format_number(result.value)}{interval}."
