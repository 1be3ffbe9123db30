"""A claim of the paper as data: what it says, how it is measured here, and the verdict with its interval."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Literal, get_args

from kfp_methods.intervals import Interval, estimate, is_binary, moments

Direction = Literal["greater", "less", "within"]

_SLUG = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*")


class Verdict(StrEnum):
    """What the measurements say of a claim."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured at this scale"


@dataclass(frozen=True)
class Claim:
    """One checkable sentence of a paper.

    The measured quantity is one number for each seed (or reference, trace, trial …): a paired difference (both
    methods on the same seed's data) or another value. The claim is about its mean: above `threshold` ("greater"),
    below it ("less"), or |mean| < `threshold` ("within": equivalence); the threshold itself is never on the claimed
    side.

    interval: "t" is Student's t; "bootstrap" is BCa, for skewed values; "sign" is about the median instead of the
    mean, without assuming any law (the sign test turned into an interval); "binomial" is about a proportion, of
    values that are 0 or 1 (exact: Clopper-Pearson); "exact" is for a quantity that chance does not change (a count,
    a certified bound): every value must lie on the claimed side, and one is enough.
    least, most: where no value can lie outside, such as an AUROC's 0 and 1; intervals end there.
    Raises ValueError when a field cannot be used: a claim is written by a method's author, not by its user.
    """

    id: str
    statement: str
    paper: str
    measure: str
    direction: Direction
    threshold: float
    unit: str = ""
    interval: Interval = "t"
    level: float = 0.95
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        _require(_SLUG.fullmatch(self.id) is not None, f"claim id {self.id!r} is no slug such as 'auc-gain'")
        for name in ("statement", "paper", "measure"):
            _require(bool(getattr(self, name).strip()), f"claim {self.id}: {name} is empty")
        _require(self.direction in get_args(Direction), f"claim {self.id}: direction {self.direction!r}")
        _require(self.interval in get_args(Interval), f"claim {self.id}: interval {self.interval!r}")
        _require(math.isfinite(self.threshold), f"claim {self.id}: threshold {self.threshold} is not finite")
        _require(
            self.direction != "within" or self.threshold > 0,
            f"claim {self.id}: 'within' needs a threshold above 0, not {self.threshold}",
        )
        _require(
            self.interval != "binomial" or (self.direction != "within" and 0 <= self.threshold <= 1),
            f"claim {self.id}: a proportion is above or below a threshold between 0 and 1",
        )
        _require(
            self.least is None or self.most is None or self.least < self.most,
            f"claim {self.id}: nothing lies between {self.least} and {self.most}",
        )
        _require(0 < self.level < 1, f"claim {self.id}: level {self.level} is not between 0 and 1")


