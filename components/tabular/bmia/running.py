"""From validated inputs to audits, and from audits to the method's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from kfp_methods.components.tabular.bmia import claims, figures
from kfp_methods.components.tabular.bmia.arrays import Flags
from kfp_methods.components.tabular.bmia.attacks import AttackResult
from kfp_methods.components.tabular.bmia.audit import Audit, Settings, audit
from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaMetrics, BmiaOutputs
from kfp_methods.components.tabular.bmia.model import MembershipAttack, Reference
from kfp_methods.components.tabular.bmia.parallel import Trained, train_all
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import posterior_samples, reference_jobs
from kfp_methods.components.tabular.bmia.repeat import audit_seeds
from kfp_methods.components.tabular.bmia.roc import roc_curve
from kfp_methods.components.tabular.bmia.sample import Split, fashion_mnist, fashion_mnist_whole, split
from kfp_methods.components.tabular.bmia.training import Recipe, derived_seed
from kfp_methods.components.tabular.bmia.user_data import UserData
from torch import Tensor

from kfp_methods.context import Context
from kfp_methods.contract import RocCurve
from kfp_methods.report import Report, Table, Text

_SWEEP = (2, 5, 20, 50, 100, 200)
_EXPOSED = 20


@dataclass(frozen=True)
class Audited:
    """One audited target with all that its report and model need."""

    seed: int
    records: Records
    member: Flags | None
    logits: Tensor
    references: Sequence[Trained]
    n_classes: int
    found: Audit
    train_accuracy: float | None = None
    test_accuracy: float | None = None
    center: Tensor | None = None
    scale: Tensor | None = None


def sample(inputs: BmiaInputs, context: Context) -> list[Audited]:
    """Trains and audits one target a seed on the embedded sample."""
    whole = fashion_mnist() if inputs.sample_size <= 6_000 else fashion_mnist_whole()

    def data(seed: int) -> Split:
        rows = np.random.default_rng(derived_seed(seed, 3)).permutation(len(whole))[: inputs.sample_size]
        return split(whole.take(rows), seed)

    seeds = range(inputs.seed, inputs.seed + inputs.n_seeds)
    audited = []
    with context.bar("training targets and references", inputs.n_seeds * (1 + inputs.n_references)) as advance:
        for one in audit_seeds(
            data,
            seeds,
            recipe(inputs, context),
            settings(inputs, context),
            n_references=inputs.n_references,
            on_trained=advance,
        ):
            audited.append(
                Audited(
                    one.seed, one.split.audit, one.split.member, one.audit_logits, one.references, one.split.n_classes,
                    one.audit, one.train_accuracy, one.test_accuracy,
                )
            )  # fmt: skip
            for result in one.audit.attacks:
                if result.auc is not None:
                    context.metric(f"auc_{result.name}_{result.n_references}", result.auc, step=len(audited))
    return audited


def user(inputs: BmiaInputs, data: UserData, context: Context) -> Audited:
    """Trains references on the user's pool and audits the user's target."""
    jobs = reference_jobs(
        data.reference, inputs.n_references, data.n_classes, recipe(inputs, context), derived_seed(inputs.seed, 1)
    )
    with context.bar("training references", inputs.n_references) as advance:
        references = train_all(jobs, device=context.device, on_trained=advance)
    found = audit(
        data.target_logits,
        data.audit,
        references,
        settings(inputs, context),
        member=data.member if data.member is not None and 0 < data.member.sum() < len(data.member) else None,
        validation=data.validation,
        validation_logits=data.validation_logits,
    )
    if data.member is None:
        context.warn("the audit records have no member column: scores and decisions only, no ROC")
    elif data.member.all() or not data.member.any():
        context.warn("the member column holds one value only: scores and decisions only, no ROC")
    return Audited(
        inputs.seed, data.audit, data.member if found.attacks and found.attacks[0].auc is not None else None,
        data.target_logits, references, data.n_classes, found, center=data.center, scale=data.scale,
    )  # fmt: skip


def recipe(inputs: BmiaInputs, context: Context) -> Recipe:
    """How references (and the sample's targets) are trained."""
    return Recipe(
        architecture=inputs.arch,
        hidden=tuple(inputs.hidden),
        epochs=inputs.epochs,
        learning_rate=inputs.lr,
        weight_decay=inputs.weight_decay,
        batch_size=inputs.batch_size,
        mixed_precision=context.device == "cuda",
    )


def settings(inputs: BmiaInputs, context: Context) -> Settings:
    """What is asked of an audit."""
    # 1% and the claims' ingredients are always measured, whatever else was asked for.
    return Settings(
        n_samples=inputs.n_samples,
        hessian=inputs.hessian,
        prior_precision=None if inputs.prior_precision == "marglik" else float(inputs.prior_precision),
        score=inputs.score,
        decision_rule=inputs.decision_rule,
        alpha=inputs.alpha,
        fprs=tuple(sorted({*inputs.fprs, 0.01})),
        attacks=tuple(dict.fromkeys(inputs.attacks)),
        sweep=tuple(sorted({M for M in _SWEEP if 2 * inputs.n_samples >= M} | {2, max(2, inputs.n_samples)})),
        ablation=("kron", "diag"),
        seed=inputs.seed,
        device=context.device,
    )


def outputs(inputs: BmiaInputs, audits: list[Audited], context: Context) -> BmiaOutputs:
    """Tables, figures, claims and the fitted attack."""
    first = audits[0]
    for warning in dict.fromkeys(w for one in audits for w in one.found.warnings):
        context.warn(warning)
    for attack_title, reason in first.found.skipped.items():
        context.warn(f"{attack_title} did not run: {reason}")
    metrics = _metrics(inputs, audits)
    membership, attacks = _membership(first), _attacks(audits)
    judged = claims.results(
        [one.found for one in audits], [one.seed for one in audits], inputs.n_references, inputs.n_samples
    )
    return BmiaOutputs(
        report=Report(_summary(inputs, first, metrics, attacks.frame), (*_figures(inputs, audits), attacks, *_exposed(membership))),
        metrics=metrics,
        claims=judged,
        membership=membership,
        attack_results=attacks,
        roc=_roc(first),
        model=_model(inputs, first),
    )


def _summary(inputs: BmiaInputs, first: Audited, metrics: BmiaMetrics, attacks: pd.DataFrame) -> str:
    decision = first.found.decision
    rule = "above the calibrated threshold" if decision.rule == "calibrated" else f"with p < {decision.alpha:g}"
    flagged = f"{metrics.flagged} of {len(first.records)} records are {rule} and count as training members"
    if first.member is None:
        return f"{flagged}. Membership is not known, so how often that is right cannot be said."
    column = "TPR at 1% FPR"
    best = attacks.loc[attacks[column].astype(float).idxmax()] if attacks[column].notna().any() else None
    found = "" if best is None else (
        f" At 1% false positives the strongest attack here, {best['attack']}, finds {best[column]:.1%} of the members"
        f" (guessing: 1.0%); BMIA with one reference finds {_percent(metrics.tpr_at_1pct_bmia)}."
    )
    level = f" The decision flags {_percent(metrics.type1_calibrated or metrics.type1_at_alpha)} of the non-members."
    return f"{flagged}.{found}{level}"


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{value:.1%}"


def _metrics(inputs: BmiaInputs, audits: list[Audited]) -> BmiaMetrics:
    K = inputs.n_references

    def mean(value: Callable[[Audited], float | None]) -> float | None:
        found = [value(one) for one in audits]
        known = [number for number in found if number is not None]
        return float(np.mean(known)) if known and len(known) == len(found) else None

    def tpr(one: Audited, name: str, k: int) -> float | None:
        return next((r.tpr for r in getattr(_attack(one, name, k), "rates", ()) if r.fpr == 0.01), None)

    def auc(one: Audited, name: str, k: int) -> float | None:
        return getattr(_attack(one, name, k), "auc", None)

    def seconds(one: Audited, name: str, k: int) -> float | None:
        result = _attack(one, name, k)
        return None if result is None else result.train_seconds + result.score_seconds

    def ratio(one: Audited) -> float | None:
        ours, theirs = seconds(one, "bmia", 1), seconds(one, "lira_fixed", K)
        return ours / theirs if ours is not None and theirs else None

    def gain(one: Audited) -> float | None:
        ours, theirs = tpr(one, "bmia", 1), tpr(one, "lira_fixed", 1)
        return None if ours is None or theirs is None else ours - theirs

    def inter(one: Audited) -> float | None:
        variance = one.found.decision.test.inter_variance
        return None if variance is None else float(np.median(variance))

    priors = [prior for one in audits for prior in one.found.prior_precisions]
    return BmiaMetrics(
        auc_bmia=mean(lambda one: auc(one, "bmia", 1)),
        tpr_at_1pct_bmia=mean(lambda one: tpr(one, "bmia", 1)),
        auc_mr_bmia=mean(lambda one: auc(one, "bmia", K)),
        tpr_at_1pct_mr_bmia=mean(lambda one: tpr(one, "bmia", K)),
        tpr_gain_vs_lira1=mean(gain),
        intra_var=float(np.mean([np.median(one.found.decision.test.intra_variance) for one in audits])),
        inter_var=mean(inter),
        type1_at_alpha=mean(lambda one: None if one.member is None else one.found.decision.level_nominal(~one.member)),
        type1_calibrated=mean(lambda one: None if one.member is None else one.found.decision.level_calibrated(~one.member)),
        scale_ratio=mean(lambda one: one.found.scale_ratio),
        prior_precision=float(np.exp(np.mean(np.log(priors)))),
        flagged=int(audits[0].found.decision.member.sum()),
        target_train_accuracy=mean(lambda one: one.train_accuracy),
        target_test_accuracy=mean(lambda one: one.test_accuracy),
        bmia_time_ratio=mean(ratio),
    )


def _attack(one: Audited, name: str, n_references: int) -> AttackResult | None:
    return next((a for a in one.found.attacks if (a.name, a.n_references) == (name, n_references)), None)


def _membership(one: Audited) -> Table:
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


def _exposed(membership: Table) -> list[Table]:
    top = membership.frame.head(_EXPOSED)
    return [Table("exposed", "The most exposed records", top, caption="Row numbers count from 0 in the audit file.")]


def _attacks(audits: list[Audited]) -> Table:
    """Means over the targets; intervals are exact binomial ones of the pooled counts."""
    from scipy import stats

    rows = []
    for result in audits[0].found.attacks:
        same = [r for one in audits if (r := _attack(one, result.name, result.n_references)) is not None]
        row: dict[str, object] = {
            "attack": result.title,
            "references": result.n_references,
            "AUC": np.mean([r.auc for r in same]) if result.auc is not None else None,
        }
        for index, rate in enumerate(result.rates):
            rates = [r.rates[index].tpr for r in same]
            name = f"TPR at {rate.fpr * 100:g}% FPR"
            if any(value is None for value in rates) or audits[0].member is None:
                row |= {name: None, f"{name}, 95% interval": rate.note}
                continue
            sizes = [int(one.member.sum()) for one in audits if one.member is not None]
            hits = sum(round(value * n) for value, n in zip(rates, sizes, strict=True) if value is not None)
            interval = stats.binomtest(hits, sum(sizes)).proportion_ci(0.95, method="exact")
            row |= {name: hits / sum(sizes), f"{name}, 95% interval": f"{interval.low:.4f} to {interval.high:.4f}"}
        row["train_seconds"] = np.mean([r.train_seconds for r in same])
        row["score_seconds"] = np.mean([r.score_seconds for r in same])
        rows.append(row)
    return Table("attacks", "Every attack on the same target with the same references", pd.DataFrame(rows))


def _figures(inputs: BmiaInputs, audits: list[Audited]) -> list[figures.Figure | Text]:
    members = [one.member for one in audits if one.member is not None]
    found = [one.found for one in audits]
    if len(members) < len(audits):
        return []
    first = found[0].decision
    p_values = first.test.p_value[~members[0]]
    parts: list[figures.Figure | Text | None] = [
        figures.roc_figure(found, members),
        figures.sweep_figure(found),
        figures.p_value_figure(p_values, inputs.alpha, first.level_nominal(~members[0])),
    ]
    return [part for part in parts if part is not None]


def _roc(one: Audited) -> RocCurve:
    """BMIA with all references; a finite number stands for the threshold that nothing exceeds."""
    if one.member is None:
        return RocCurve((), (), ())
    t = one.found.decision.test.t
    fpr, tpr, threshold = roc_curve(t[one.member], t[~one.member])
    threshold[0] = t.max() + 1
    return RocCurve(tuple(fpr.tolist()), tuple(tpr.tolist()), tuple(threshold.tolist()))


def _model(inputs: BmiaInputs, one: Audited) -> MembershipAttack:
    prior = None if inputs.prior_precision == "marglik" else float(inputs.prior_precision)
    references = []
    for k, trained in enumerate(one.references):
        seed = derived_seed(one.seed, k)
        drawn, _ = posterior_samples(
            trained, n_samples=inputs.n_samples, hessian=inputs.hessian, prior_precision=prior, seed=seed
        )
        references.append(Reference(trained.model.cpu(), drawn.cpu()))
    decision = one.found.decision
    return MembershipAttack(
        references=tuple(references),
        recipe=one_recipe(inputs),
        input_shape=tuple(one.records.x.shape[1:]),
        n_classes=one.n_classes,
        center=torch.zeros(()) if one.center is None else one.center,
        scale=torch.ones(()) if one.scale is None else one.scale,
        score=inputs.score,
        alpha=inputs.alpha,
        threshold=decision.threshold if decision.rule == "calibrated" else None,
        rows=one.records.take(np.arange(min(3, len(one.records)))),
        row_logits=one.logits[:3],
    )


def one_recipe(inputs: BmiaInputs) -> Recipe:
    """What a loaded attack needs to rebuild its references."""
    return Recipe(architecture=inputs.arch, hidden=tuple(inputs.hidden))
