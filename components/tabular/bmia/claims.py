"""The paper's claims, and the number that one audited target contributes to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.audit import Audit

MANY_REFERENCES = 4
PAPERS_REFERENCES = 8

AUC_GAIN = Claim(
    id="auc-gain-over-lira",
    statement="With one reference model, BMIA separates members better than LiRA",
    paper="CIFAR-100, one reference: TPR at 1% FPR 35.75% (LiRA with eight references: 23.20%)",
    measure="AUC of BMIA minus AUC of LiRA (fixed variance), both with one reference, paired over target seeds",
    direction="greater",
    threshold=0.0,
)
TPR_GAIN = Claim(
    id="tpr-gain-over-lira",
    statement="With one reference model, BMIA finds more members than LiRA at 1% false positives",
    paper="CIFAR-100: 35.75% with one reference (LiRA with eight: 23.20%)",
    measure="TPR at 1% FPR of BMIA minus that of LiRA (fixed variance), both with one reference, paired over target seeds",
    direction="greater",
    threshold=0.0,
)
MORE_SAMPLES = Claim(
    id="more-samples-help",
    statement="More posterior samples find more members (Theorem 3.2)",
    paper="the power grows with the number of samples M",
    measure="TPR at 1% FPR of BMIA with M = n_samples minus that with M = 2, one reference, paired over target seeds",
    direction="greater",
    threshold=0.0,
)
NEAR_LIRA_MANY = Claim(
    id="near-lira-with-many-references",
    statement="One reference with BMIA does nearly what LiRA does with several",
    paper="CIFAR-100: BMIA with one reference 35.75%, LiRA with eight 23.20%",
    measure="TPR at 1% FPR of BMIA with one reference minus that of LiRA (fixed variance) with all of at least four "
    "references; a loss of less than 0.03 counts as near, which is weaker than the paper's claim",
    direction="greater",
    threshold=-0.03,
)
BEATS_LIRA_8 = Claim(
    id="beats-lira-with-eight-references",
    statement="One reference with BMIA beats LiRA with eight, at an eighth of its training cost",
    paper="CIFAR-100: 35.75% against 23.20%; CIFAR-10 at 0.1% FPR: 2.84% against 1.73%",
    measure="TPR at 1% FPR of BMIA with one reference minus that of LiRA (fixed variance) with eight or more",
    direction="greater",
    threshold=0.0,
)
DIAG_CLOSE = Claim(
    id="diagonal-hessian-is-close",
    statement="A diagonal Hessian does as well as the Kronecker-factored one",
    paper="ablation of the Hessian's structure",
    measure="TPR at 1% FPR with hessian=diag minus that with hessian=kron, one reference; within 0.02",
    direction="within",
    threshold=0.02,
)
BEATS_RMIA = Claim(
    id="beats-rmia",
    statement="With one reference model, BMIA finds more members than RMIA at 1% false positives",
    paper="CIFAR-100: 35.75% against 10.08%",
    measure="TPR at 1% FPR of BMIA minus that of RMIA, both with one reference, paired over target seeds",
    direction="greater",
    threshold=0.0,
)
MR_BEATS_LIRA = Claim(
    id="several-references-beat-lira",
    statement="With several references each, multi-reference BMIA finds more members than LiRA",
    paper="CIFAR-100, 64 references: 45.57% against 43.33%",
    measure="TPR at 1% FPR of multi-reference BMIA minus that of LiRA (fixed variance), all of at least four references",
    direction="greater",
    threshold=0.0,
)
CLAIMS = (
    AUC_GAIN,
    TPR_GAIN,
    MORE_SAMPLES,
    NEAR_LIRA_MANY,
    BEATS_LIRA_8,
    DIAG_CLOSE,
    BEATS_RMIA,
    MR_BEATS_LIRA,
)

Difference = Callable[["Audit", int], "float | None"]


def results(
    audits: Sequence[Audit], seeds: Sequence[int], n_references: int, n_samples: int
) -> list[ClaimResult]:
    """Each claim judged over the audited targets (one number each); `seeds` are theirs."""
    sources: list[tuple[Claim, Difference, int]] = [
        (AUC_GAIN, lambda a, K: _minus(_auc(a, "bmia", 1), _auc(a, "lira_fixed", 1)), 1),
        (TPR_GAIN, lambda a, K: _minus(_tpr(a, "bmia", 1), _tpr(a, "lira_fixed", 1)), 1),
        (MORE_SAMPLES, lambda a, K: _minus(_swept(a, n_samples), _swept(a, 2)), 1),
        (NEAR_LIRA_MANY, lambda a, K: _minus(_tpr(a, "bmia", 1), _tpr(a, "lira_fixed", K)), MANY_REFERENCES),
        (BEATS_LIRA_8, lambda a, K: _minus(_tpr(a, "bmia", 1), _tpr(a, "lira_fixed", K)), PAPERS_REFERENCES),
        (DIAG_CLOSE, lambda a, K: _minus(_hessian(a, "diag"), _hessian(a, "kron")), 1),
        (BEATS_RMIA, lambda a, K: _minus(_tpr(a, "bmia", 1), _tpr(a, "rmia", 1)), 1),
        (MR_BEATS_LIRA, lambda a, K: _minus(_tpr(a, "bmia", K), _tpr(a, "lira_fixed", K)), MANY_REFERENCES),
    ]
    return [_judged(*source, audits, seeds, n_references) for source in sources]


def _judged(
    claim: Claim,
    difference: Difference,
    needed: int,
    audits: Sequence[Audit],
    seeds: Sequence[int],
    n_references: int,
) -> ClaimResult:
    if n_references < needed:
        return not_measured(claim, f"It needs at least {needed} references; this run had {n_references}.")
    found = [difference(audit, n_references) for audit in audits]
    samples = [value for value in found if value is not None]
    if len(samples) < len(audits) or not samples:
        return not_measured(
            claim, "It needs known membership, enough non-members for 1% FPR, and both attacks run."
        )
    return judge(claim, samples, seeds=seeds)


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _auc(audit: Audit, name: str, n_references: int) -> float | None:
    found = [a.auc for a in audit.attacks if (a.name, a.n_references) == (name, n_references)]
    return found[0] if found else None


def _tpr(audit: Audit, name: str, n_references: int) -> float | None:
    found = [_at_one_percent(a) for a in audit.attacks if (a.name, a.n_references) == (name, n_references)]
    return found[0] if found else None


def _swept(audit: Audit, n_samples: int) -> float | None:
    return _at_one_percent(audit.sweep[n_samples]) if n_samples in audit.sweep else None


def _hessian(audit: Audit, name: str) -> float | None:
    variants = {str(hessian): result for hessian, result in audit.ablation.items()}
    return _at_one_percent(variants[name]) if name in variants else None


def _at_one_percent(result: object) -> float | None:
    rates = {rate.fpr: rate.tpr for rate in getattr(result, "rates", ())}
    return rates.get(0.01)
