"""One audit: a target's logits against trained references, by every attack."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from kfp_methods.components.tabular.bmia.architectures import last_layer
from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.attacks import (
    AttackResult,
    Evidence,
    Part,
    attack,
    budgets,
    measure,
    title,
    why_not,
)
from kfp_methods.components.tabular.bmia.choices import (
    ATTACKS,
    AttackName,
    DecisionRule,
    HessianName,
    ScoreName,
)
from kfp_methods.components.tabular.bmia.decision import Decision, decide
from kfp_methods.components.tabular.bmia.parallel import Trained
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import (
    ScoredReference,
    score_logits,
    score_reference,
)
from kfp_methods.components.tabular.bmia.training import derived_seed, one_core
from kfp_methods.errors import InputError, Problem


@dataclass(frozen=True)
class Settings:
    """What is asked of an audit.

    Attributes:
        n_samples: posterior samples M of each reference.
        hessian: structure of the posterior.
        prior_precision: None for the one of greatest evidence.
        score: which score.
        decision_rule: which rule flags members.
        alpha: intended share of non-members flagged.
        fprs: false-positive rates at which true-positive rates are reported.
        attacks: which attacks run.
        sweep: numbers of samples for which one-reference BMIA is measured, all from one set of samples.
        ablation: further Hessian structures for which one-reference BMIA is measured.
        seed: of posterior samples and attacks.
        device: where QMIA's network is fitted.
    """

    n_samples: int = 50
    hessian: HessianName = "kron"
    prior_precision: float | None = None
    score: ScoreName = "hinge"
    decision_rule: DecisionRule = "calibrated"
    alpha: float = 0.01
    fprs: tuple[float, ...] = (0.001, 0.01, 0.1)
    attacks: tuple[AttackName, ...] = ATTACKS
    sweep: tuple[int, ...] = ()
    ablation: tuple[HessianName, ...] = ()
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Audit:
    """All that one audit found.

    Attributes:
        target_scores: s0 [n].
        decisions: by number of references, one and all (one is absent when a single sample has no spread).
        attacks: results of the attacks that ran.
        skipped: why the others did not.
        sweep: one-reference BMIA by number of samples; empty without known membership.
        ablation: one-reference BMIA by Hessian structure, `hessian` included; empty without known membership.
        prior_precisions: one a reference.
        scale_ratio: median |s0| / median |mean_ref| over the validation records; None without them.
        warnings: what the reader should doubt.
    """

    target_scores: Floats
    decisions: dict[int, Decision]
    attacks: tuple[AttackResult, ...]
    skipped: dict[str, str]
    sweep: dict[int, AttackResult]
    ablation: dict[HessianName, AttackResult]
    prior_precisions: tuple[float, ...]
    scale_ratio: float | None
    warnings: tuple[str, ...]

    @property
    def decision(self) -> Decision:
        """The decision with all references."""
        return self.decisions[max(self.decisions)]

    def attack(self, name: AttackName, n_references: int) -> AttackResult:
        """One attack's result.

        Raises:
            KeyError: it did not run with that many references.
        """
        return {(result.name, result.n_references): result for result in self.attacks}[name, n_references]

    def find(self, name: AttackName, n_references: int) -> AttackResult | None:
        """The same, or None when it did not run."""
        found = (a for a in self.attacks if (a.name, a.n_references) == (name, n_references))
        return next(found, None)


@one_core()
def audit(
    target_logits: Tensor,
    records: Records,
    references: Sequence[Trained],
    settings: Settings,
    *,
    member: Flags | None = None,
    validation: Records | None = None,
    validation_logits: Tensor | None = None,
) -> Audit:
    """Audits one target with every attack, all from the same references.

    Args:
        target_logits: the target's logits on `records` [n, C].
        records: to audit.
        references: K trained references.
        settings: what is asked.
        member: true membership [n], for evaluation only.
        validation: known non-members, in neither `records` nor the references' training data.
        validation_logits: the target's logits on them [v, C]; without them the decision is p < alpha, and
            attacks that need them are skipped.

    Raises:
        InputError: target and references differ in their number of classes.
    """
    C = target_logits.shape[1]
    _check_classes(C, references)
    parts = [(records, target_logits)]
    if validation is not None and validation_logits is not None:
        parts.append((validation, validation_logits))
    if member is None:
        settings = replace(settings, sweep=(), ablation=())
    scored = [_score(reference, k, parts, settings) for k, reference in enumerate(references)]
    evidence = _evidence(parts, scored, C, settings)
    results, skipped = _run(evidence, settings.attacks)
    sweep, ablation = _sweep(evidence, settings.sweep), _ablation(references, parts, evidence, settings)
    if member is not None:
        results = [measure(result, member, settings.fprs) for result in results]
        sweep = {M: measure(result, member, settings.fprs) for M, result in sweep.items()}
        ablation = {name: measure(result, member, settings.fprs) for name, result in ablation.items()}
    ratio = _scale_ratio(evidence.validation)
    return Audit(
        target_scores=evidence.audit.target.scores,
        decisions=_decisions(evidence, settings),
        attacks=tuple(results),
        skipped=skipped,
        sweep=sweep,
        ablation=ablation,
        prior_precisions=tuple(reference.prior_precision for reference in scored),
        scale_ratio=ratio,
        warnings=tuple(_warnings(evidence, settings, ratio)),
    )


def _check_classes(C: int, references: Sequence[Trained]) -> None:
    for reference in references:
        of_reference = last_layer(reference.model).out_features
        if of_reference != C:
            problem = f"the target has {C} classes, the references have {of_reference}"
            remedy = "Give logits and reference data of the same classes"
            raise InputError(Problem("target_logits", None, problem, remedy))


def _score(
    reference: Trained, number: int, parts: Sequence[tuple[Records, Tensor]], settings: Settings
) -> ScoredReference:
    """A reference's verdicts; the first also draws the samples that the sweep needs."""
    swept = settings.sweep if number == 0 else ()
    return score_reference(
        reference,
        [records for records, _ in parts],
        n_samples=max((settings.n_samples, *swept)),
        score_name=settings.score,
        hessian=settings.hessian,
        prior_precision=settings.prior_precision,
        seed=derived_seed(settings.seed, number),
    )