@dataclass(frozen=True)
class ClaimResult:
    """A claim with what was measured: the mean (or median, or proportion), its interval, and the verdict.

    samples: one number for each seed, kept so that `pool` can join runs; seeds: theirs, in the same order, or
    () when unknown. value, low and high are None where there is nothing to say, and always finite otherwise.
    over: what the samples are one of each, in the plural; undecidable: why they cannot settle the claim, or "".
    """

    claim: Claim
    verdict: Verdict
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    samples: tuple[float, ...] = ()
    note: str = ""
    seeds: tuple[int, ...] = ()
    over: str = "seeds"
    undecidable: str = ""

    def __post_init__(self) -> None:
        numbers = [x for x in (self.value, self.low, self.high, *self.samples) if x is not None]
        _require(all(map(math.isfinite, numbers)), f"claim {self.claim.id}: a value is not finite: {numbers}")
        _require((self.low is None) == (self.high is None), f"claim {self.claim.id}: half an interval")
        _require(
            len(self.seeds) in (0, len(self.samples)) and len(set(self.seeds)) == len(self.seeds),
            f"claim {self.claim.id}: {len(self.samples)} samples need as many distinct seeds: {self.seeds}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, never NaN or infinity; `from_dict` restores it exactly, also through JSON."""
        plain = asdict(self)
        return plain | {"verdict": self.verdict.value, "samples": [*self.samples], "seeds": [*self.seeds]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ClaimResult:
        """Inverse of `to_dict`; unknown fields are ignored. Raises ValueError if one is missing or wrong."""
        try:
            claim = Claim(**{f.name: plain["claim"][f.name] for f in fields(Claim)})
            known = {f.name: plain[f.name] for f in fields(cls)}
            known |= {"claim": claim, "verdict": Verdict(plain["verdict"])}
            return cls(**known | {"samples": tuple(plain["samples"]), "seeds": tuple(plain["seeds"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a claim result: {error!r}") from error


def dumps(results: Iterable[ClaimResult]) -> str:
    """The `claims` output of a method: a JSON array of results, strictly JSON (no NaN), stable in order."""
    return json.dumps([r.to_dict() for r in results], indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def loads(text: str) -> list[ClaimResult]:
    """Inverse of `dumps`. Raises ValueError when the text is not such an array."""
    plain = json.loads(text)
    _require(isinstance(plain, list), "claims are a JSON array of results")
    return [ClaimResult.from_dict(entry) for entry in plain]


def judge(
    claim: Claim,
    samples: Iterable[float],
    note: str = "",
    seeds: Iterable[int] | None = None,
    *,
    over: str = "seeds",
    undecidable: str = "",
) -> ClaimResult:
    """The verdict on `claim` from one number for each seed, or for each of what `over` names ("references").

    Supported when the whole interval lies on the claimed side, not supported when it lies wholly on the other
    (the threshold included), inconclusive otherwise. One sample of a mean has no interval and settles nothing,
    unless the claim is "exact". The order of the samples does not matter.
    undecidable: why the numbers cannot settle the claim at this scale or on this data; they are shown, the verdict
    is inconclusive and the note says why.
    Raises ValueError for no samples (say why with `not_measured`), a non-finite one, one that is neither 0 nor 1
    where the claim is "binomial", or unmatched seeds.
    """
    values = tuple(float(sample) for sample in samples)
    _require(bool(values), f"claim {claim.id}: no samples; use not_measured(claim, why)")
    _require(all(map(math.isfinite, values)), f"claim {claim.id}: a sample is not finite: {values}")
    _require(claim.interval != "binomial" or is_binary(values), f"claim {claim.id}: a trial is neither 0 nor 1")
    _require(bool(over.strip()), f"claim {claim.id}: over is empty; name what the samples are taken over")
    known = tuple(int(seed) for seed in seeds) if seeds is not None else ()
    return _judged(claim, values, note, known, over, undecidable)


def _judged(
    claim: Claim, values: tuple[float, ...], note: str, seeds: tuple[int, ...], over: str, undecidable: str
) -> ClaimResult:
    value, ends, remark = estimate(claim.interval, values, claim.level, over)
    ends = _within(claim, *ends) if ends else None
    return ClaimResult(
        claim=claim,
        verdict=_decide(claim, *ends) if ends and not undecidable else Verdict.INCONCLUSIVE,
        value=value,
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        n=len(values),
        samples=values,
        note=_join(note, undecidable, remark),
        seeds=seeds,
        over=over,
        undecidable=undecidable,
    )


def _within(claim: Claim, low: float, high: float) -> tuple[float, float]:
    """The interval without what cannot be."""
    return (
        low if claim.least is None else max(low, claim.least),
        high if claim.most is None else min(high, claim.most),
    )


def not_measured(claim: Claim, why: str) -> ClaimResult:
    """The claim cannot be tried at this scale or on this data; `why` says so to the reader."""
    return ClaimResult(claim=claim, verdict=Verdict.NOT_MEASURED, note=why)


def pool(replicates: Sequence[Sequence[ClaimResult]]) -> list[ClaimResult]:
    """Join the results of whole runs and judge each claim anew; claims keep their first order of appearance.

    The unit of replication is the seed: runs started at seeds 0 and 1 that each repeat over five seeds share
    four of them, and a shared seed is the same experiment, so it counts once (its values are averaged: they
    may differ by a GPU's rounding). Samples come in the order of their seeds, so the order of runs does
    not matter. Where a run does not say its seeds, overlap cannot be told and its samples may depend on each
    other, so every run then counts as one unit, by its mean. A run that did not measure a claim is left out.
    Raises ValueError when one id stands for different claims, or occurs twice in a run.
    """
    by_id: dict[str, list[ClaimResult]] = {}
    for run in replicates:
        ids = [result.claim.id for result in run]
        _require(len(set(ids)) == len(ids), f"a run has one claim twice: {ids}")
        for result in run:
            by_id.setdefault(result.claim.id, []).append(result)
    return [_pool_claim(results) for results in by_id.values()]


def _pool_claim(results: list[ClaimResult]) -> ClaimResult:
    claim = results[0].claim
    _require(all(r.claim == claim for r in results), f"claim {claim.id} differs between the runs")
    measured = [r for r in results if r.samples]
    if not measured:
        return not_measured(claim, _join(*dict.fromkeys(r.note for r in results)))
    left_out = len(results) - len(measured)
    missing = f"{left_out} of {len(results)} runs did not measure it." if left_out else ""
    undecidable = _join(*dict.fromkeys(r.undecidable for r in measured))
    if not all(r.seeds for r in measured):
        means = tuple(moments(r.samples)[0] for r in measured)
        return _judged(claim, means, _join("One value for each run.", missing), (), "runs", undecidable)
    over = {r.over for r in measured}
    _require(len(over) == 1, f"claim {claim.id}: its samples are taken over {sorted(over)}")
    by_seed: dict[int, list[float]] = {}
    for result in measured:
        for seed, sample in zip(result.seeds, result.samples, strict=True):
            by_seed.setdefault(seed, []).append(sample)
    seeds = tuple(sorted(by_seed))
    values = tuple(moments(by_seed[seed])[0] for seed in seeds)
    repeated = sum(len(values) - 1 for values in by_seed.values())
    shared = f"{repeated} repeated seed value{'s' * (repeated > 1)} counted once." if repeated else ""
    return _judged(claim, values, _join(shared, missing), seeds, over.pop(), undecidable)


def _decide(claim: Claim, low: float, high: float) -> Verdict:
    threshold = claim.threshold
    inside, outside = {
        "greater": (low > threshold, high <= threshold),
        "less": (high < threshold, low >= threshold),
        "within": (-threshold < low and high < threshold, high <= -threshold or low >= threshold),
    }[claim.direction]
    return Verdict.SUPPORTED if inside else Verdict.NOT_SUPPORTED if outside else Verdict.INCONCLUSIVE


def _join(*sentences: str) -> str:
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip())


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
