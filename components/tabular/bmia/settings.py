"""What is asked of an audit."""

from __future__ import annotations

from dataclasses import dataclass

from kfp_methods.components.tabular.bmia.choices import (
    ATTACKS,
    AttackName,
    DecisionRule,
    HessianName,
    ScoreName,
)


@dataclass(frozen=True)
class Settings:
    """Attacks, posterior, score, decision and what is measured of them.

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
