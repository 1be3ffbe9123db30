"""The tables of an audit: every record's membership, the most exposed records, every attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.bmia import leak
from kfp_methods.components.tabular.bmia.attacks import AttackResult
from kfp_methods.components.tabular.bmia.plan import short_title
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.running import Audited

EXPOSED = 20
NOT_DECIDED = "not decided"
ATTACK, RATE, INTERVAL = "attack, refs", "TPR, %", "95% interval"
_INTERVALS = "Intervals (95%) count the luck of the members and of the non-members that set the threshold."


def membership(one: Audited) -> Table:
    """Each record of an audit, the likeliest members first."""
    decision = one.found.decision
    decided = NOT_DECIDED if decision.member is None else np.where(decision.member, "member", "non-member")
    frame = pd.DataFrame(
        {
            "row": np.arange(len(one.records)),
            "t": decision.test.t,
            "p_value": decision.test.p_value,
            "decision": decided,
            "s0": one.found.target_scores,
            "mean_ref": decision.test.mean,
            "sd_ref": decision.test.sd,
            "label": one.records.y.numpy(),
        }
    )
    if one.member is not None:
        frame["member"] = one.member
    return Table("membership", "Membership of every record", frame.sort_values("t", ascending=False, kind="stable"))


def exposed(membership: Table, where: str, *, highlight: bool) -> Table:
    """The records on top of the membership table; `where` says what the row numbers count."""
    caption = f"Row numbers count from 0 in {where}. s0 is the target's score; mean_ref and sd_ref are the references'."
    frame = membership.frame.head(EXPOSED)
    return Table("exposed", "The most exposed records", frame, caption, highlight=highlight)


def leaks(audits: Sequence[Audited]) -> Table:
    """What each attack finds at 1% false positives, in percent, the strongest first; narrow enough for a phone."""
    rows: list[dict[str, object]] = []
    notes: dict[str, list[str]] = {}
    for result in audits[0].found.attacks:
        rate = leak.rate(audits, result, leak.FPR)
        interval = None if rate.low is None or rate.high is None else f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"
        area = leak.area(audits, result).value
        found = None if rate.value is None else round(100 * rate.value, 2)
        name = short_title(result.name, result.n_references)
        rows.append({ATTACK: name, "AUC": area, RATE: found, INTERVAL: interval})
        if rate.note:
            notes.setdefault(rate.note, []).append(result.title)
    frame = pd.DataFrame(rows).astype({"AUC": float, RATE: float})
    frame = frame.sort_values([RATE, "AUC"], ascending=False, kind="stable", ignore_index=True)
    words = "Refs: reference models. TPR: share of the members found where 1% of the non-members are wrongly flagged."
    gaps = [f"— not resolved: {note} ({_titles(titles, len(frame))})." for note, titles in notes.items()]
    title = "What each attack finds at 1% false positives"
    return Table("leaks", title, frame, " ".join([words, _INTERVALS, *gaps]), highlight=True)


def attacks(audits: Sequence[Audited], name: str = "attacks") -> Table:
    """Every attack in full: means over the audited targets."""
    rows = [_attack_row(audits, result) for result in audits[0].found.attacks]
    caption = f"TPR: share of the members found where that share of the non-members is wrongly flagged. {_INTERVALS}"
    return Table(name, "Every attack, every rate, and what it costs", pd.DataFrame(rows), caption)


def _attack_row(audits: Sequence[Audited], first: AttackResult) -> dict[str, object]:
    results = [one.found.attack(first.name, first.n_references) for one in audits]
    return {
        "attack": first.title,
        "references": first.n_references,
        **dict(_columns("AUC", leak.area(audits, first))),
        **{
            column: value
            for rate in first.rates
            for column, value in _columns(f"TPR at {rate.fpr * 100:g}% FPR", leak.rate(audits, first, rate.fpr))
        },
        "train_seconds": np.mean([result.train_seconds for result in results]),
        "score_seconds": np.mean([result.score_seconds for result in results]),
    }


def _columns(name: str, estimate: leak.Estimate) -> Iterator[tuple[str, float]]:
    """Value and ends of the interval; NaN where it could not be measured."""
    for suffix, value in (("", estimate.value), (", low", estimate.low), (", high", estimate.high)):
        yield f"{name}{suffix}", np.nan if value is None else value


def _titles(titles: Sequence[str], n_attacks: int) -> str:
    return "every attack" if len(titles) == n_attacks else "; ".join(titles)
