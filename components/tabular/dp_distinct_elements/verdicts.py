"""What was measured says of the paper's claims."""

from __future__ import annotations

import numpy as np

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured
from kfp_methods.components.tabular.dp_distinct_elements import claims
from kfp_methods.components.tabular.dp_distinct_elements.attacks import Attack
from kfp_methods.components.tabular.dp_distinct_elements.choices import HONEST
from kfp_methods.components.tabular.dp_distinct_elements.running import Found, Scaling
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Ints
from kfp_methods.report import format_number


def results(found: Found, seed: int) -> list[ClaimResult]:
    """Every claim's verdict."""
    return [
        *_scaling(found.scaling, seed),
        *_attacked(found.attacks),
        *_avoided(found.avoided, seed),
        _error(found, seed),
    ]


def slopes(x: Ints, y: Floats | Ints) -> Floats:
    """Least-squares slope of log y over log x, of each row of y [n]."""
    return np.asarray(np.polynomial.polynomial.polyfit(np.log(x), np.log(y).T, 1)[1])


def _scaling(scaling: Scaling | None, seed: int) -> list[ClaimResult]:
    three = (claims.SAMPLE_HOLD_SLOPE, claims.COUNTER_SLOPE, claims.LINEAR_SLOPE)
    if scaling is None:
        return [
            not_measured(claim, "It is about streams of several lengths: see the embedded sample.") for claim in three
        ]
    found = {name: slopes(scaling.lengths, bits) for name, bits in scaling.bits.items()}
    seeds = range(seed, seed + len(found["counter"]))
    means = ", ".join(format_number(v) for v in scaling.bits["sample_hold"].mean(0))
    note = (
        f"Bits at T = {', '.join(map(str, scaling.lengths))}: {means}. The noise at this cap is above the count itself."
    )
    return [
        judge(three[0], found["sample_hold"] - 0.4, note, seeds),
        judge(three[1], found["counter"], seeds=seeds),
        judge(three[2], found["tree_linear"] - 1, seeds=seeds),
    ]


def _attacked(attacks: list[Attack]) -> list[ClaimResult]:
    def ratio(one: Attack) -> float:
        return one.delta_at_epsilon / one.promised

    def result(claim: Claim, names: tuple[str, ...], lacking: str) -> ClaimResult:
        tried = [one for one in attacks if one.name in names]
        if not tried:
            return not_measured(claim, lacking)
        worst = max(tried, key=ratio)
        note = f"{worst.name}: least delta {format_number(worst.delta_at_epsilon)}, mu = {format_number(worst.mu)}."
        return judge(claim, [ratio(worst)], note, over="streams")

    return [
        result(claims.NOCAP_FAILS, ("nocap",), "It needs nocap among the mechanisms, and audit."),
        result(claims.HONEST_PASS, HONEST, "It needs tree_linear or sample_hold among the mechanisms, and audit."),
    ]


def _avoided(avoided: dict[int, list[float]], seed: int) -> list[ClaimResult]:
    if not avoided:
        why = "The game was not played: it is on the embedded sample."
        return [not_measured(claim, why) for claim in (claims.AVOIDANCE, claims.NO_MEMORY)]
    seeds = range(seed, seed + len(avoided[0]))
    note = "; ".join(f"{B} ids: {np.mean(ratios):.2f}" for B, ratios in avoided.items())
    return [
        judge(claims.AVOIDANCE, avoided[max(avoided)], f"{note}.", seeds),
        judge(claims.NO_MEMORY, np.array(avoided[0]) - 1, seeds=seeds),
    ]


def _error(found: Found, seed: int) -> ClaimResult:
    if found.scaling is None:
        return not_measured(claims.ERROR_SLOPE, "It is about a known stream of light users: see the embedded sample.")
    fitted = slopes(found.scaling.caps, found.scaling.rmse)
    return judge(claims.ERROR_SLOPE, fitted - 0.5, seeds=range(seed, seed + len(fitted)))
