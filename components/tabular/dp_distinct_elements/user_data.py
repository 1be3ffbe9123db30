"""A user's events become a stream: steps of a clock, users by number, insertions and deletions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kfp_methods import artifacts
from kfp_methods.artifacts import Column
from kfp_methods.components.tabular.dp_distinct_elements.component import MOST_STEPS
from kfp_methods.components.tabular.dp_distinct_elements.sketches import MOST_UPDATES
from kfp_methods.components.tabular.dp_distinct_elements.streams import Ints, Stream
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, listed, token

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dp_distinct_elements.component import DpDistinctElementsInputs
    from kfp_methods.context import Context

_OPS = {"1": 1, "+1": 1, "insert": 1, "-1": -1, "delete": -1}
_MOST_EVENTS = 50_000_000


@dataclass(frozen=True)
class UserData:
    """labels [T]: what each step of the stream is called, its number or the begin of its time."""

    stream: Stream
    labels: NDArray[np.generic]


@dataclass(frozen=True)
class _File:
    """To name a row of it in errors."""

    field: str
    path: Path

    def refuse(self, wrong: NDArray[np.bool_], what: Callable[[int], str], remedy: str) -> None:
        """Raises InputError about the first row that is wrong, if any is."""
        if wrong.any():
            row = int(np.argmax(wrong))
            place = artifacts.row_place(self.path, row)
            more = f" (and {counted(int(wrong.sum()) - 1, 'row')} more)" if wrong.sum() > 1 else ""
            raise InputError(Problem(self.field, None, f"{what(row)} in {place}{more}", remedy))


def load(inputs: DpDistinctElementsInputs, context: Context) -> UserData:
    """Reads and checks the events.

    Raises:
        InputError: they cannot be used, or do not fit the parameters.
    """
    assert inputs.events is not None  # noqa: S101 (the contract requires it)
    file = _File(inputs.events.field, context.fetch(inputs.events))
    columns = [Column("user", "str"), Column("op", "str")]
    frame = artifacts.read_table(file.path, field=file.field, columns=columns, max_rows=_MOST_EVENTS)
    if "t" not in frame:
        remedy = f"Add it; the file's other columns: {listed([*frame.columns])}"
        raise InputError(Problem(file.field, None, "column 't' is missing", remedy))
    times, ops = _times(frame["t"], file), _ops(frame["op"], file)
    rows = np.arange(len(times))
    if (np.diff(times) < 0).any():
        context.warn("the events are not in the order of t: they are sorted, those of equal t stay in the file's order")
        rows = np.argsort(times, kind="stable")
    user, names = pd.factorize(frame["user"].to_numpy(object)[rows])
    step, labels = _steps(times[rows], frame["t"], inputs)
    _check_horizon(inputs, len(labels), context)
    stream = Stream(
        step, user.astype(np.int64), ops[rows], len(labels), tuple(names), inputs.frequency_mode == "multiset"
    )
    if stream.multiset and "sample_hold" in inputs.mechanism and len(times) > MOST_UPDATES:
        remedy = f"Give {MOST_UPDATES:,} events at most, or tree_linear"
        raise InputError(
            Problem("mechanism", "sample_hold", f"in multiset mode is too slow for {len(times):,}", remedy)
        )
    _check_updates(stream, rows, file)
    _warn(inputs, stream, context)
    return UserData(stream, labels)


def _ops(column: pd.Series, file: _File) -> Ints:
    lowered = column.str.strip().str.lower()
    ops = lowered.map(_OPS)
    file.refuse(
        ops.isna().to_numpy(),
        lambda row: f"column 'op': {token(str(column.iloc[row]))} is neither an insertion nor a deletion",
        "Write 1 or insert, and -1 or delete",
    )
    return np.asarray(ops, np.int64)


def _times(column: pd.Series, file: _File) -> Ints:
    """Whole numbers, or nanoseconds of timestamps."""
    file.refuse(column.isna().to_numpy(), lambda row: "column 't' is missing (empty, NA or NaN)", "Fill it in")
    if pd.api.types.is_datetime64_any_dtype(column):
        return _nanoseconds(column)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(np.float64)
        file.refuse(
            ~np.isfinite(numbers) | (numbers != np.floor(numbers)) | (np.abs(numbers) > 2**53),
            lambda row: f"column 't': {numbers[row]:g} is no whole number",
            "Give whole numbers, or timestamps such as 2024-01-31 10:00",
        )
        return column.to_numpy().astype(np.int64)
    text = column.astype(str)
    numbers_of_text = pd.to_numeric(text, errors="coerce")
    if numbers_of_text.notna().all():
        return _times(numbers_of_text, file)
    found = pd.to_datetime(text, errors="coerce", utc=True, format="ISO8601")
    file.refuse(
        found.isna().to_numpy(),
        lambda row: f"column 't': {token(text.iloc[row])} is neither a whole number nor a timestamp",
        "Give whole numbers, or timestamps such as 2024-01-31 10:00",
    )
    return _nanoseconds(found)


def _nanoseconds(column: pd.Series) -> Ints:
    naive = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column
    return naive.to_numpy("datetime64[ns]").astype(np.int64)


def _steps(times: Ints, given: pd.Series, inputs: DpDistinctElementsInputs) -> tuple[Ints, NDArray[np.generic]]:
    """Step of each event, and what the steps are called; `times` rise."""
    if inputs.step == "event":
        return np.arange(1, len(times) + 1), np.arange(1, len(times) + 1)
    if pd.api.types.is_numeric_dtype(given) or pd.to_numeric(given.astype(str), errors="coerce").notna().all():
        width, begin = _whole_width(inputs.step), int(times[0])
        count = (int(times[-1]) - begin) // width + 1
        _check_steps(count, inputs)
        return (times - begin) // width + 1, begin + width * np.arange(count)
    offset = _offset(inputs.step)
    first, last = pd.Timestamp(int(times[0])), pd.Timestamp(int(times[-1]))
    begins = _begins(first, last, offset, inputs)
    return np.searchsorted(begins.to_numpy("datetime64[ns]").astype(np.int64), times, side="right"), begins.to_numpy()


def _whole_width(step: str) -> int:
    if step.isdecimal() and int(step) > 0:
        return int(step)
    raise InputError(Problem("step", step, "is no number of units of t", "Give event, or a whole number such as 1"))


def _offset(step: str) -> pd.tseries.offsets.BaseOffset:
    remedy = "Give event, or an interval such as 1D, 1h or 7D"
    try:
        offset = pd.tseries.frequencies.to_offset(step)
    except ValueError:
        raise InputError(Problem("step", step, "is no interval of time", remedy)) from None
    if offset is None or offset.n < 1 or step.isdecimal():
        raise InputError(Problem("step", step, "is no interval of time", remedy))
    return offset


def _begins(
    first: pd.Timestamp, last: pd.Timestamp, offset: pd.tseries.offsets.BaseOffset, inputs: DpDistinctElementsInputs
) -> pd.DatetimeIndex:
    """Of all intervals from that of `first` to that of `last`; days begin at midnight."""
    start = (
        first.floor(pd.Timedelta(offset))
        if isinstance(offset, pd.tseries.offsets.Tick)
        else offset.rollback(first.normalize())
    )
    if isinstance(offset, pd.tseries.offsets.Tick):
        _check_steps(int((last - start) / pd.Timedelta(offset)) + 1, inputs)
    return pd.date_range(start, last, freq=offset)


def _check_steps(count: int, inputs: DpDistinctElementsInputs) -> None:
    if count > MOST_STEPS:
        remedy = f"Give a longer interval: {MOST_STEPS:,} steps at most"
        raise InputError(Problem("step", inputs.step, f"makes {count:,} steps", remedy))


def _check_horizon(inputs: DpDistinctElementsInputs, T: int, context: Context) -> None:
    if T > MOST_STEPS:
        remedy = f"Give {MOST_STEPS:,} at most, or a step that joins them"
        raise InputError(Problem("events", None, f"makes {T:,} steps", remedy))
    if inputs.horizon is None:
        if inputs.publish:
            context.warn(
                f"horizon is taken from the events ({T} steps): that tells how many there are; fix it beforehand"
            )
    elif inputs.horizon < T:
        raise InputError(Problem("horizon", inputs.horizon, f"is less than the {T} steps of the events", "Give more"))
    elif inputs.horizon > MOST_STEPS:
        raise InputError(Problem("horizon", inputs.horizon, "is too far", f"Give {MOST_STEPS:,} at most"))


def _check_updates(stream: Stream, rows: Ints, file: _File) -> None:
    """Nobody leaves who is not there; in binary mode nobody comes who is there."""
    updates = stream.updates
    order = np.argsort(stream.user, kind="stable")
    running = np.cumsum(updates.change)
    starts = np.flatnonzero(updates.rank == 0)
    lengths = np.diff(np.r_[starts, len(running)])
    counts = running - np.repeat(np.r_[0, running][starts], lengths)
    names = stream.names

    def by_row(wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
        marked = np.zeros(len(rows), bool)
        marked[rows[order[wrong]]] = True
        return marked

    owner = np.empty(len(rows), np.int64)
    owner[rows] = stream.user
    file.refuse(
        by_row(counts < 0),
        lambda row: f"column 'op': user {token(names[owner[row]])} is deleted without being there",
        "Insert every user before deleting it",
    )
    if not stream.multiset:
        file.refuse(
            by_row(counts > 1),
            lambda row: f"column 'op': user {token(names[owner[row]])} is inserted while there",
            "Let insertions and deletions alternate, or give frequency_mode=multiset",
        )


def _warn(inputs: DpDistinctElementsInputs, stream: Stream, context: Context) -> None:
    if not inputs.publish and inputs.delta * stream.users > 1:  # a release tells nothing of how many there are
        context.warn(f"delta = {inputs.delta:g} is above 1 / users: a mechanism that publishes one user would meet it")
    if stream.T < 16:
        context.warn(f"{counted(stream.T, 'step')} only: a table with noise on each count would do as well")
