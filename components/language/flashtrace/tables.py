"""The tables of an attribution: every token, the spans that matter most, every scorer, seconds against length."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from kfp_methods.components.language.flashtrace.choices import title
from kfp_methods.components.language.flashtrace.claims import scaled
from kfp_methods.components.language.flashtrace.running import Explained, Result
from kfp_methods.components.language.flashtrace.timing import Timing
from kfp_methods.report import Table

MAX_SHOWN = 40
_LONGEST_WORD = 24


def token_scores(traces: Sequence[Explained]) -> Table:
    """One row for each token; `score` is the result, `pass_k` the k-th pass before weighting."""
    return Table("token_scores", "Every token", pd.concat([_token_rows(one) for one in traces], ignore_index=True))


def _token_rows(one: Explained) -> pd.DataFrame:
    tokens, hops = one.tokens, one.attribution.hops.double().cpu().numpy()
    outside = ~tokens.of("prompt", "reasoning", "output")
    starts, ends = (pd.array(values, dtype="Int64") for values in tokens.spans.T)
    starts[outside] = ends[outside] = pd.NA
    return pd.DataFrame(
        {
            "trace": tokens.trace.id,
            "position": np.arange(len(tokens)),
            "segment": tokens.segments,
            "char_start": starts,
            "char_end": ends,
            "token": [tokens.text[start:stop] for start, stop in tokens.offsets],
            "skipped": tokens.skipped,
            "evidence": tokens.evidence,
            "score": one.scores["flashtrace"],
            **{f"pass_{k}": w for k, w in enumerate(hops)},
        }
    )


def spans(traces: Sequence[Explained], top: int) -> Table:
    """For each trace the runs of neighbouring prompt tokens with the largest scores."""
    rows = [row for one in traces for row in _span_rows(one, top)]
    caption = (
        "Neighbouring words of the prompt that each hold a token of the trace's highest-scoring tenth. "
        "share: of the whole score of the prompt's own tokens. Characters count from 0 in the prompt."
    )
    columns = ["trace", "rank", "text", "share", "char_start", "char_end", "evidence"]
    return Table(
        "spans", "What the answers rest on", pd.DataFrame(rows, columns=columns), caption, MAX_SHOWN, highlight=True
    )


def _span_rows(one: Explained, top: int) -> Iterator[dict[str, object]]:
    """The `top` spans of one trace, the largest first."""
    tokens, scores = one.tokens, one.scores["flashtrace"]
    total = scores[tokens.ranked].sum()
    for rank, run in enumerate(sorted(_runs(one), key=lambda run: -scores[run].sum())[:top], start=1):
        start, stop = int(tokens.spans[run, 0].min()), int(tokens.spans[run, 1].max())
        text = tokens.trace.prompt[start:stop]
        start += len(text) - len(text.lstrip())
        yield {
            "trace": tokens.trace.id,
            "rank": rank,
            "text": text.strip(),
            "share": float(scores[run].sum() / total) if total > 0 else math.nan,
            "char_start": start,
            "char_end": stop,
            "evidence": f"{tokens.evidence[run].mean():.0%} of it" if one.recovery else "",
        }


def _runs(one: Explained) -> list[list[int]]:
    """Positions of neighbouring words of which a token is among the highest-scoring tenth."""
    tokens, ranked = one.tokens, one.tokens.ranked
    scores = one.scores["flashtrace"][ranked]
    best = np.argsort(-scores, kind="stable")[: max(1, math.ceil(len(ranked) / 10))]
    prompt, spans = tokens.trace.prompt, tokens.spans[ranked]
    words = _words(prompt, np.array([start + len(prompt[start:stop].rstrip()) for start, stop in spans]))
    chosen = np.flatnonzero(np.isin(words, words[best]))
    return [ranked[run].tolist() for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1)]


def _words(text: str, ends: np.ndarray) -> np.ndarray:
    """The word that each token is part of, known by where it starts; the end of a token's characters tells.

    A stretch without spaces longer than `_LONGEST_WORD` is no word (some scripts have no spaces): there each token is.
    """
    bounds = [match.span() for match in re.finditer(r"\S+", text)]
    starts, stops = np.array(bounds).T
    number = np.searchsorted(stops, ends).clip(max=len(stops) - 1)
    return np.where((stops - starts)[number] <= _LONGEST_WORD, starts[number], -ends)


def summary(result: Result) -> Table:
    """Every scorer: means over the traces where it was measured."""
    rows = [_summary_row(result.traces, name) for name in result.traces[0].scores]
    caption = (
        "recovery: share of the known evidence among the top-scoring tokens; ceiling: the most that it can be. RISE, "
        "MAS: areas under deletion curves, lower is better. Seconds a trace; token by token shares work between tokens."
    )
    return Table("summary", "Every score on the same traces", pd.DataFrame(rows), caption)


def _summary_row(traces: Sequence[Explained], name: str) -> dict[str, object]:
    curves = [one.faithfulness[name] for one in traces if name in one.faithfulness]
    return {
        "score": title(name),
        "recovery": mean([one.recovery[name] for one in traces if name in one.recovery]),
        "ceiling": mean([one.ceiling for one in traces if one.ceiling is not None]),
        "RISE": mean([curve.rise for curve in curves]),
        "MAS": mean([curve.mas for curve in curves]),
        "traces with curves": len(curves),
        "seconds": mean([one.seconds[name] for one in traces if name in one.seconds]),
    }


def timings(result: Result) -> Table:
    """Seconds for each number of target tokens."""
    rows = [_timing_row(timing, result.timed_forward) for timing in result.timings]
    frame = pd.DataFrame(rows, columns=_TIMING_COLUMNS)
    return Table("timings", "Seconds against the number of target tokens", frame, _timing_caption(result))


_TIMING_COLUMNS = [
    "target tokens M",
    "span_seconds",
    "cached_seconds",
    "naive_seconds",
    "cached_time_ratio",
    "naive_time_ratio",
    "span_with_forward_seconds",
    "cached_with_forward_time_ratio",
    "naive_with_forward_time_ratio",
    "naive measured on, seconds",
]


def _timing_row(timing: Timing, forward: float) -> tuple[float, ...]:
    span, cached, naive = timing.median
    alone = (timing.M, span, cached, naive, cached / span, naive / span)
    whole = (forward + span, (forward + cached) / (forward + span), (forward + naive) / (forward + span))
    return *alone, *whole, timing.measured


def _timing_caption(result: Result) -> str:
    if not result.timings:
        return "No timing was asked for."
    n = len(result.timings[0].rounds)
    words = [
        f"{f'Median of {n} rounds' if n > 1 else 'A single round'} on {result.timed_text}; "
        f"its forward pass took {result.timed_forward:.3g} s and counts where a column says so.",
        scaled(result.timings),
    ]
    return " ".join(filter(None, words))


def mean(values: Sequence[float]) -> float:
    """The mean of the values that are numbers; NaN without one."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def speedups(timings: Sequence[Timing]) -> tuple[float | None, float | None]:
    """naive and cached seconds over span seconds, at the largest M."""
    if not timings:
        return None, None
    last = max(timings, key=lambda timing: timing.M).median
    return last.ratio("naive"), last.ratio("cached")
