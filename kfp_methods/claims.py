"""A claim of the paper as data: what it says, how it is measured here, and the verdict with its interval."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Literal, get_args

Direction = Literal["greater", "less", "within"]
Interval = Literal["t", "bootstrap", "exact"]

BOOTSTRAP_SEED = 0
BOOTSTRAP_RESAMPLES = 9_999
_ROUNDING = 1e-15  # what is left, relative to the largest, of values that cancel
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

    The measured quantity is one number for each seed: a paired difference (both methods on the same seed's
    data) or another per-seed value. The claim is about its mean over seeds: above `threshold` ("greater"),
    below it ("less"), or |mean| < `threshold` ("within"); the threshold itself is never on the claimed side.

    interval: "t" is Student's t; "bootstrap" is BCa, for skewed values; "exact" is for a quantity that chance
    does not change (a count, a certified bound): every value must lie on the claimed side, and one is enough.
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
        _require(0 < self.level < 1, f"claim {self.id}: level {self.level} is not between 0 and 1")


@dataclass(frozen=True)
class ClaimResult:
    """A claim with what was measured: mean over seeds, its interval, and the verdict.

    samples: one number for each seed, kept so that `pool` can join runs; seeds: theirs, in the same order, or
    () when unknown. value, low and high are None where there is nothing to say, and always finite otherwise.
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


def judge(claim: Claim, samples: Iterable[float], note: str = "", seeds: Iterable[int] | None = None) -> ClaimResult:
    """The verdict on `claim` from one number for each seed.

    Supported when the whole interval of the mean lies on the claimed side, not supported when it lies wholly
    on the other (the threshold included), inconclusive otherwise. One sample has no interval and settles
    nothing, unless the claim is "exact". The order of the samples does not matter.
    Raises ValueError for no samples (say why with `not_measured`), a non-finite one, or unmatched seeds.
    """
    values = tuple(float(sample) for sample in samples)
    _require(bool(values), f"claim {claim.id}: no samples; use not_measured(claim, why)")
    _require(all(map(math.isfinite, values)), f"claim {claim.id}: a sample is not finite: {values}")
    mean, _ = _moments(values)
    interval, remark = _interval(claim, values)
    return ClaimResult(
        claim=claim,
        verdict=_decide(claim, *interval) if interval else Verdict.INCONCLUSIVE,
        value=mean,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        n=len(values),
        samples=values,
        note=_join(note, remark),
        seeds=tuple(int(seed) for seed in seeds) if seeds is not None else (),
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
    if not all(r.seeds for r in measured):
        means = [_moments(r.samples)[0] for r in measured]
        return judge(claim, means, _join("One value for each run.", missing))
    by_seed: dict[int, list[float]] = {}
    for result in measured:
        for seed, sample in zip(result.seeds, result.samples, strict=True):
            by_seed.setdefault(seed, []).append(sample)
    seeds = sorted(by_seed)
    repeated = sum(len(values) - 1 for values in by_seed.values())
    shared = f"{repeated} repeated seed value{'s' * (repeated > 1)} counted once." if repeated else ""
    return judge(claim, [_moments(by_seed[seed])[0] for seed in seeds], _join(shared, missing), seeds)


def _decide(claim: Claim, low: float, high: float) -> Verdict:
    threshold = claim.threshold
    inside, outside = {
        "greater": (low > threshold, high <= threshold),
        "less": (high < threshold, low >= threshold),
        "within": (-threshold < low and high < threshold, high <= -threshold or low >= threshold),
    }[claim.direction]
    return Verdict.SUPPORTED if inside else Verdict.NOT_SUPPORTED if outside else Verdict.INCONCLUSIVE


def _interval(claim: Claim, values: tuple[float, ...]) -> tuple[tuple[float, float] | None, str]:
    """The interval of the mean, or None, and a remark for the reader where the rule is not the plain one."""
    n = len(values)
    if claim.interval == "exact":
        return (min(values), max(values)), ""
    if n == 1:
        return None, "One seed only: no interval, so no verdict; repeat over several seeds."
    if min(values) == max(values):
        return (values[0], values[0]), f"All {n} values are equal: the interval has no width."
    if claim.interval == "t":
        return _t_interval(values, claim.level), ""
    if 2.0 ** (1 - n) > 1 - claim.level:
        # A bootstrap interval of the mean never leaves [min, max], which misses the centre of a symmetric law
        # with probability 2^(1-n): no resampling reaches the level with fewer values.
        return _t_interval(values, claim.level), f"Student's t: {n} values are too few for a bootstrap."
    return _bootstrap_interval(values, claim.level), ""


def _t_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    mean, deviation = _moments(values)
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * deviation / math.sqrt(len(values))
    return mean - half, mean + half


def _bootstrap_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """BCa (Efron 1987); a fixed seed and sorted values, so that the same values give the same interval."""
    import numpy as np
    from scipy.stats import bootstrap

    for method in ("BCa", "percentile"):  # BCa is undefined when the resampled means hardly differ
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = bootstrap(
                (np.sort(values),),
                np.mean,
                confidence_level=level,
                n_resamples=BOOTSTRAP_RESAMPLES,
                batch=max(1, 1_000_000 // len(values)),  # bounds the memory: batch x n numbers at a time
                method=method,
                rng=np.random.default_rng(BOOTSTRAP_SEED),
            ).confidence_interval
        if np.isfinite([low, high]).all():
            break
    return float(low), float(high)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n - 1; 0 for one value), exactly summed: independent of the order."""
    scale = max(map(abs, values)) or 1.0
    scaled = [value / scale for value in values]
    mean = math.fsum(scaled) / len(scaled)
    mean = 0.0 if abs(mean) < _ROUNDING else mean
    variance = math.fsum((value - mean) ** 2 for value in scaled) / max(len(scaled) - 1, 1)
    return mean * scale, math.sqrt(variance) * scale


def _join(*sentences: str) -> str:
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip())


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
