"""The answer of an audit in words: who is flagged, how often that is wrong, and how much leaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfp_methods.components.tabular.bmia import leak

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.component import BmiaMetrics
    from kfp_methods.components.tabular.bmia.running import Audited


def summary(audits: Sequence[Audited], metrics: BmiaMetrics) -> str:
    """What the report says first."""
    sentences = [_flagged(audits, metrics), _level(audits[0], metrics), leak.headline(audits)]
    if audits[0].member is None:
        sentences.append(
            "How often the attacks are right cannot be said: that takes known members and known non-members."
        )
    return " ".join(filter(None, sentences))


def _flagged(audits: Sequence[Audited], metrics: BmiaMetrics) -> str:
    decision, n = audits[0].found.decision, len(audits[0].records)
    whose = f" of the first of {len(audits)} targets" if len(audits) > 1 else ""
    if metrics.flagged is None:
        return (
            f"Nobody is flagged: there are no validation records with the target's logits to calibrate a decision on. "
            f"The {n:,} records are ranked by how likely they are members."
        )
    rule = "are above the calibrated threshold" if decision.rule == "calibrated" else f"have p < {decision.alpha:g}"
    return f"{metrics.flagged:,} of {n:,} records{whose} {rule} and count as training members."


def _level(first: Audited, metrics: BmiaMetrics) -> str:
    """How many non-members the decision flags, where it is made and membership is known."""
    decision = first.found.decision
    level = metrics.type1_calibrated if decision.rule == "calibrated" else metrics.type1_at_alpha
    return (
        "" if level is None else f"{level:.2%} of the non-members are flagged; {decision.alpha * 100:g}% were intended."
    )
