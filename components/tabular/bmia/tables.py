"""The tables of an audit: every record's membership, the most exposed records, every attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.bmia.attacks import AttackResult
from kfp_methods.components.tabular.bmia.choices import AttackName
from kfp_methods.components.tabular.bmia.roc import clopper_pearson
from kfp_methods.report import Table, format_interval

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.running import Audited

EXPOSED = 20


def membership(one: Audited) -> Table:
    """Each record of an audit, the likeliest members first."""
    decision = one.found.decision
    frame = pd.DataFrame(
        {
            "row": np.arange(len(one.records)),
            "t": decision.test.t,
            "p_value": decision.test.p_value,
            "decision": np.where(decision.member, "member", "non-member"),
            "s0": one.found.target_scores,
            "mean_ref": decision.test.mean,
            "sd_ref": decision.test.sd,
            "label": one.records.y.numpy(),
        }
    )
    if one.member is not None:
        frame["member"] = one.member
    return Table("membership", "Membership of every record", frame.sort_values("t", ascending=False, kind="stable"))


def exposed(membership: Table, where: str) -> Table:
    """The records on top of the membership table; `where` says what the row numbers count."""
    caption = f"Row numbers count from 0 in {where}. s0 is the target's score; mean_ref and sd_ref are the references'."
    return Table("exposed", "The most exposed records", membership.frame.head(EXPOSED), caption)


def attacks(audits: Sequence[Audited], name: str = "attacks") -> Table:
    """Every attack: means over the audited targets, with exact binomial intervals of the pooled counts."""
    rows = [_attack_row(audits, result.name, result.n_references) for result in audits[0].found.attacks]
    caption = "TPR: share of the members found where that share of the non-members is wrongly flagged."
    return Table(name, "Every attack on the same target with the same references", pd.DataFrame(rows), caption)


def _attack_row(audits: Sequence[Audited], name: AttackName, n_references: int) -> dict[str, object]:
    results = [one.found.attack(name, n_references) for one in audits]
    sizes = [0 if one.member is None else int(one.member.sum()) for one in audits]
    return {
        "attack": results[0].title,
        "references": n_references,
        "AUC": np.mean([np.nan if result.auc is None else result.auc for result in results]),
        **dict(_rate_columns(results, sizes)),
        "train_seconds": np.mean([result.train_seconds for result in results]),
        "score_seconds": np.mean([result.score_seconds for result in results]),
    }


def _rate_columns(results: Sequence[AttackResult], n_members: Sequence[int]) -> Iterator[tuple[str, object]]:
    """For each false-positive rate the pooled true-positive rate, and its interval or why there is none."""
    for rate in results[0].rates:
        column = f"TPR at {rate.fpr * 100:g}% FPR"
        rates = [result.tpr(rate.fpr) for result in results]
        hits = [round(tpr * n) for tpr, n in zip(rates, n_members, strict=True) if tpr is not None]
        if len(hits) < len(results):
            yield from ((column, np.nan), (f"{column}, 95% interval", rate.note))
            continue
        interval = clopper_pearson(sum(hits), sum(n_members))
        yield from ((column, sum(hits) / sum(n_members)), (f"{column}, 95% interval", format_interval(*interval)))
