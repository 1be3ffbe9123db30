"""The privacy statement: the promise, for whom, by which noise, and what it does not cover."""

from __future__ import annotations

from kfp_methods.components.tabular.dp_distinct_elements.choices import HONEST, MECHANISMS
from kfp_methods.components.tabular.dp_distinct_elements.measuring import Settings
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Released
from kfp_methods.report import format_number


def statement(settings: Settings, released: list[Released], *, published: bool, secret: bool) -> str:
    """Markdown; published: whether nothing else was written, with secure randomness."""
    budget = settings.budget
    promise = f"({format_number(budget.epsilon)}, {format_number(budget.delta)})-differentially private"
    if published:
        lines = ["# One private release", "", f"The whole sequence of counts is {promise} at the level of users."]
    else:
        noise = "" if secret else " its noise follows from a seed that is known, and"
        lines = [
            "# A simulation, not a release",
            "",
            f"Nothing of this run may be published:{noise} what stands beside the counts comes from the events "
            f"themselves. A release would be {promise} at the level of users.",
        ]
    lines += ["", "| mechanism | cap on a user's changes | noise of a node | promise |", "|---|---|---|---|"]
    for one in released:
        promised = "kept" if one.name in HONEST else "none: it adds no noise" if not one.counted.cap else "broken"
        cap, noise = (one.counted.cap or "none", format_number(one.node_sd) if one.node_sd else "none")
        lines.append(f"| {MECHANISMS[one.name]} | {cap} | {noise} | {promised} |")
    lines += [
        "",
        "- Neighbours: all updates of one user are there, or are empty. The number of steps counts as public.",
        f"- Budget rho = {format_number(budget.rho)} (zero-concentrated), horizon {budget.horizon:,} steps. "
        f"Calibration: {budget.calibration}.",
        "- Another release of the same events adds its epsilon and delta up.",
        "- Numbers are in double precision; the guarantee is that of exact arithmetic.",
    ]
    if any(one.name == "sample_hold" for one in released):
        lines.append(
            "- Sample and hold: a tenth of delta is for a user who changes more often than the cap allows for."
        )
    return "\n".join(lines) + "\n"
