"""One audit: a target's logits against trained references, by every attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.attacks import AttackResult, Evidence, Part, attack, measure
from kfp_methods.components.tabular.bmia.choices import AttackName, HessianName
from kfp_methods.components.tabular.bmia.decision import SMALLEST_SD, Decision, decide
from kfp_methods.components.tabular.bmia.doubts import doubts
from kfp_methods.components.tabular.bmia.gather import check_classes, evidence_of, score
from kfp_methods.components.tabular.bmia.parallel import Trained
from kfp_methods.components.tabular.bmia.plan import budgets, title, why_not
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.networks import one_core


@dataclass(frozen=True)
class Audit:
    """All that one audit found.

    Attributes:
        target_scores: s0 [n].
        decisions: by number of references, one and all (one is absent when a single sample has no spread).
        attacks: results of the attacks that ran.
        skipped: why the others did not.
        sweep: one-reference BMIA by number of samples; empty without known membership.
        two_sample_mean: one-reference BMIA with the mean of two samples and the spread of all; None without known
            membership, or without more samples than two.
        ablation: one-reference BMIA by Hessian structure, `hessian` included; empty without known membership.
        prior_precisions: one a reference.
        scale_ratio: median |s0| / median |mean_ref| over the validation records; None without them.
        warnings: what the reader should doubt.
        member_known: whether attacks could be measured.
    """

    target_scores: Floats
    decisions: dict[int, Decision]
    attacks: tuple[AttackResult, ...]
    skipped: dict[str, str]
    sweep: dict[int, AttackResult]
    two_sample_mean: AttackResult | None
    ablation: dict[HessianName, AttackResult]
    prior_precisions: tuple[float, ...]
    scale_ratio: float | None
    warnings: tuple[str, ...]
    member_known: bool

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
        validation_logits: the target's logits on them [v, C]; without them there is no calibrated decision, and
            attacks that need them are skipped.

    Raises:
        InputError: target and references differ in their number of classes.
    """
    C = target_logits.shape[1]
    check_classes(C, references)
    parts = [(records, target_logits)]
    if validation is not None and validation_logits is not None:
        parts.append((validation, validation_logits))
    if member is None:
        settings = replace(settings, sweep=(), ablation=())
    scored = [score(reference, k, parts, settings) for k, reference in enumerate(references)]
    evidence = evidence_of(parts, scored, C, settings)
    results, skipped = _run(evidence, settings.attacks)
    sweep, ablation = _sweep(evidence, settings.sweep), _ablation(references, parts, evidence, settings)
    two = _two_sample_mean(evidence) if settings.sweep and settings.n_samples > 2 else None
    if member is not None:
        results = [measure(result, member, settings.fprs) for result in results]
        sweep = {M: measure(result, member, settings.fprs) for M, result in sweep.items()}
        two = measure(two, member, settings.fprs) if two else None
        ablation = {name: measure(result, member, settings.fprs) for name, result in ablation.items()}
    ratio = _scale_ratio(evidence.validation)
    return Audit(
        target_scores=evidence.audit.target.scores,
        decisions=_decisions(evidence, settings),
        attacks=tuple(results),
        skipped=skipped,
        sweep=sweep,
        two_sample_mean=two,
        ablation=ablation,
        prior_precisions=tuple(reference.prior_precision for reference in scored),
        scale_ratio=ratio,
        warnings=tuple(doubts(evidence, settings, ratio)),
        member_known=member is not None,
    )


def _run(evidence: Evidence, names: Sequence[AttackName]) -> tuple[list[AttackResult], dict[str, str]]:
    """Results of the attacks that can run, and by title why the others cannot."""
    results, skipped = [], {}
    for name in names:
        for n_references in budgets(name, len(evidence.references)):
            reason = _why_not(name, n_references, evidence)
            if reason:
                skipped[title(name, n_references)] = reason
            else:
                results.append(attack(name, n_references, evidence))
    return results, skipped


def _why_not(name: AttackName, n_references: int, evidence: Evidence) -> str | None:
    return why_not(name, n_references, evidence.n_samples, known_nonmembers=evidence.validation is not None)


def _decisions(evidence: Evidence, settings: Settings) -> dict[int, Decision]:
    decisions = {}
    for K in budgets("bmia", len(evidence.references)):
        if _why_not("bmia", K, evidence) is None:
            test = evidence.audit.test(K, settings.n_samples)
            calibration = evidence.validation.test(K, settings.n_samples) if evidence.validation else None
            decisions[K] = decide(test, calibration, settings.alpha, settings.decision_rule)
    return decisions


def _sweep(evidence: Evidence, sizes: Sequence[int]) -> dict[int, AttackResult]:
    return {M: attack("bmia", 1, replace(evidence, n_samples=M)) for M in sizes if M > 1}


def _two_sample_mean(evidence: Evidence) -> AttackResult:
    """What a poorer mean alone costs: the spread is that of all samples, so the two differ in nothing else."""
    spread = np.maximum(evidence.audit.test(1, evidence.n_samples).sd, SMALLEST_SD)
    mean = evidence.audit.references[0].samples[:, :2].mean(-1)
    return AttackResult("bmia", 1, (evidence.audit.target.scores - mean) / spread, 0.0, 0.0)


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
            scored = score(references[0], 0, parts[:1], variant)
            results[hessian] = attack("bmia", 1, evidence_of(parts[:1], [scored], evidence.n_classes, variant))
    return results


def _scale_ratio(validation: Part | None) -> float | None:
    """How the target's logits are scaled against the references', on known non-members."""
    if validation is None:
        return None
    means = validation.trained(len(validation.references))[0].mean(0)
    return float(np.median(np.abs(validation.target.scores)) / max(np.median(np.abs(means)), 1e-12))
