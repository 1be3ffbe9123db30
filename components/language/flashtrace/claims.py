"""The paper's claims, and what a run's traces and timings contribute to each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kfp_methods.claims import Claim, ClaimResult, Verdict, judge, not_measured

if TYPE_CHECKING:
    from kfp_methods.components.language.flashtrace.running import Explained, Result
    from kfp_methods.components.language.flashtrace.timing import Timing, Tokenwise

TARGETS = (32, 128)  # M at which the speed is claimed
LONG_TARGETS = 1024
LARGE_MODEL = 1_000_000_000
LEAST_CURVES = 8  # traces with deletion curves

_WAYS: dict[Tokenwise, str] = {
    "naive": "all that heads read computed anew for each token, as in the published comparison",
    "cached": "what heads read computed once a layer for all tokens",
}


LEAST_SPEED: dict[Tokenwise, float] = {"naive": 0.25, "cached": 0.06}  # of M / (K + 1), how many times the passes


def _faster(way: Tokenwise, M: int) -> Claim:
    """That a span is faster by more than `LEAST_SPEED`."""
    least = LEAST_SPEED[way]
    others = {
        "naive": ("token by token", "over 130 times faster for 5,000 target tokens"),
        "cached": ("token by token with the work shared between tokens", "not compared"),
    }
    other, paper = others[way]
    return Claim(
        id=f"faster-than-{'' if way == 'naive' else 'cached-'}tokenwise-at-{M}-time_ratio",
        statement=f"Attributing {M} tokens at once is faster than {other}",
        paper=paper,
        measure=f"log₂ of token-wise seconds ({_WAYS[way]}) / span-wise seconds, over M / (K + 1), "
        f"one value for each round; more than log₂ {least:g}",
        direction="greater",
        threshold=math.log2(least),
    )


SPEED: dict[tuple[Tokenwise, int], Claim] = {(way, M): _faster(way, M) for way in _WAYS for M in TARGETS}
GROWTH = Claim(
    id="speed-up-grows-with-length-time_ratio",
    statement="The speed-up grows in proportion to the number of target tokens",
    paper="over 130 times faster for 5,000 target tokens; token-wise cost is linear in them",
    measure=f"slope of log (token-wise / span-wise seconds) against log M over all M, minus 1, one value for each "
    f"round; within 0.2. Token-wise ({_WAYS['naive']}) is M passes of the span's routine, so that this asks whether "
    "the span's own seconds stay the same",
    direction="within",
    threshold=0.2,
)
LONG_SPEED = Claim(
    id="20-times-faster-at-1024-time_ratio",
    statement="For a thousand target tokens it is at least 20 times faster",
    paper="under 20 s against over 38 min for 5,000 target tokens",
    measure=f"log₂ of token-wise seconds ({_WAYS['naive']}) / span-wise seconds at M = 1,024, one value "
    "for each round; more than log₂ 20",
    direction="greater",
    threshold=math.log2(20),
)
HOP_GAIN = Claim(
    id="one-hop-recovers-more",
    statement="With reasoning between prompt and answer, one hop finds more of the evidence than the span alone",
    paper="recovery 0.755 against 0.253 on HotpotQA, 0.413 against 0.328 on multi-query needles (8B parameters)",
    measure="recovery of the evidence with one hop minus with none, one value for each trace; more than 0.02, and "
    "better on more traces than chance allows (sign test)",
    direction="greater",
    threshold=0.02,
    least=-1.0,
    most=1.0,
)
HOP_KEEPS = Claim(
    id="hops-keep-recovery",
    statement="Hops through the reasoning do not lose the evidence, whatever the model's size",
    paper="not stated: it is weaker than the claim that they find more",
    measure="recovery of the evidence with all hops minus with none, one value for each trace; within 0.1",
    direction="within",
    threshold=0.1,
    least=-1.0,
    most=1.0,
)
ABSORBED = Claim(
    id="reasoning-absorbs-mass",
    statement="Reasoning between prompt and answer absorbs the attribution of a single pass",
    paper="more than 90% of the mass lies on generated tokens (8B parameters)",
    measure="share of traces on which more of the first pass's mass lies on reasoning and output than without the "
    "reasoning; more than 0.8",
    direction="greater",
    threshold=0.8,
    interval="binomial",
)
MOST_ABSORBED = Claim(
    id="most-mass-is-absorbed",
    statement="With reasoning, most of a single pass's attribution stays on generated tokens",
    paper="more than 90% (8B parameters)",
    measure="share of the first pass's mass on reasoning and output, one value for each trace with reasoning; "
    "one half is ours, and much less than the paper's figure",
    direction="greater",
    threshold=0.5,
    least=0.0,
    most=1.0,
)
SAME_SCORES = Claim(
    id="span-agrees-with-tokenwise",
    statement="Aggregating a span approximates the mean of its tokens' attributions",
    paper="RISE 0.128 against 0.116, MAS 0.205 against 0.193",
    measure="Pearson correlation over the prompt's tokens of the span (no hop) and the token-wise mean, for each trace",
    direction="greater",
    threshold=0.9,
    least=-1.0,
    most=1.0,
)


def _lower(measure: str, other: str, title: str, paper: str) -> Claim:
    return Claim(
        id=f"{measure.lower()}-below-{other}",
        statement=f"Its deletion curve ({measure}) is lower than that of {title}",
        paper=paper,
        measure=f"{measure} of FlashTrace minus that of {title}, one value for each trace",
        direction="less",
        threshold=0.0,
        least=-1.0,
        most=1.0,
    )


_DELETION = {
    (measure, other): _lower(measure, other, title, f"{measure} below the baselines' on every benchmark")
    for other, title in (("rollout", "attention rollout"), ("random", "a random order"))
    for measure in ("RISE", "MAS")
}
CLAIMS = (
    *SPEED.values(),
    GROWTH,
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
    judged = {
        **{result.claim: result for result in speed_results(found.timings)},
        HOP_GAIN: _gain(found, recovery_gains(traces, min(hops, 1), top_fraction)),
        HOP_KEEPS: _judged(HOP_KEEPS, recovery_gains(traces, hops, top_fraction), _NO_GAIN),
        ABSORBED: _absorbed(traces),
        MOST_ABSORBED: _judged(MOST_ABSORBED, [one.absorbed for one in traces if _has_reasoning(one)], _NO_REASONING),
        SAME_SCORES: _judged(SAME_SCORES, _values(traces, correlation), "It needs the baseline ifr_tokenwise."),
        **{claim: _deletion(claim, traces, *key) for key, claim in _DELETION.items()},
    }
    return [judged[claim] for claim in CLAIMS]


def speed_results(timings: Sequence[Timing]) -> list[ClaimResult]:
    """The claims on seconds, from each round's own ratio."""
    return [
        *(_speed(claim, timings, way, M, per_pass=True) for (way, M), claim in SPEED.items()),
        _growth(timings),
        _speed(LONG_SPEED, timings, "naive", LONG_TARGETS, per_pass=False),
    ]


