"""Timings are of the work that they name, and scale what they did not measure."""

from __future__ import annotations

import math
import time

import pytest
import torch

from kfp_methods.claims import ClaimResult, Verdict
from kfp_methods.components.language.attention import capture
from kfp_methods.components.language.flashtrace import claims, timing
from kfp_methods.components.language.flashtrace.timing import Round, Timing, seconds, sweep
from kfp_methods.components.language.models import LanguageModel

IDS = torch.randint(3, 320, (1, 40), generator=torch.Generator().manual_seed(1))


def test_seconds_are_those_of_the_work() -> None:
    result, measured = seconds(lambda: time.sleep(0.05) or 7, torch.device("cpu"))
    assert result == 7
    assert 0.05 <= measured < 1


def test_every_length_that_leaves_a_prompt_is_timed(lm: LanguageModel) -> None:
    found = list(sweep(capture(lm, IDS), [2, 8, 40, 99], hops=1, chunk=16, repeats=2, limit_seconds=60))
    assert [one.M for one in found] == [2, 8]
    assert all(one.measured == one.M for one in found)
    assert all(len(one.rounds) == 2 and min(map(min, one.rounds)) > 0 for one in found)


def test_what_would_take_too_long_is_scaled_up(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token-wise pass is made to take 1 second by the clock: 34 seconds allow 34 of 38 tokens."""
    clock = [0.0]
    scores = timing.token_scores

    def slow(layers: object, targets: torch.Tensor, chunk: int, *, reuse: bool) -> torch.Tensor:
        clock[0] += 1.0 if reuse else float(len(targets))
        return scores(layers, targets, chunk, reuse=reuse)  # type: ignore[arg-type]

    monkeypatch.setattr(timing, "token_scores", slow)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0] + 1e-9)
    captured = capture(lm, IDS)
    (found,) = sweep(captured, [38], hops=1, chunk=16, repeats=1, limit_seconds=34)
    assert found.measured == 34
    assert found.median.naive == pytest.approx(38)
    assert found.median.cached == pytest.approx(1)
    least = list(sweep(captured, [30, 38], hops=1, chunk=16, repeats=1, limit_seconds=5))
    assert [one.measured for one in least] == [30, 32], "32 targets are measured whatever they take"


def timed(M: int, *rounds: tuple[float, float, float], measured: int = 0, hops: int = 1) -> Timing:
    return Timing(M, hops, tuple(Round(*each) for each in rounds), measured or M)


def test_medians_are_of_each_way() -> None:
    one = timed(128, (0.5, 4.0, 32.0), (0.4, 5.0, 31.0), (0.7, 3.0, 40.0))
    assert one.median == (0.5, 4.0, 32.0)
    assert one.passes == 64
    assert one.median.ratio("naive") == 64
    assert one.median.ratio("cached") == 8


def judged(*timings: Timing) -> dict[str, ClaimResult]:
    """The claims on timings alone."""
    return {found.claim.id: found for found in claims.speed_results(timings)}


def test_speed_is_judged_from_each_rounds_own_ratio() -> None:
    """A machine that slows all three ways alike changes no ratio, and every M has a claim of its own."""
    slowed = [(0.5 * slow, 4.0 * slow, 32.0 * slow * noise) for slow, noise in ((1, 1.0), (9, 1.1), (3, 0.9))]
    found = judged(timed(32, (0.5, 0.4, 8.0), (0.5, 0.4, 8.1), (0.5, 0.4, 7.9)), timed(128, *slowed))
    naive = found["faster-than-tokenwise-at-128-time_ratio"]
    assert naive.claim.interval == "t"
    assert naive.samples == pytest.approx([0, math.log2(1.1), math.log2(0.9)])
    assert naive.low < naive.value < naive.high  # type: ignore[operator]
    assert naive.verdict is Verdict.SUPPORTED
    assert "scaled up" not in naive.note
    assert found["faster-than-cached-tokenwise-at-128-time_ratio"].verdict is Verdict.SUPPORTED
    assert found["faster-than-cached-tokenwise-at-32-time_ratio"].verdict is Verdict.NOT_SUPPORTED
    assert found["20-times-faster-at-1024-time_ratio"].verdict is Verdict.NOT_MEASURED


def test_rounds_that_disagree_settle_nothing() -> None:
    found = judged(timed(32, (0.5, 4.0, 2.0), (0.5, 4.0, 32.0), (0.5, 4.0, 8.0)))
    assert found["faster-than-tokenwise-at-32-time_ratio"].verdict is Verdict.INCONCLUSIVE
    once = judged(timed(32, (0.5, 4.0, 32.0)))
    assert once["faster-than-tokenwise-at-32-time_ratio"].verdict is Verdict.INCONCLUSIVE


def test_what_was_scaled_up_is_said_of_every_claim_that_rests_on_it() -> None:
    near = ((1.0, 9.0, 900.0), (1.0, 9.0, 910.0))
    found = judged(timed(512, *near, measured=60), timed(1024, *((s, c, 2 * n) for s, c, n in near), measured=70))
    long = found["20-times-faster-at-1024-time_ratio"]
    assert long.verdict is Verdict.SUPPORTED
    assert "1,024 (from 70)" in long.note
    assert "512 (from 60), 1,024 (from 70)" in found["speed-up-grows-with-length-time_ratio"].note


@pytest.mark.parametrize(
    ("power", "verdict"), [(1.0, Verdict.SUPPORTED), (0.5, Verdict.NOT_SUPPORTED), (1.3, Verdict.NOT_SUPPORTED)]
)
def test_the_speed_up_must_grow_in_proportion(power: float, verdict: Verdict) -> None:
    timings = [timed(M, *((s, s, s * M**power) for s in (0.5, 0.6, 0.9))) for M in (8, 32, 128)]
    assert claims.slopes(timings, "cached") == pytest.approx([0, 0, 0])
    found = judged(*timings)["speed-up-grows-with-length-time_ratio"]
    assert found.samples == pytest.approx([power - 1] * 3)
    assert found.verdict is verdict
    alone = judged(timings[0], timings[0])["speed-up-grows-with-length-time_ratio"]
    assert alone.verdict is Verdict.NOT_MEASURED