def _evidence(
    parts: Sequence[tuple[Records, Tensor]], scored: Sequence[ScoredReference], C: int, settings: Settings
) -> Evidence:
    audited, *validated = (
        Part(records, score_logits(logits, records.y, settings.score), [one.verdicts[number] for one in scored])
        for number, (records, logits) in enumerate(parts)
    )
    validation = validated[0] if validated else None
    return Evidence(audited, validation, scored, C, settings.n_samples, settings.seed, settings.device)


def _run(evidence: Evidence, names: Sequence[AttackName]) -> tuple[list[AttackResult], dict[str, str]]:
    """Results of the attacks that can run, and by title why the others cannot."""
    results, skipped = [], {}
    for name in names:
        for n_references in budgets(name, len(evidence.references)):
            reason = why_not(name, n_references, evidence)
            if reason:
                skipped[title(name, n_references)] = reason
            else:
                results.append(attack(name, n_references, evidence))
    return results, skipped


def _decisions(evidence: Evidence, settings: Settings) -> dict[int, Decision]:
    decisions = {}
    for K in budgets("bmia", len(evidence.references)):
        if why_not("bmia", K, evidence) is None:
            test = evidence.audit.test(K, settings.n_samples)
            calibration = evidence.validation.test(K, settings.n_samples) if evidence.validation else None
            decisions[K] = decide(test, calibration, settings.alpha, settings.decision_rule)
    return decisions


def _sweep(evidence: Evidence, sizes: Sequence[int]) -> dict[int, AttackResult]:
    return {M: attack("bmia", 1, replace(evidence, n_samples=M)) for M in sizes if M > 1}


def _ablation(
    references: Sequence[Trained],
    parts: Sequence[tuple[Records, Tensor]],
    evidence: Evidence,
    settings: Settings,
) -> dict[HessianName, AttackResult]:
    """One-reference BMIA under each Hessian structure; nothing but `hessian` differs, the noise included."""
    results: dict[HessianName, AttackResult] = {}
    if not settings.ablation or settings.n_samples < 2:
        return results
    results[settings.hessian] = attack("bmia", 1, evidence)
    for hessian in settings.ablation:
        if hessian != settings.hessian:
            variant = replace(settings, hessian=hessian, sweep=())
            scored = _score(references[0], 0, parts[:1], variant)
            results[hessian] = attack("bmia", 1, _evidence(parts[:1], [scored], evidence.n_classes, variant))
    return results


def _scale_ratio(validation: Part | None) -> float | None:
    """How the target's logits are scaled against the references', on known non-members."""
    if validation is None:
        return None
    means = validation.trained(len(validation.references))[0].mean(0)
    return float(np.median(np.abs(validation.target.scores)) / max(np.median(np.abs(means)), 1e-12))


def _warnings(evidence: Evidence, settings: Settings, ratio: float | None) -> Iterator[str]:
    if evidence.validation is None and settings.decision_rule == "calibrated":
        yield (
            "no validation records with the target's logits: members are flagged by p < alpha, "
            "which flags more non-members than alpha"
        )
    if evidence.validation is not None and settings.decision_rule == "calibrated":
        n, needed = len(evidence.validation.records), math.ceil(1 / settings.alpha - 1 - 1e-9)
        if n < needed:
            yield f"{n} validation records cannot vouch for alpha={settings.alpha:g}: nobody is flagged; {needed} can"
    if len(evidence.references) == 2:
        yield "with 2 references the p-values are too small where the references differ; use 1, or 4 and more"
    if ratio is not None and not 0.5 <= ratio <= 2:
        yield (
            f"the target's scores are {ratio:.2g} times the references': its logits are probably on another "
            "temperature, or its training differs"
        )
