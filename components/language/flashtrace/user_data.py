"""A user's model and JSON lines of traces become tokens that are ready to be attributed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Column
from kfp_methods.components.language import models
from kfp_methods.components.language.flashtrace import sample
from kfp_methods.components.language.flashtrace.traces import Tokens, Trace, TraceError, prompt_ids, tokenise
from kfp_methods.components.language.models import LanguageModel
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.language.flashtrace.component import FlashTraceInputs
    from kfp_methods.context import Context

_COLUMNS = (
    Column("id", "str", unique=True),
    Column("prompt", "str"),
    Column("output", "str", required=False, nullable=True),
    Column("reasoning", "str", required=False, nullable=True),
    Column("chat", "bool", required=False, nullable=True),
)
_MOST_ERRORS = 20


@dataclass(frozen=True)
class Data:
    """The model, and traces whose tokens are known unless the model is still to write their output."""

    lm: LanguageModel
    traces: tuple[Trace, ...]
    tokens: dict[str, Tokens]
    field: str


def load(inputs: FlashTraceInputs, context: Context) -> Data:
    """Reads the traces and the model, and checks each trace with its tokenizer.

    Raises:
        InputError: a file cannot be used, or traces do not fit: one entry for each.
    """
    traces = tuple(_traces(inputs, context))
    folder = context.fetch(inputs.model) if inputs.model else None
    lm = models.load(
        folder,
        device=context.device,
        dtype=inputs.dtype,
        field=inputs.model.field if inputs.model else "model_uri",
    )
    field = inputs.traces.field if inputs.traces else "max_tokens"
    tokens: dict[str, Tokens] = {}
    problems = []
    for trace in traces:
        try:
            if trace.output is None:
                prompt_ids(lm, trace)
            else:
                tokens[trace.id] = tokenise(lm, trace, inputs.skip_tokens, inputs.max_tokens)
        except TraceError as error:
            problems.append(problem_of(field, trace, error))
    if problems:
        raise InputError(problems[:_MOST_ERRORS])
    return Data(lm, traces, tokens, field)


def problem_of(field: str, trace: Trace, error: TraceError) -> Problem:
    """The entry of an InputError for one trace."""
    return Problem(field, None, f"trace {trace.id}: {error.problem}", error.remedy)


def read_traces(path: Path, field: str) -> list[Trace]:
    """The traces in a file of JSON lines (or another table with these columns), in its order.

    Raises:
        InputError: a column is missing or wrong, or a row's evidence or reasoning does not fit its prompt and output.
    """
    frame = artifacts.read_table(path, field=field, columns=_COLUMNS)
    traces, problems = [], []
    for row in frame.to_dict("records"):
        trace = Trace(
            id=row["id"],
            prompt=row["prompt"],
            reasoning=_text(row.get("reasoning")) or "",
            output=_text(row.get("output")),
            chat=None if pd.isna(row.get("chat")) else bool(row["chat"]),
        )
        try:
            traces.append(replace(trace, evidence=_evidence(row.get("evidence"), trace.prompt)))
            _check(trace)
        except TraceError as error:
            problems.append(problem_of(field, trace, error))
    if problems:
        raise InputError(problems[:_MOST_ERRORS])
    return traces


def _traces(inputs: FlashTraceInputs, context: Context) -> Iterator[Trace]:
    if inputs.traces is None:
        yield from sample.traces(inputs.n_traces, inputs.haystack_sentences, inputs.seed)
        return
    yield from read_traces(context.fetch(inputs.traces), inputs.traces.field)


def _check(trace: Trace) -> None:
    if not trace.prompt.strip():
        raise TraceError("its prompt is empty", "Give the text that the model was given")
    if trace.output is None and trace.reasoning:
        raise TraceError("it has reasoning without output", "Give the output too, or neither for the model to write")


def _evidence(value: Any, prompt: str) -> tuple[tuple[int, int], ...]:
    """Ranges of characters, known to lie within the prompt."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ()
    remedy = "Give a list of [start, end) pairs of characters of the prompt, such as [[0, 12]]"
    if not isinstance(value, (list, np.ndarray)):
        raise TraceError(f"its evidence is {str(value)[:40]!r}, not a list", remedy)
    found = []
    for pair in value:
        ends = list(pair) if isinstance(pair, (list, tuple, np.ndarray)) else [pair]
        if len(ends) != 2 or not all(isinstance(end, (int, np.integer)) for end in ends):
            raise TraceError(f"its evidence holds {str(pair)[:40]}, not a pair of whole numbers", remedy)
        start, stop = map(int, ends)
        if not 0 <= start < stop <= len(prompt):
            why = "is reversed or empty" if start >= stop else f"leaves the prompt's {len(prompt)} characters"
            raise TraceError(f"its evidence [{start}, {stop}) {why}", remedy)
        found.append((start, stop))
    return tuple(found)


def _text(value: Any) -> str | None:
    return None if value is None or pd.isna(value) else str(value)
