"""The paper's claims, and what a run's traces and timings contribute to each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured

if TYPE_CHECKING:
    from kfp_methods.components.language.flashtrace.running import Explained, Result

TARGETS = (32, 128)  # M at which the speed is claimed
LONG_TARGETS = 1024
LARGE_MODEL = 1_000_000_000

_NAIVE = "all that heads read computed anew for each token, as in the published comparison"
_CACHED = "what heads read computed once a layer for all tokens"

NAIVE_SPEED = Claim(
    id="faster-than-tokenwise-time_ratio",
    statement="Attributing a span at once is faster than token by token, in proportion to its length",
    paper="over 130 times faster for 5,000 target tokens",
    measure=f"token-wise seconds ({_NAIVE}) / span-wise seconds, over M / (K + 1), at M = 32 and at M = 128",
    direction="greater",
    threshold=0.25,
    interval="exact",
)
CACHED_SPEED = Claim(
    id="faster-than-cached-tokenwise-time_ratio",
    statement="It is faster than a token-wise attribution that shares its work between tokens too",
    paper="not compared",
    measure=f"token-wise seconds ({_CACHED}) / span-wise seconds, over M / (K + 1), at M = 32 and at M = 128",
    direction="greater",
    threshold=0.06,
    interval="exact",
)
LONG_SPEED = Claim(
    id="20-times-faster-at-1024-time_ratio",
    statement="For a thousand target tokens it is at least 20 times faster",
    paper="under 20 s against over 38 min for 5,000 target tokens",
    measure=f"token-wise seconds ({_NAIVE}) / span-wise seconds at M = 1,024",
    direction="greater",
    threshold=20.0,
    interval="exact",
)
HOP_GAIN = Claim(
    id="one-hop-recovers-more",
    statement="With reasoning between prompt and answer, hops find more of the evidence than the span alone",
    paper="recovery 0.755 against 0.253 on HotpotQA, 0.413 against 0.328 on multi-query needles (8B parameters)",
    measure="recovery of the evidence with all hops minus with none, one value for each trace; more than 0.02",
    direction="greater",
    threshold=0.02,
)
HOP_KEEPS = Claim(
    id="hops-keep-recovery",
    statement="Hops through the reasoning do not lose the evidence, whatever the model's size",
    paper="not stated: it is weaker than the claim that they find more",
    measure="recovery of the evidence with all hops minus with none, one value for each trace; within 0.1",
    direction="within",
    threshold=0.1,
)
ABSORBED = Claim(
    id="reasoning-absorbs-mass",
    statement="Reasoning between prompt and answer absorbs the attribution of a single pass",
    paper="more than 90% of the mass lies on generated tokens (8B parameters)",
    measure="share of the first pass's mass on reasoning and output, minus that without the reasoning, for each trace",
    direction="greater",
    threshold=0.0,
)
MOST_ABSORBED = Claim(
    id="most-mass-is-absorbed",
    statement="With reasoning, most of a single pass's attribution stays on generated tokens",
    paper="more than 90% (8B parameters)",
    measure="share of the first pass's mass on reasoning and output, one value for each trace with reasoning; "
    "one half is ours, and much less than the paper's figure",
    direction="greater",
    threshold=0.5,
)
SAME_SCORES = Claim(
    id="span-agrees-with-tokenwise",
    statement="Aggregating a span approximates the mean of its tokens' attributions",
    paper="RISE 0.128 against 0.116, MAS 0.205 against 0.193",
    measure="Pearson correlation over the prompt's tokens of the span (no hop) and the token-wise mean, for each trace",
    direction="greater",
    threshold=0.9,
)


def _lower(measure: str, other: str, title: str, paper: str) -> Claim:
    return Claim(
        id=f"{measure.lower()}-below-{other}",
        statement=f"Its deletion curve ({measure}) is lower than that of {title}",
        paper=paper,
        measure=f"{measure} of FlashTrace minus that of {title}, one value for each trace",
        direction="less",
        threshold=0.0,
    )


_DELETION = {
    (measure, other): _lower(measure, other, title, f"{measure} below the baselines' on every benchmark")
    for other, title in (("rollout", "attention rollout"), ("random", "a random order"))
    for measure in ("RISE", "MAS")
}
CLAIMS = (
    NAIVE_SPEED,
    CACHED_SPEED,
    LONG_SPEED,
    HOP_GAIN,
    HOP_KEEPS,
    ABSORBED,
    MOST_ABSORBED,
    SAME_SCORES,
    *_DELETION.values(),
)


def results(found: Result, hops: int, top_fraction: float) -> list[ClaimResult]:
    """Each claim judged on this run."""
    traces = found.traces
    gains = recovery_gains(traces, hops, top_fraction)
    judged = {
        NAIVE_SPEED: _speed(NAIVE_SPEED, found, cached=False),
        CACHED_SPEED: _speed(CACHED_SPEED, found, cached=True),
        LONG_SPEED: _long_speed(found),
        HOP_GAIN: _gain(found, gains),
        HOP_KEEPS: _judged(HOP_KEEPS, gains, _NO_GAIN),
        ABSORBED: _absorbed(traces),
        MOST_ABSORBED: _judged(
            MOST_ABSORBED, [one.attribution.remaining[0] for one in traces if _has_reasoning(one)], _NO_REASONING
        ),
        SAME_SCORES: _judged(SAME_SCORES, _values(traces, correlation), "It needs the baseline ifr_tokenwise."),
        **{claim: _deletion(claim, traces, *key) for key, claim in _DELETION.items()},
    }
    return [judged[claim] for claim in CLAIMS]


def recovery_gains(traces: Sequence[Explained], hops: int, top_fraction: float) -> list[float]:
    """Recovery with all hops minus with none, of each trace with reasoning and known evidence; none without hops."""
    return [
        one.recovery_at(hops, top_fraction) - one.recovery_at(0, top_fraction)
        for one in traces
        if hops and one.recovery and _has_reasoning(one)
    ]


def correlation(one: Explained) -> float | None:
    """Pearson correlation of span-wise and token-wise scores over ranked tokens; None where one is constant."""
    import numpy as np

    if "ifr_tokenwise" not in one.scores:
        return None
    span, tokenwise = one.ranked(one.scores["ifr_span"]), one.ranked(one.scores["ifr_tokenwise"])
    if len(span) < 2 or not span.std() or not tokenwise.std():
        return None
    return float(np.corrcoef(span, tokenwise)[0, 1])


def sign_test(gains: Sequence[float]) -> tuple[int, int, float]:
    """How many gains are positive and negative, and the one-sided p-value of as many positive ones by chance."""
    from scipy.special import bdtrc  # the binomial law's upper tail; scipy.stats takes a second to import

    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    p = float(bdtrc(better - 1, better + worse, 0.5)) if better else 1.0
    return better, worse, p


_NO_GAIN = "It needs at least one hop, and traces with reasoning and known evidence."
_NO_REASONING = "It needs traces with reasoning."


def _gain(found: Result, gains: Sequence[float]) -> ClaimResult:
    if not gains:
        return not_measured(HOP_GAIN, _NO_GAIN)
    better, worse, p = sign_test(gains)
    note = (
        f"Better on {better} traces, worse on {worse}, equal on {len(gains) - better - worse}; sign test p = {p:.2g}."
    )
    small = found.lm.n_parameters < LARGE_MODEL
    why = "Not decidable at this scale: it needs a model of a billion parameters or more." if small else ""
    return judge(HOP_GAIN, gains, note, over="traces", undecidable=why)


def _absorbed(traces: Sequence[Explained]) -> ClaimResult:
    more = [one.attribution.remaining[0] - one.absorbed_alone for one in traces if one.absorbed_alone is not None]
    if not more:
        return not_measured(ABSORBED, _NO_REASONING)
    note = f"More with reasoning on {sum(value > 0 for value in more)} of {len(more)} traces."
    return judge(ABSORBED, more, note, over="traces")


def _speed(claim: Claim, found: Result, *, cached: bool) -> ClaimResult:
    timed = [timing for timing in found.timings if timing.M in TARGETS]
    if len(timed) < len(TARGETS):
        return not_measured(claim, "It needs timings at 32 and 128 target tokens.")
    scaled = [f"{t.M} (from {t.measured})" for t in timed if t.measured < t.M and not cached]
    note = f"Token-wise seconds were scaled up at M = {', '.join(scaled)}." if scaled else ""
    return judge(
        claim, [t.per_target(t.cached if cached else t.naive) for t in timed], note, over="numbers of target tokens"
    )


def _long_speed(found: Result) -> ClaimResult:
    ratios = [timing.naive / timing.span for timing in found.timings if timing.M == LONG_TARGETS]
    return _judged(LONG_SPEED, ratios, f"It needs a timing at {LONG_TARGETS:,} target tokens.", "timings")


def _deletion(claim: Claim, traces: Sequence[Explained], measure: str, other: str) -> ClaimResult:
    def difference(one: Explained) -> float | None:
        if not {"flashtrace", other} <= one.faithfulness.keys():
            return None
        ours, theirs = (getattr(one.faithfulness[name], measure.lower()) for name in ("flashtrace", other))
        return None if math.isnan(ours - theirs) else ours - theirs

    return _judged(claim, _values(traces, difference), f"It needs deletion curves of FlashTrace and {other}.")


def _judged(claim: Claim, samples: Sequence[float], otherwise: str, over: str = "traces") -> ClaimResult:
    return judge(claim, samples, over=over) if samples else not_measured(claim, otherwise)


def _values(traces: Sequence[Explained], of: Callable[[Explained], float | None]) -> list[float]:
    return [value for one in traces if (value := of(one)) is not None]


def _has_reasoning(one: Explained) -> bool:
    return bool(one.tokens.of("reasoning").any())
