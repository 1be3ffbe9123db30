"""Seconds of the attribution alone, span-wise and token by token, against the number of target tokens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import torch

from kfp_methods.components.language.attention import Captured
from kfp_methods.components.language.flashtrace.attribution import attribute, token_scores

T = TypeVar("T")
Tokenwise = Literal["naive", "cached"]
_PROBE = 4
_LEAST_MEASURED = 32


class Round(NamedTuple):
    """Seconds of the three ways, measured one after the other.

    Attributes:
        span: span-wise with all its hops.
        cached: token by token, what the heads read computed once a layer.
        naive: token by token, computed anew for each, as in the published comparison.
    """

    span: float
    cached: float
    naive: float

    def ratio(self, way: Tokenwise) -> float:
        """Token-wise over span-wise seconds."""
        return float(getattr(self, way)) / self.span


@dataclass(frozen=True)
class Timing:
    """Rounds for M target tokens.

    Attributes:
        measured: how many of the M tokens `naive` was measured on; it is scaled up to M.
    """

    M: int
    hops: int
    rounds: tuple[Round, ...]
    measured: int

    @property
    def median(self) -> Round:
        """Median seconds of each way."""
        return Round(*(statistics.median(each) for each in zip(*self.rounds, strict=True)))

    @property
    def passes(self) -> float:
        """M / (K + 1), by which token-wise attribution makes more passes."""
        return self.M / (self.hops + 1)


def seconds(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """The work's result and its seconds, those of the GPU included."""
    _wait(device)
    started = time.perf_counter()
    result = work()
    _wait(device)
    return result, time.perf_counter() - started


def sweep(
    captured: Captured, lengths: Sequence[int], *, hops: int, chunk: int, repeats: int, limit_seconds: float
) -> Iterator[Timing]:
    """Timings for the last M positions of one text, for each M that leaves room for a prompt.

    limit_seconds: above it, `naive` is measured on 32 or more evenly spread targets only.
    """
    N, device = captured.final.shape[1], captured.final.device
    layers = captured.layers
    none = torch.zeros(N, dtype=torch.bool, device=device)

    def span(answer: torch.Tensor) -> object:
        where = {"answer": answer, "recursion": answer, "prompt": ~answer, "skipped": none}
        return attribute(layers, **where, hops=hops, chunk=chunk, min_mass=0.0)

    for M in (M for M in lengths if M < N):
        targets = torch.arange(N - M, N, device=device)
        answer = none.index_fill(0, targets, True)
        part = targets[_spread(M, min(M, _PROBE)).to(device)]
        _, probed = seconds(lambda part=part: token_scores(layers, part, chunk, reuse=False), device)  # type: ignore[misc]
        measured = min(M, max(_LEAST_MEASURED, int(limit_seconds * len(part) / probed)))
        part = targets[_spread(M, measured).to(device)]
        # In turn, so that a busy machine slows all three alike.
        rounds = tuple(
            Round(
                seconds(lambda: span(answer), device)[1],  # noqa: B023
                seconds(lambda: token_scores(layers, targets, chunk, reuse=True), device)[1],  # noqa: B023
                seconds(lambda: token_scores(layers, part, chunk, reuse=False), device)[1] * M / measured,  # noqa: B023
            )
            for _ in range(repeats)
        )
        yield Timing(M, hops, rounds, measured)


def _spread(n: int, k: int) -> torch.Tensor:
    """`k` of the numbers 0..n-1, evenly spread."""
    return torch.linspace(0, n - 1, k).round().long()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
