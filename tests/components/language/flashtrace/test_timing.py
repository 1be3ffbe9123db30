"""Timings are of the work that they name, and scale what they did not measure."""

from __future__ import annotations

import time

import pytest
import torch

from kfp_methods.components.language.attention import capture
from kfp_methods.components.language.flashtrace import timing
from kfp_methods.components.language.flashtrace.timing import Timing, seconds, sweep
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
    assert all(min(one.span, one.cached, one.naive) > 0 for one in found)


def test_what_would_take_too_long_is_scaled_up(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token-wise pass is made to take 1 second by the clock: 5 seconds allow 5 of 30 tokens."""
    clock = [0.0]
    scores = timing.token_scores

    def slow(layers: object, targets: torch.Tensor, chunk: int, *, reuse: bool) -> torch.Tensor:
        clock[0] += 1.0 if reuse else float(len(targets))
        return scores(layers, targets, chunk, reuse=reuse)  # type: ignore[arg-type]

    monkeypatch.setattr(timing, "token_scores", slow)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0] + 1e-9)
    (found,) = sweep(capture(lm, IDS), [30], hops=1, chunk=16, repeats=1, limit_seconds=5)
    assert found.measured == 5
    assert found.naive == pytest.approx(30)
    assert found.cached == pytest.approx(1)


def test_speed_is_relative_to_the_number_of_passes() -> None:
    one = Timing(M=128, hops=1, span=0.5, cached=4.0, naive=32.0, measured=128)
    assert one.per_target(one.naive) == pytest.approx(1.0)
    assert one.per_target(one.cached) == pytest.approx(0.125)
