"""How much of the members each attack finds, over all audited targets, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_methods.components.tabular.bmia.attacks import AttackResult
from kfp_methods.components.tabular.bmia.uncertainty import Limits, auc_limits, of_mean, rate_limits

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.running import Audited

FPR = 0.01
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over the audited targets and its interval; all None, and `note` says why, where there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def rate(audits: Sequence[Audited], attack: AttackResult, fpr: float, level: float = LEVEL) -> Estimate:
    """The mean true-positive rate of an attack at `fpr`; the interval counts the luck of members and non-members.

    `attack` is the first target's result, which names the attack.
    """
    rates, scores = [], []
    for one in audits:
        result = _of(one, attack)
        found = result.rate(fpr) if one.member is not None else None
        if found is None or found.tpr is None or one.member is None:
            return Estimate(note=found.note if found else "membership is not known")
        rates.append(found.tpr)
        scores.append((result.scores[one.member], result.scores[~one.member]))
    return _estimate(rates, rate_limits(fpr, scores, level))


def area(audits: Sequence[Audited], attack: AttackResult, level: float = LEVEL) -> Estimate:
    """The mean AUC of an attack, likewise."""
    areas, limits = [], []
    for one in audits:
        found = _of(one, attack).auc
        if found is None or one.member is None:
            return Estimate(note="membership is not known")
        areas.append(found)
        limits.append(auc_limits(found, int(one.member.sum()), int((~one.member).sum()), level))
    return _estimate(areas, of_mean(limits))


def chosen_before(audits: Sequence[Audited]) -> AttackResult | None:
    """The attack that the method is about, with all references; None when it did not run."""
    ours = [result for result in audits[0].found.attacks if result.name == "bmia"]
    return max(ours, key=lambda result: result.n_references, default=None)


def headline(audits: Sequence[Audited]) -> str:
    """How much the members give away: by the attack of the paper, then by the strongest of the others.

    The latter is the largest of k noisy figures, so its interval has the level 1 - 0.05 / k (Bonferroni): the
    intervals of all k hold together with 95%. Empty where nothing can be measured.
    """
    ours, attacks = chosen_before(audits), audits[0].found.attacks
    resolved = any(rate(audits, attack, FPR).value is not None for attack in ([ours] if ours else attacks))

    def measured(attack: AttackResult, level: float = LEVEL) -> Estimate:
        return rate(audits, attack, FPR, level) if resolved else area(audits, attack, level)

    say = _finds if resolved else _has_area
    sentences = ["At 1% false positives (guessing finds 1% of the members):"] if resolved else []
    if ours and (estimate := measured(ours)).value is not None:
        sentences.append(f"{_spoken(ours)} {say(estimate, '95% interval')}.")
    others = [(estimate.value, attack) for attack in attacks if attack is not ours
              and (estimate := measured(attack)).value is not None]  # fmt: skip
    if others:
        k, (_, best) = len(others), max(others, key=lambda pair: pair[0])
        kind = f"interval widened for the choice, 95% for all {k} together" if k > 1 else "95% interval"
        words = say(measured(best, 1 - (1 - LEVEL) / k), kind)
        which = f"{k} other attacks" if ours else f"{k} attacks"
        whose = f", the strongest of the {which}, chosen after seeing them all," if k > 1 else ""
        sentences.append(f"{_spoken(best)}{whose} {words}.")
    return " ".join(sentences) if len(sentences) > resolved else ""


def _spoken(attack: AttackResult) -> str:
    return attack.title.replace(", ", " with ")


def _finds(estimate: Estimate, interval: str) -> str:
    return f"finds {estimate.value:.1%} ({interval}: {estimate.low:.1%} to {estimate.high:.1%})"


def _has_area(estimate: Estimate, interval: str) -> str:
    words = f"has an AUC of {estimate.value:.3f}, where guessing has 0.5"
    return f"{words} ({interval}: {estimate.low:.3f} to {estimate.high:.3f})"


def _of(one: Audited, attack: AttackResult) -> AttackResult:
    return one.found.attack(attack.name, attack.n_references)


def _estimate(values: Sequence[float], limits: Limits) -> Estimate:
    """The interval always holds the value, also where the rank between two that the limits rest on does not."""
    mean = math.fsum(values) / len(values)
    return Estimate(mean, min(limits.low, mean), max(limits.high, mean))
