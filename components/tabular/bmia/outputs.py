"""From audited targets to the method's outputs: report, metrics, claims, tables, curve and fitted attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from kfp_methods.components.tabular.bmia import claims, figures, measures, tables
from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaMetrics, BmiaOutputs
from kfp_methods.components.tabular.bmia.model import MembershipAttack, Reference
from kfp_methods.components.tabular.bmia.references import posterior_samples
from kfp_methods.components.tabular.bmia.roc import roc_curve
from kfp_methods.components.tabular.bmia.running import Audited, recipe_of, settings_of
from kfp_methods.components.tabular.bmia.training import derived_seed
from kfp_methods.context import Context
from kfp_methods.contract import RocCurve
from kfp_methods.report import Figure, Report


def outputs(inputs: BmiaInputs, audits: Sequence[Audited], context: Context) -> BmiaOutputs:
    """All that the method returns; the tables of records, the curve and the model are the first target's."""
    first, found = audits[0], [one.found for one in audits]
    for warning in _warnings(audits):
        context.warn(warning)
    metrics = measures.metrics(audits, inputs.n_references)
    membership, attacks = tables.membership(first), tables.attacks(audits)
    where = "the first target's audit set (members first)" if inputs.uses_sample else "the audit file"
    roc, *others = [*_figures(audits), None]
    parts = [roc, attacks, *others, tables.exposed(membership, where)]
    return BmiaOutputs(
        report=Report(_summary(audits, metrics, attacks.frame), tuple(part for part in parts if part is not None)),
        metrics=metrics,
        claims=claims.results(found, [one.seed for one in audits], inputs.n_references, inputs.n_samples),
        membership=membership,
        attack_results=attacks,
        roc=_roc(first),
        model=fitted(inputs, first),
    )


def fitted(inputs: BmiaInputs, one: Audited) -> MembershipAttack:
    """The attack with the very posterior samples of the audit."""
    settings = settings_of(inputs, "cpu")
    references = []
    for k, trained in enumerate(one.references):
        samples, _ = posterior_samples(
            trained,
            n_samples=settings.n_samples,
            hessian=settings.hessian,
            prior_precision=settings.prior_precision,
            seed=derived_seed(one.seed, k),
        )
        references.append(Reference(trained.model.cpu(), samples.cpu()))
    decision = one.found.decision
    return MembershipAttack(
        references=tuple(references),
        recipe=recipe_of(inputs, "cpu"),
        input_shape=tuple(one.records.x.shape[1:]),
        n_classes=one.logits.shape[1],
        center=torch.zeros(()) if one.center is None else one.center,
        scale=torch.ones(()) if one.scale is None else one.scale,
        score=settings.score,
        alpha=settings.alpha,
        threshold=decision.threshold if decision.rule == "calibrated" else None,
        rows=one.records.take(np.arange(min(3, len(one.records)))),
        row_logits=one.logits[:3],
    )


def _warnings(audits: Sequence[Audited]) -> list[str]:
    found = [warning for one in audits for warning in one.found.warnings]
    found += [f"{title} did not run: {reason}" for title, reason in audits[0].found.skipped.items()]
    return list(dict.fromkeys(found))


def _figures(audits: Sequence[Audited]) -> list[Figure | None]:
    """ROC curves, the power of more samples, the p-values' law: none without known membership."""
    members = [one.member for one in audits if one.member is not None]
    if len(members) < len(audits):
        return []
    found = [one.found for one in audits]
    return [figures.roc_figure(found, members), figures.sweep_figure(found), figures.p_value_figure(found, members)]


def _roc(one: Audited) -> RocCurve:
    """BMIA with all references; no points without known membership."""
    if one.member is None:
        return RocCurve((), (), ())
    t = one.found.decision.test.t
    fpr, tpr, threshold = (tuple(map(float, values)) for values in roc_curve(t[one.member], t[~one.member]))
    return RocCurve(fpr, tpr, threshold)


def _summary(audits: Sequence[Audited], metrics: BmiaMetrics, attacks: pd.DataFrame) -> str:
    """The answer in words."""
    first, decision = audits[0], audits[0].found.decision
    rule = "are above the calibrated threshold" if decision.rule == "calibrated" else f"have p < {decision.alpha:g}"
    whose = f" of the first of {len(audits)} targets" if len(audits) > 1 else ""
    flagged = f"{metrics.flagged:,} of {len(first.records):,} records{whose} {rule} and count as training members."
    if first.member is None:
        return f"{flagged} Membership is not known, so how often that is right cannot be said."
    level = metrics.type1_calibrated if decision.rule == "calibrated" else metrics.type1_at_alpha
    words = (
        "" if level is None else f" It flags {level:.2%} of the non-members; {decision.alpha * 100:g}% were intended."
    )
    return f"{flagged}{words}{_leak(attacks)}"


def _leak(attacks: pd.DataFrame) -> str:
    """How much the strongest attack finds, by the rows of the attacks' table."""
    if attacks.empty:
        return ""
    if (rates := attacks["TPR at 1% FPR"]).notna().any():
        best = attacks.iloc[rates.argmax()]
        found = f"finds {best['TPR at 1% FPR']:.1%} of the members (guessing: 1%)"
        return f" At 1% false positives the strongest attack, {best['attack']}, {found}."
    best = attacks.iloc[attacks["AUC"].argmax()]
    return f" The strongest attack, {best['attack']}, has an AUC of {best['AUC']:.3f} (guessing: 0.5)."
