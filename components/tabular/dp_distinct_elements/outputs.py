"""From what was measured, or from one release, to the method's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.claims import not_measured
from kfp_methods.components.tabular.dp_distinct_elements import attacks, figures, measuring, verdicts
from kfp_methods.components.tabular.dp_distinct_elements.attacks import Attack
from kfp_methods.components.tabular.dp_distinct_elements.choices import MECHANISMS
from kfp_methods.components.tabular.dp_distinct_elements.claims import CLAIMS
from kfp_methods.components.tabular.dp_distinct_elements.component import (
    DpDistinctElementsInputs,
    DpDistinctElementsMetrics,
    DpDistinctElementsOutputs,
)
from kfp_methods.components.tabular.dp_distinct_elements.measuring import Settings, rms
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Released
from kfp_methods.components.tabular.dp_distinct_elements.running import Case, Found
from kfp_methods.components.tabular.dp_distinct_elements.statement import statement
from kfp_methods.report import Figure, Report, Table, Text, format_number

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dp_distinct_elements.user_data import UserData

_GOOD = 0.1
_OWNER = "This page is for the owner of the data alone: what stands beside the counts comes from the events themselves."


def published(
    inputs: DpDistinctElementsInputs, data: UserData, made: tuple[Settings, Released]
) -> DpDistinctElementsOutputs:
    """Private counts and the statement about them, and nothing else of the events."""
    settings, released = made
    case = Case("published counts", data.stream, data.labels, [released], pd.DataFrame(), pd.DataFrame(), False)
    report_text = statement(settings, [released], published=True, secret=True)
    table = _counts([case], settings)
    why = "A release measures nothing."
    return DpDistinctElementsOutputs(
        report=Report(
            _release_summary(released, settings),
            (
                figures.counts(case, "published"),
                Table("counts", "Published counts", table, max_rows=30),
                Text("Privacy", report_text),
            ),
        ),
        metrics=DpDistinctElementsMetrics(**_noise_metrics(released, settings)),
        claims=[not_measured(claim, why) for claim in CLAIMS],
        private_counts=Table("private_counts", "Published counts", table),
        frontier=Table("frontier", "Not measured", pd.DataFrame()),
        budgets=Table("budgets", "Not measured", pd.DataFrame()),
        attacks=Table("attacks", "Not measured", pd.DataFrame()),
        privacy_report=report_text,
    )


def _release_summary(released: Released, settings: Settings) -> str:
    return (
        f"One release: {_noise_sentence(released, settings)} These counts may be published; nothing else of the events "
        "is in this report."
    )


def _noise_sentence(released: Released, settings: Settings) -> str:
    noise, typical = rms(released.sd), float(np.median(released.counts)) if len(released.counts) else 0.0
    relative = f", {noise / typical:.0%} of the median published count" if typical > 0 else ""
    word = " That is too much to be of use: raise the budget or lower the cap." if noise > 0.5 * abs(typical) else ""
    return (
        f"with epsilon = {format_number(settings.budget.epsilon)} and the mechanism '{MECHANISMS[released.name]}' (cap "
        f"{released.counted.cap}), published counts carry noise of {format_number(noise)} users (root mean square)"
        f"{relative}.{word}"
    )


def compared(inputs: DpDistinctElementsInputs, found: Found) -> DpDistinctElementsOutputs:
    """All that a comparison leaves."""
    first = found.cases[0]
    main = next(one for one in first.released if one.counted.cap)
    report_text = statement(found.settings, first.released, published=False, secret=inputs.secret_noise)
    attacked = _attacks(found.attacks)
    budgets = pd.concat([case.budgets.assign(stream=case.name) for case in found.cases])
    frontier = pd.concat([case.frontier.assign(stream=case.name) for case in found.cases])
    return DpDistinctElementsOutputs(
        report=Report(_summary(inputs, found, main), tuple(_parts(found, attacked, report_text, inputs.game_heavy))),
        metrics=_metrics(found, main),
        claims=verdicts.results(found, inputs.seed),
        private_counts=Table("private_counts", "Counts with noise", _counts(found.cases, found.settings)),
        frontier=Table("frontier", "Memory and error", frontier.reset_index(drop=True)),
        budgets=Table("budgets", "Error by budget and cap", budgets.reset_index(drop=True)),
        attacks=Table("attacks", "Attacks", attacked),
        privacy_report=report_text,
    )


def _summary(inputs: DpDistinctElementsInputs, found: Found, main: Released) -> str:
    first = found.cases[0]
    sentence = _noise_sentence(main, found.settings)
    sentences = [f"{first.name}: {sentence}"]
    if first.shows_truth and main.counted.blocked:
        left_out = rms(np.asarray(main.counted.counts - first.stream.present, np.float64))
        blocked = f"{main.counted.blocked:,} users change more often"
        sentences.append(f"The cap leaves out {format_number(left_out)} more: {blocked}.")
    sentences += [_which_budget(case) for case in found.cases if case.shows_truth]
    for one in found.attacks:
        if not one.passed:
            rate = float(attacks.true_positive_rate(one.mu, np.array([0.01]))[0])
            sentences.append(
                f"The mechanism '{MECHANISMS[one.name]}' breaks its promise on {found.attacked}: the worst user's "
                f"delta at this epsilon is {format_number(one.delta_at_epsilon)}, not {format_number(one.promised)}, "
                f"and an attack finds {rate:.1%} of such users at 1% false alarms."
            )
    kept = [MECHANISMS[one.name] for one in found.attacks if one.passed]
    if kept:
        sentences.append(f"The promise holds against the attack for: {', '.join(kept)}.")
    return " ".join(sentences) + f" {_OWNER}" * (not inputs.uses_sample)


def _which_budget(case: Case) -> str:
    best = measuring.best_caps(case.budgets)
    typical = float(np.median(case.stream.present))
    enough = best[best["rmse"] <= _GOOD * typical]
    row = best.iloc[-1] if enough.empty else enough.iloc[0]
    error = (
        f"{format_number(float(row['rmse']))} users, {row['rmse'] / typical:.0%} of the median count" if typical else ""
    )
    at = f"epsilon = {format_number(float(row['epsilon']))} with cap {int(row['W'])}"
    if typical and enough.empty:
        return f"{case.name}: no budget tried brings the error within {_GOOD:.0%}; {at} errs by {error}."
    return f"{case.name}: {at} is the smallest budget tried whose error is within {_GOOD:.0%}: {error}."


def _parts(found: Found, attacked: pd.DataFrame, report_text: str, k: int) -> list[Figure | Table | Text]:
    first = found.cases[0]
    parts: list[Figure | Table | Text] = [figures.counts(first, "1")]
    for number, case in enumerate(found.cases, 1):
        shown = measuring.best_caps(case.budgets) if case.shows_truth else case.budgets
        title = "Best cap for each budget" if case.shows_truth else "Noise by budget and cap"
        parts.append(Table(f"best-{number}", f"{title}: {case.name}", shown, highlight=number == 1))
    parts += [figures.budgets(first), figures.memory(first)]
    parts += [Table("frontier", f"Memory and error: {first.name}", first.frontier, "Bits by the written rule.")]
    parts += [figures.counts(case, str(number)) for number, case in enumerate(found.cases[1:], 2)]
    if found.attacks:
        parts += [figures.roc(found.attacks, found.attacked), Table("attacks", "Attacks", attacked)]
    if found.scaling:
        parts.append(figures.lengths(found.scaling))
    if found.avoided:
        parts += [figures.game(found.avoided, k), _game_table(found)]
    return [*parts, Text("Privacy", report_text)]


def _game_table(found: Found) -> Table:
    frame = pd.DataFrame([vars(one) for one in found.outcomes])
    means = frame.groupby("name", sort=False).mean().reset_index(names="mechanism")
    caption = (
        "Means over games. size: users given away in a phase; error: of the share present; auc and tpr (at 1% false "
        "alarms): tracing heavy users among others drawn alike who were never there."
    )
    return Table("game-table", "The game, played with each mechanism's counts", means, caption)


def _attacks(found: list[Attack]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "mechanism": one.name,
                "cap": one.cap,
                "mu": one.mu,
                "delta_at_epsilon": one.delta_at_epsilon,
                "promised_delta": one.promised,
                "tpr_at_1_percent": float(attacks.true_positive_rate(one.mu, np.array([0.01]))[0]),
                "epsilon_proved": one.proved.epsilon if one.proved else None,
                "passed": one.passed,
            }
            for one in found
        ]
    )


def _counts(cases: list[Case], settings: Settings) -> pd.DataFrame:
    """Published steps of every mechanism; several streams have their labels as text, for they may differ in kind."""
    frames = []
    for case in cases:
        chosen = slice(settings.every - 1, None, settings.every)
        for one in case.released:
            frame = pd.DataFrame({"mechanism": one.name, "t": case.labels[chosen], "count": one.counts[chosen]})
            frame["std"] = one.sd[chosen]
            if case.shows_truth:
                frame["true_count"] = case.stream.present[chosen]
            if len(cases) > 1:
                frame.insert(0, "stream", case.name)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _noise_metrics(main: Released, settings: Settings) -> dict[str, float | None]:
    noise, typical = rms(main.sd), float(np.median(main.counts)) if len(main.counts) else 0.0
    return {
        "rho": settings.budget.rho,
        "sigma_node": main.node_sd,
        "noise_rms": noise,
        "relative_noise": noise / typical if typical > 0 else None,
    }


def _metrics(found: Found, main: Released) -> DpDistinctElementsMetrics:
    first = found.cases[0]
    values = _noise_metrics(main, found.settings)
    values["peak_bits"] = float(main.counted.bits)
    if first.shows_truth:
        errors = main.counts - first.stream.present
        values |= {"rmse": rms(errors), "max_abs_error": float(np.abs(errors).max())}
    if attack := next((one for one in found.attacks if one.name == main.name), None):
        values |= {
            "audit_mu": attack.mu,
            "audit_delta_at_eps": attack.delta_at_epsilon,
            "audit_epsilon": attack.proved.epsilon if attack.proved else None,
            "audit_pass": float(attack.passed),
        }
    ratios = [one.heavy_share_ratio for one in found.outcomes if one.name == main.name]
    values["heavy_share_ratio"] = float(np.mean(ratios)) if ratios else None
    return DpDistinctElementsMetrics.model_validate(values)
