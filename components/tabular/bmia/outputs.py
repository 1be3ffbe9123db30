"""From audited targets to the method's outputs: report, metrics, claims, tables, curve and fitted attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from kfp_methods.components.tabular.bmia import claims, figures, measures, scoring, tables
from kfp_methods.components.tabular.bmia.columns import default_features
from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaOutputs
from kfp_methods.components.tabular.bmia.model import MembershipAttack, Reference
from kfp_methods.components.tabular.bmia.references import posterior_samples
from kfp_methods.components.tabular.bmia.roc import roc_curve
from kfp_methods.components.tabular.bmia.running import Audited, recipe_of, settings_of
from kfp_methods.components.tabular.bmia.summary import summary
from kfp_methods.components.tabular.bmia.training import derived_seed
from kfp_methods.context import Context
from kfp_methods.contract import RocCurve
from kfp_methods.report import Figure, Report, Table


def outputs(inputs: BmiaInputs, audits: Sequence[Audited], context: Context) -> BmiaOutputs:
    """All that the method returns; the tables of records, the curve and the model are the first target's."""
    first, found = audits[0], [one.found for one in audits]
    for warning in _warnings(audits):
        context.warn(warning)
    metrics = measures.metrics(audits, inputs.n_references)
    membership, attacks, model = tables.membership(first), tables.attacks(audits), fitted(inputs, first)
    known, users = all(one.member is not None for one in audits), not inputs.uses_sample
    where = "the audit file" if users else "the first target's audit set (members first)"
    exposed = tables.exposed(membership, where, highlight=not known)
    parts = [*(_measured(audits, attacks) if known else ()), exposed, scoring.how_to(model)]
    seeds = [one.seed for one in audits]
    return BmiaOutputs(
        report=Report(summary(audits, metrics), tuple(parts)),
        metrics=metrics,
        claims=claims.results(found, seeds, inputs.n_references, inputs.n_samples, users=users),
        membership=membership,
        attack_results=attacks,
        roc=_roc(first),
        model=model,
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
        features=one.features or default_features(one.records.x.shape[1:]),
        decision_rule=decision.rule,
        threshold=decision.threshold,
        rows=one.records.take(np.arange(min(3, len(one.records)))),
        row_logits=one.logits[:3],
    )


def _warnings(audits: Sequence[Audited]) -> list[str]:
    found = [warning for one in audits for warning in one.found.warnings]
    found += [f"{title} did not run: {reason}" for title, reason in audits[0].found.skipped.items()]
    return list(dict.fromkeys(found))


def _measured(audits: Sequence[Audited], attacks: Table) -> Iterator[Figure | Table]:
    """What needs known membership: how much each attack finds, ROC curves, the power of more samples, p-values."""
    members = [one.member for one in audits if one.member is not None]
    found = [one.found for one in audits]
    if found[0].attacks:
        yield tables.leaks(audits)
    drawn = (figures.roc_figure(found, members), figures.sweep_figure(found), figures.p_value_figure(found, members))
    yield from (figure for figure in drawn if figure)
    yield attacks


def _roc(one: Audited) -> RocCurve:
    """BMIA with all references; no points without known membership."""
    if one.member is None:
        return RocCurve((), (), ())
    t = one.found.decision.test.t
    fpr, tpr, threshold = (tuple(map(float, values)) for values in roc_curve(t[one.member], t[~one.member]))
    return RocCurve(fpr, tpr, threshold)
