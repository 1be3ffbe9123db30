"""Every attack on one target from the same references: the scores each gives, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kfp_methods.components.tabular.bmia import baselines
from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.choices import AttackName
from kfp_methods.components.tabular.bmia.decision import MembershipTest, t_test
from kfp_methods.components.tabular.bmia.plan import title, why_not
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import ReferenceVerdict, Scored, ScoredReference
from kfp_methods.components.tabular.bmia.roc import Rate, auc, rate_at

RMIA_POPULATION = 2_000


@dataclass(frozen=True)
class Part:
    """Records with the verdicts of the target and of K references on them."""

    records: Records
    target: Scored
    references: Sequence[ReferenceVerdict]

    def test(self, n_references: int, n_samples: int) -> MembershipTest:
        """The t-test with the first references and the first of their samples."""
        samples = [reference.samples[:, :n_samples] for reference in self.references[:n_references]]
        return t_test(self.target.scores, np.stack(samples))

    def trained(self, n_references: int) -> tuple[Floats, Floats]:
        """Scores and true-class probabilities under the first references' trained weights, each [K, n]."""
        used = [reference.trained for reference in self.references[:n_references]]
        return np.stack([one.scores for one in used]), np.stack([one.probabilities for one in used])


@dataclass(frozen=True)
class Evidence:
    """All that an attack may look at.

    Attributes:
        audit: the records to audit.
        validation: known non-members; None when there are none or the target's logits on them are not known.
        references: the K references, for what they cost.
        n_classes: number of classes C.
        n_samples: posterior samples M an attack uses, at most those drawn.
        seed: of the attacks' own random numbers.
        device: where QMIA's network is fitted.
    """

    audit: Part
    validation: Part | None
    references: Sequence[ScoredReference]
    n_classes: int
    n_samples: int
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class AttackResult:
    """One attack's scores and, where membership is known, how well they tell.

    Attributes:
        name: the attack.
        n_references: how many references it used.
        scores: [n], higher for likelier members.
        train_seconds: training what it needs, its references or QMIA's regression.
        score_seconds: everything after that.
        auc: area under the ROC curve; None without known membership.
        rates: true-positive rates at the wanted false-positive rates; empty without known membership.
    """

    name: AttackName
    n_references: int
    scores: Floats
    train_seconds: float
    score_seconds: float
    auc: float | None = None
    rates: tuple[Rate, ...] = ()

    @property
    def title(self) -> str:
        """Name for tables and plots."""
        return title(self.name, self.n_references)

    def rate(self, fpr: float) -> Rate:
        """The rate at one of the wanted false-positive rates.

        Raises:
            KeyError: it was not among them.
        """
        return {rate.fpr: rate for rate in self.rates}[fpr]

    def tpr(self, fpr: float) -> float | None:
        """The true-positive rate there; None where it was not measured or cannot be resolved."""
        return next((rate.tpr for rate in self.rates if rate.fpr == fpr), None)


def attack(name: AttackName, n_references: int, evidence: Evidence) -> AttackResult:
    """Runs one attack with the first `n_references` references.

    Raises:
        ValueError: `why_not` has a reason.
    """
    reason = why_not(name, n_references, evidence.n_samples, known_nonmembers=evidence.validation is not None)
    if reason:
        raise ValueError(f"{name}: {reason}")
    if name == "qmia" and evidence.validation is not None:
        return _qmia(evidence, evidence.validation)
    started = time.perf_counter()
    scores = _scores(name, n_references, evidence)
    seconds = time.perf_counter() - started
    used = evidence.references[:n_references]
    if name == "bmia":
        seconds += sum(reference.score_seconds for reference in used)
    training = sum(reference.train_seconds for reference in used)
    return AttackResult(name, n_references, scores, training, seconds)


def measure(result: AttackResult, member: Flags, fprs: Sequence[float]) -> AttackResult:
    """The result with AUC and rates, from true membership [n]."""
    inside, outside = result.scores[member], result.scores[~member]
    rates = tuple(rate_at(fpr, inside, outside) for fpr in fprs)
    return replace(result, auc=auc(inside, outside), rates=rates)


def _scores(name: AttackName, n_references: int, evidence: Evidence) -> Floats:
    s0 = evidence.audit.target.scores
    if name == "global_threshold":
        return s0
    if name == "bmia":
        return evidence.audit.test(n_references, evidence.n_samples).t
    scores, _ = evidence.audit.trained(n_references)
    if evidence.validation is not None and name == "rmia":
        return _rmia(evidence.audit, evidence.validation, n_references, evidence.seed)
    if name == "attack_r":
        return baselines.attack_r(s0, scores)
    return (baselines.lira_fixed if name == "lira_fixed" else baselines.lira_per_record)(s0, scores)


def _qmia(evidence: Evidence, validation: Part) -> AttackResult:
    """QMIA trains its own network, on the validation records."""
    started = time.perf_counter()
    regression = baselines.ScoreRegression.fit(
        validation.records, validation.target.scores, evidence.n_classes, seed=evidence.seed, device=evidence.device
    )
    trained = time.perf_counter()
    scores = regression.excess(evidence.audit.records, evidence.audit.target.scores)
    return AttackResult("qmia", 0, scores, trained - started, time.perf_counter() - trained)


def _rmia(audit: Part, validation: Part, n_references: int, seed: int) -> Floats:
    """Compares with all validation records, or 2,000 of them at random."""
    rows = np.random.default_rng(seed).permutation(len(validation.records))[:RMIA_POPULATION]
    return baselines.rmia(
        audit.target.probabilities,
        audit.trained(n_references)[1],
        validation.target.probabilities[rows],
        validation.trained(n_references)[1][:, rows],
    )
