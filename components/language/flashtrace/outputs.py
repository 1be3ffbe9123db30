"""From attributed traces to the method's outputs: report, metrics, claims, tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfp_methods.components.language.flashtrace import claims, figures, tables
from kfp_methods.components.language.flashtrace.component import (
    FlashTraceInputs,
    FlashTraceMetrics,
    FlashTraceOutputs,
)
from kfp_methods.components.language.flashtrace.heatmap import heatmap
from kfp_methods.components.language.flashtrace.running import Explained, Result
from kfp_methods.components.language.flashtrace.timing import Timing
from kfp_methods.report import Report, Text

if TYPE_CHECKING:
    from kfp_methods.context import Context

_SHOWN = 12


def outputs(inputs: FlashTraceInputs, result: Result, context: Context) -> FlashTraceOutputs:
    """All that the method returns."""
    measured = metrics(inputs, result)
    if measured.flat_deletion_curves:
        context.warn(
            f"RISE or MAS is undefined for {measured.flat_deletion_curves} of FlashTrace's deletion curves: the answer "
            "is as likely without the prompt's tokens, or the scores or the curve leave nothing to compare"
        )
    spans, summary, timings = (
        tables.spans(result.traces, inputs.top_spans),
        tables.summary(result),
        tables.timings(result),
    )
    drawn = [figures.timing_figure(result), figures.recovery_figure(result), figures.mass_figure(result.traces)]
    maps = [heatmap(one) for one in result.traces[:_SHOWN]]
    more = len(result.traces) - len(maps)
    rest = [Text("Further traces", f"{more} more are in the table of token scores.")] if more > 0 else []
    first = drawn[0] or drawn[1] or drawn[2]
    parts = [first, spans, summary, *(figure for figure in drawn if figure is not first), *maps, *rest]
    return FlashTraceOutputs(
        report=Report(_summary(inputs, result, measured), tuple(part for part in parts if part is not None)),
        metrics=measured,
        claims=claims.results(result, inputs.hops, inputs.top_fraction),
        token_scores=tables.token_scores(result.traces),
        spans=spans,
        summary=summary,
        timings=timings,
    )


def metrics(inputs: FlashTraceInputs, result: Result) -> FlashTraceMetrics:
    """Means over the traces."""
    traces = result.traces
    gains = claims.recovery_gains(traces, inputs.hops, inputs.top_fraction)
    curves = [one.faithfulness["flashtrace"] for one in traces if "flashtrace" in one.faithfulness]
    naive, cached = tables.speedups(result.timings)
    return FlashTraceMetrics(
        recovery_mean=_known([one.recovery["flashtrace"] for one in traces if one.recovery]),
        recovery_ceiling=_known([one.ceiling for one in traces if one.ceiling is not None]),
        recovery_gain_vs_k0=_known(gains),
        absorbed_mass=tables.mean([one.absorbed for one in traces]),
        absorbed_mass_without_reasoning=_known(
            [one.absorbed_alone for one in traces if one.absorbed_alone is not None]
        ),
        leftover_mass=tables.mean([one.leftover for one in traces]),
        span_correlation=_known([value for one in traces if (value := claims.correlation(one)) is not None]),
        rise=_known([curve.rise for curve in curves]),
        mas=_known([curve.mas for curve in curves]),
        flat_deletion_curves=sum(math.isnan(curve.rise + curve.mas) for curve in curves),
        attrib_seconds=tables.mean([one.seconds["flashtrace"] for one in traces]),
        forward_seconds=tables.mean([one.forward_seconds for one in traces]),
        speedup_vs_tokenwise_time_ratio=naive,
        speedup_vs_cached_tokenwise_time_ratio=cached,
    )


def _known(values: Sequence[float]) -> float | None:
    value = tables.mean(values)
    return None if math.isnan(value) else value


def _summary(inputs: FlashTraceInputs, result: Result, measured: FlashTraceMetrics) -> str:
    """The answer in words."""
    n = len(result.traces)
    words = [_first_span(result.traces[0], inputs.top_spans)]
    words.append(
        f"{'One trace was' if n == 1 else f'{n} traces were'} attributed with {result.lm.name} and "
        f"{inputs.hops} hop{'s' * (inputs.hops != 1)}: {1 - measured.leftover_mass:.0%} of the attribution reached the "
        f"prompt ({1 - measured.absorbed_mass:.0%} without hops)."
    )
    if measured.recovery_mean is not None:
        words.append(
            f"Of the known evidence {measured.recovery_mean:.0%} is among the top {inputs.top_fraction:.0%} of the "
            f"prompt's tokens ({measured.recovery_ceiling:.0%} at most; chance: {inputs.top_fraction:.0%})."
        )
    if measured.speedup_vs_tokenwise_time_ratio is not None:
        last = max(result.timings, key=lambda timing: timing.M)
        words.append(
            f"At {last.M:,} target tokens attributing token by token, all computed anew{_measured_on(last)}, takes "
            f"{measured.speedup_vs_tokenwise_time_ratio:.3g} times as long as this; with shared work "
            f"{measured.speedup_vs_cached_tokenwise_time_ratio:.3g} times."
        )
    return " ".join(words)


def _measured_on(timing: Timing) -> str:
    return f" (scaled up from {timing.measured:,})" if timing.measured < timing.M else ""


def _first_span(one: Explained, top: int) -> str:
    frame = tables.spans([one], top).frame
    best = frame.iloc[0]
    return (
        f"The answer of trace {one.tokens.trace.id} rests most on “{best['text']}” ({best['share']:.0%} of the score)."
    )