def recovery_gains(traces: Sequence[Explained], hops: int, top_fraction: float) -> list[float]:
    """Recovery with `hops` hops minus with none, of each trace with reasoning and known evidence; none without hops."""
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


def slopes(timings: Sequence[Timing], way: Tokenwise) -> list[float]:
    """For each round, the slope of the log of the speed-up against log M (least squares); 1: it grows as M does."""
    logs_M = [math.log(timing.M) for timing in timings]
    of_rounds = zip(*([math.log(each.ratio(way)) for each in timing.rounds] for timing in timings), strict=True)
    return [statistics.linear_regression(logs_M, logs).slope for logs in of_rounds]


def scaled(timings: Sequence[Timing]) -> str:
    """Says where token-wise seconds were scaled up; empty where nowhere."""
    found = [f"{timing.M:,} (from {timing.measured:,})" for timing in timings if timing.measured < timing.M]
    return f"Token-wise seconds, all anew, were scaled up at M = {', '.join(found)}." if found else ""


_NO_GAIN = "It needs at least one hop, and traces with reasoning and known evidence."
_NO_REASONING = "It needs traces with reasoning."


def _gain(found: Result, gains: Sequence[float]) -> ClaimResult:
    if not gains:
        return not_measured(HOP_GAIN, _NO_GAIN)
    better, worse, p = sign_test(gains)
    note = (
        f"Better on {better} traces, worse on {worse}, equal on {len(gains) - better - worse}; sign test p = {p:.2g}."
    )
    judged = _judged(HOP_GAIN, gains, _NO_GAIN, note)
    if found.lm.n_parameters < LARGE_MODEL:
        why = "Not decidable at this scale: it needs a model of a billion parameters or more."
    elif judged.verdict is Verdict.SUPPORTED and p >= (1 - HOP_GAIN.level) / 2:
        why = "The mean is above the threshold, but the sign test does not tell the traces from chance."
    else:
        return judged
    return judge(HOP_GAIN, gains, note, over="traces", undecidable=why)


