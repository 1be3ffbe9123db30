"""The paper's claims, and the number that one audited target contributes to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured
from kfp_methods.components.tabular.bmia.choices import AttackName
from kfp_methods.components.tabular.bmia.plan import title

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.attacks import AttackResult
    from kfp_methods.components.tabular.bmia.audit import Audit

FPR = 0.01
MANY_REFERENCES = 4
PAPERS_REFERENCES = 8

AUC_GAIN = Claim(
    id="auc-gain-over-lira",
    statement="With one reference model, BMIA separates members better than LiRA",
    paper="CIFAR-100, one reference: TPR at 1% FPR 35.75% (LiRA with eight references: 23.20%)",
    measure="AUC of BMIA minus AUC of LiRA (fixed variance), both on one target with the same one reference",
    direction="greater",
    threshold=0.0,
)
TPR_GAIN = Claim(
    id="tpr-gain-over-lira",
    statement="With one reference model, BMIA finds more members than LiRA at 1% false positives",
    paper="CIFAR-100: 35.75% with one reference (LiRA with eight: 23.20%)",
    measure="TPR at 1% FPR of BMIA minus LiRA's (fixed variance), both on one target with the same one reference",
    direction="greater",
    threshold=0.0,
)
MORE_SAMPLES = Claim(
    id="more-samples-help",
    statement="More posterior samples find more members (Theorem 3.2)",
    paper="the power grows with the number of samples M",
    measure="TPR at 1% FPR of BMIA with M = n_samples minus that with M = 2, which also has its spread from two "
    "samples, on one target with the same one reference",
    direction="greater",
    threshold=0.0,
)
SHARPER_MEAN = Claim(
    id="more-samples-sharpen-the-mean",
    statement="A mean over more posterior samples finds more members, whatever the spread",
    paper="the power grows with the number of samples M, whose mean varies less",
    measure="TPR at 1% FPR of BMIA with the mean of n_samples samples minus that with the mean of 2, both over the "
    "spread of all, on one target with the same one reference",
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
    measure="TPR at 1% FPR of BMIA minus that of RMIA, both on one target with the same one reference",
    direction="greater",
    threshold=0.0,
)
MR_BEATS_LIRA = Claim(
    id="several-references-beat-lira",
    statement="With several references each, multi-reference BMIA finds more members than LiRA",
    paper="CIFAR-100, 64 references: 45.57% against 43.33%",
    measure="TPR at 1% FPR of multi-reference BMIA minus LiRA's (fixed variance), all of at least four references",
    direction="greater",
    threshold=0.0,
)
CLAIMS = (
    AUC_GAIN,
    TPR_GAIN,
    MORE_SAMPLES,
    SHARPER_MEAN,
    NEAR_LIRA_MANY,
    BEATS_LIRA_8,
    DIAG_CLOSE,
    BEATS_RMIA,
    MR_BEATS_LIRA,
)

_ONE, _ALL = "one", "all"  # references that an attack uses
_Attack = tuple[AttackName, str]

# Claims about the first attack minus the second.
_PAIRS: dict[Claim, tuple[_Attack, _Attack]] = {
    AUC_GAIN: (("bmia", _ONE), ("lira_fixed", _ONE)),
    TPR_GAIN: (("bmia", _ONE), ("lira_fixed", _ONE)),
    NEAR_LIRA_MANY: (("bmia", _ONE), ("lira_fixed", _ALL)),
    BEATS_LIRA_8: (("bmia", _ONE), ("lira_fixed", _ALL)),
    BEATS_RMIA: (("bmia", _ONE), ("rmia", _ONE)),
    MR_BEATS_LIRA: (("bmia", _ALL), ("lira_fixed", _ALL)),
}
# Claims that a run with fewer references does not try.
_NEEDED = {NEAR_LIRA_MANY: MANY_REFERENCES, BEATS_LIRA_8: PAPERS_REFERENCES, MR_BEATS_LIRA: MANY_REFERENCES}

OF_ATTACK: dict[AttackName, list[str]] = {}
for _claim, _pair in _PAIRS.items():
    for _name, _ in _pair:
        OF_ATTACK.setdefault(_name, []).append(_claim.id)


def results(
    audits: Sequence[Audit], seeds: Sequence[int], n_references: int, n_samples: int, *, users: bool
) -> list[ClaimResult]:
    """Each claim judged on one number for each audit; `seeds` are theirs.

    users: whether the one target is the user's, so that runs at other seeds differ in their references alone.
    """
    return [_judged(claim, audits, seeds, n_references, n_samples, users) for claim in CLAIMS]


def _judged(
    claim: Claim, audits: Sequence[Audit], seeds: Sequence[int], n_references: int, n_samples: int, users: bool
) -> ClaimResult:
    reasons = [_why_not(claim, audit, n_references, n_samples) for audit in audits]
    if reason := next(filter(None, reasons), ""):
        return not_measured(claim, reason)
    pairs = [_pair_of(claim, audit, n_references, n_samples) for audit in audits]
    of = _auc if claim is AUC_GAIN else _tpr
    samples = [difference for pair in pairs if (difference := minus(*map(of, pair))) is not None]
    if users:
        note = "Runs at other seeds train other references on your one target: they show how much those matter."
        return judge(claim, samples, note, seeds=seeds, over="sets of references")
    note = "The targets are trained on splits of one set of images and share records: the interval is for this set."
    return judge(claim, samples, note, seeds=seeds, over="splits of one data set")


def _pair_of(claim: Claim, audit: Audit, K: int, M: int) -> list[AttackResult | None]:
    """The two results that a claim compares on one target; None for one that there is not."""
    if claim is MORE_SAMPLES:
        return [audit.sweep.get(M), audit.sweep.get(2)]
    if claim is SHARPER_MEAN:
        return [audit.sweep.get(M), audit.two_sample_mean]
    if claim is DIAG_CLOSE:
        return [audit.ablation.get("diag"), audit.ablation.get("kron")]
    return [audit.find(name, K if number == _ALL else 1) for name, number in _PAIRS[claim]]


def _why_not(claim: Claim, audit: Audit, K: int, M: int) -> str | None:
    """Why a target contributes nothing to a claim, the cause that the user can mend first; None when it does."""
    if not audit.member_known:
        return "It needs an audit set of known members and known non-members."
    for name, number in _PAIRS.get(claim, ()):
        count = K if number == _ALL else 1
        if audit.find(name, count) is None:
            reason = audit.skipped.get(title(name, count), "it is not among the attacks asked for")
            return f"{title(name, count)} did not run: {reason}."
    if (needed := _NEEDED.get(claim, 1)) > K:
        return f"It needs at least {needed} references; this run had {K}."
    if claim in (MORE_SAMPLES, SHARPER_MEAN) and M <= 2:
        return f"It needs more than 2 posterior samples; this run had {M}."
    pair = _pair_of(claim, audit, K, M)
    if None in pair:
        return f"It needs at least 2 posterior samples; this run had {M}."
    notes = [rate.note for result in pair if result for rate in result.rates if rate.fpr == FPR and rate.tpr is None]
    if notes and claim is not AUC_GAIN:
        return f"The TPR at 1% FPR cannot be resolved: {notes[0]}."
    return None


def minus(first: float | None, second: float | None) -> float | None:
    """The difference of two measured numbers; None when one was not measured."""
    return None if first is None or second is None else first - second


def _auc(result: AttackResult | None) -> float | None:
    return None if result is None else result.auc


def _tpr(result: AttackResult | None) -> float | None:
    return None if result is None else result.tpr(FPR)