def _absorbed(traces: Sequence[Explained]) -> ClaimResult:
    pairs = [(one.absorbed, one.absorbed_alone) for one in traces if one.absorbed_alone is not None]
    if not pairs:
        return not_measured(ABSORBED, _NO_REASONING)
    more = [float(absorbed > alone) for absorbed, alone in pairs]
    difference = math.fsum(absorbed - alone for absorbed, alone in pairs) / len(pairs)
    note = f"More with reasoning on {sum(more):.0f} of {len(pairs)} traces, by {difference:.2f} of the mass on average."
    return judge(ABSORBED, more, note, over="traces")


def _speed(claim: Claim, timings: Sequence[Timing], way: Tokenwise, M: int, *, per_pass: bool) -> ClaimResult:
    """The claim on the log of each round's speed-up at M, over M / (K + 1) where it is about passes."""
    timed = [timing for timing in timings if timing.M == M]
    if not timed:
        return not_measured(claim, f"It needs a timing at {M:,} target tokens.")
    shift = math.log2(timed[0].passes) if per_pass else 0.0
    logs = [math.log2(each.ratio(way)) - shift for each in timed[0].rounds]
    times = 2 ** (math.fsum(logs) / len(logs) + shift)
    words = f"{times:.3g} times faster (geometric mean of the rounds)."
    return judge(claim, logs, f"{words} {scaled(timed) if way == 'naive' else ''}", over="rounds")


def _growth(timings: Sequence[Timing]) -> ClaimResult:
    if len({timing.M for timing in timings}) < 2:
        return not_measured(GROWTH, "It needs timings at two or more numbers of target tokens.")
    shared = slopes(timings, "cached")
    words = f"With shared work the slope is {math.fsum(shared) / len(shared):.2f}."
    samples = [slope - 1 for slope in slopes(timings, "naive")]
    return judge(GROWTH, samples, f"{words} {scaled(timings)}", over="rounds")


def _deletion(claim: Claim, traces: Sequence[Explained], measure: str, other: str) -> ClaimResult:
    def difference(one: Explained) -> float | None:
        if not {"flashtrace", other} <= one.faithfulness.keys():
            return None
        ours, theirs = (getattr(one.faithfulness[name], measure.lower()) for name in ("flashtrace", other))
        return None if math.isnan(ours - theirs) else ours - theirs

    found = _values(traces, difference)
    few = f"Not decidable on so few traces: it needs {LEAST_CURVES} or more." if len(found) < LEAST_CURVES else ""
    return _judged(claim, found, f"It needs deletion curves of FlashTrace and {other}.", undecidable=few)


def _judged(
    claim: Claim, samples: Sequence[float], otherwise: str, note: str = "", undecidable: str = ""
) -> ClaimResult:
    """The claim on one value for each trace; several that are all equal settle nothing, however near they lie."""
    if not samples:
        return not_measured(claim, otherwise)
    if not undecidable and len(samples) > 1 and min(samples) == max(samples):
        undecidable = "Not decidable where no trace differs from another."
    return judge(claim, samples, note, over="traces", undecidable=undecidable)


def _values(traces: Sequence[Explained], of: Callable[[Explained], float | None]) -> list[float]:
    return [value for one in traces if (value := of(one)) is not None]


def _has_reasoning(one: Explained) -> bool:
    return bool(one.tokens.of("reasoning").any())
