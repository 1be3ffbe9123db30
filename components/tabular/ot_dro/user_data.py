"""A user's table becomes rows to fit and rows to test: returns of assets, or features with a target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Column
from kfp_methods.components.tabular.ot_dro.choices import PORTFOLIOS
from kfp_methods.components.tabular.ot_dro.cones import Floats
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, listed

if TYPE_CHECKING:
    from kfp_methods.components.tabular.ot_dro.component import OtDroInputs
    from kfp_methods.context import Context

MIN_ROWS, MAX_ROWS, MAX_COLUMNS = 10, 2_000, 200
_MOST_MISSING = 0.2
_LARGEST = 1e9


@dataclass(frozen=True)
class UserData:
    """names [k]: of the columns of rows [N, k], a regression's target last; test: None without rows to test on.

    centre [k]: what was taken off the columns of a regression.
    """

    names: tuple[str, ...]
    rows: Floats
    test: Floats | None
    centre: Floats


def load(inputs: OtDroInputs, context: Context) -> UserData:
    """Reads and checks the tables.

    Raises:
        InputError: a table cannot be used, or does not fit the parameters.
    """
    assert inputs.data is not None  # noqa: S101 (the contract requires it)
    frame = _frame(inputs, context.fetch(inputs.data), inputs.data.field, context)
    test = None
    if inputs.test_data is not None:
        test = _frame(inputs, context.fetch(inputs.test_data), inputs.test_data.field, context, like=frame)
        _check_order(frame, test, inputs)
    elif inputs.test_fraction:
        cut = len(frame) - round(inputs.test_fraction * len(frame))
        frame, test = frame.iloc[:cut], frame.iloc[cut:]
    _check(inputs, frame, context)
    rows = frame.to_numpy(np.float64)
    regression = inputs.problem not in PORTFOLIOS
    centre = rows.mean(0) if regression and inputs.intercept else np.zeros(rows.shape[1])
    rest = None if test is None or test.empty else test.to_numpy(np.float64) - centre
    return UserData(tuple(map(str, frame.columns)), rows - centre, rest, centre)


def _frame(
    inputs: OtDroInputs, path: Path, field: str, context: Context, like: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Numbers by date or in the file's order; returns of portfolios, the target last of regressions."""
    wanted = [inputs.target_column] if inputs.problem not in PORTFOLIOS else []
    wanted = wanted if like is None else [str(name) for name in like.columns]
    columns = [Column(name, "float", nullable=True) for name in wanted]
    there = artifacts.read_table(path, field=field).columns
    if inputs.date_column in there:
        others = [str(name) for name in there if name not in (inputs.date_column, *wanted)]
        columns += [Column(name, "float", nullable=True) for name in others if like is None]
        frame = _dated(path, field, inputs.date_column, columns, context)
    else:
        frame = artifacts.read_table(path, field=field, columns=columns, extra=Column("", "float", nullable=True))
    frame = frame[[*like.columns]] if like is not None else _target_last(frame, inputs)
    frame = _without_missing(frame, field, context)
    if np.abs(frame.to_numpy()).max(initial=0) > _LARGEST:
        raise InputError(Problem(field, None, f"some numbers are beyond ±{_LARGEST:g}", "Give them in another unit"))
    if inputs.problem in PORTFOLIOS:
        frame = _returns(frame, inputs, field, context)
    return frame


def _dated(path: Path, field: str, name: str, columns: list[Column], context: Context) -> pd.DataFrame:
    """The table by rising date."""
    whole = artifacts.read_table(path, field=field, columns=columns)
    text = whole.pop(name)
    dates = pd.to_datetime(text if pd.api.types.is_datetime64_any_dtype(text) else text.astype(str), errors="coerce")
    if dates.isna().any():
        row = int(dates.isna().to_numpy().argmax())
        problem = f"column {name!r} holds no date in {artifacts.row_place(path, row)}"
        raise InputError(Problem(field, None, problem, "Write dates such as 2024-01-31, or give another date_column"))
    if dates.duplicated().any():
        row = int(dates.duplicated().to_numpy().argmax())
        problem = f"column {name!r} repeats a date in {artifacts.row_place(path, row)}"
        raise InputError(Problem(field, None, problem, "Give one row for each date"))
    if not dates.is_monotonic_increasing:
        context.warn("the rows are not in the order of their dates: they are sorted")
    return whole.set_axis(pd.DatetimeIndex(dates), axis=0).sort_index()


def _target_last(frame: pd.DataFrame, inputs: OtDroInputs) -> pd.DataFrame:
    if inputs.problem in PORTFOLIOS:
        return frame
    return frame[[*(name for name in frame.columns if name != inputs.target_column), inputs.target_column]]


def _without_missing(frame: pd.DataFrame, field: str, context: Context) -> pd.DataFrame:
    missing = frame.isna().any(axis=1)
    if not missing.any():
        return frame
    if missing.mean() > _MOST_MISSING:
        problem = f"{int(missing.sum())} of {counted(len(frame), 'row')} miss values"
        raise InputError(Problem(field, None, problem, "Fill them in, or leave out the columns that miss most"))
    context.warn(f"{counted(int(missing.sum()), 'row')} with missing values left out of {len(frame)}")
    return frame[~missing]


def _returns(frame: pd.DataFrame, inputs: OtDroInputs, field: str, context: Context) -> pd.DataFrame:
    if inputs.input_kind == "prices":
        if (frame <= 0).any(axis=None):
            raise InputError(Problem(field, None, "some prices are not above 0", "Leave out such assets"))
        frame = frame.pct_change().iloc[1:]
    elif len(frame) and (frame > 0).all(axis=None):
        context.warn("all values are positive: if these are prices, give input_kind=prices")
    if inputs.return_horizon > 1:
        whole = len(frame) // inputs.return_horizon * inputs.return_horizon
        groups = np.arange(whole) // inputs.return_horizon
        last = frame.index[inputs.return_horizon - 1 : whole : inputs.return_horizon]
        frame = frame.iloc[:whole].groupby(groups).sum().set_axis(last, axis=0)
    return frame


def _check_order(frame: pd.DataFrame, test: pd.DataFrame, inputs: OtDroInputs) -> None:
    both = isinstance(frame.index, pd.DatetimeIndex) and isinstance(test.index, pd.DatetimeIndex)
    if both and len(frame) and len(test) and test.index.min() <= frame.index.max():
        assert inputs.test_data is not None  # noqa: S101
        problem = f"begins on {test.index.min():%Y-%m-%d}, before data ends ({frame.index.max():%Y-%m-%d})"
        raise InputError(Problem(inputs.test_data.field, None, problem, "Give rows after those to fit"))


def _check(inputs: OtDroInputs, frame: pd.DataFrame, context: Context) -> None:
    assert inputs.data is not None  # noqa: S101
    field, (N, k) = inputs.data.field, frame.shape
    features = k if inputs.problem in PORTFOLIOS else k - 1
    if not features:
        raise InputError(Problem(field, None, "has no column of features", "Give one or more beside the target"))
    if N < MIN_ROWS:
        remedy = f"Give {MIN_ROWS} or more, or a smaller test_fraction or return_horizon"
        raise InputError(Problem(field, None, f"{counted(N, 'row')} to fit are too few", remedy))
    if N > MAX_ROWS or k > MAX_COLUMNS:
        remedy = f"Give {MAX_ROWS:,} rows and {MAX_COLUMNS} columns at most: exact transport costs their cube"
        raise InputError(Problem(field, None, f"{N:,} rows of {counted(k, 'column')} to fit are too many", remedy))
    constant = [str(name) for name in frame.columns if frame[name].nunique() < 2]
    if constant:
        problem = f"columns that are the same in all rows to fit: {listed(constant, 5)}"
        raise InputError(Problem(field, None, problem, "Leave them out"))
    lower = -inputs.max_weight if inputs.short_allowed else 0.0
    if inputs.problem in PORTFOLIOS and not features * lower <= 1 <= features * inputs.max_weight:
        problem = f"lets {counted(features, 'asset')} sum to {features * inputs.max_weight:g} at most, below 1"
        raise InputError(Problem("max_weight", inputs.max_weight, problem, f"Give {1 / features:.3g} or more"))
    if features == 1 and inputs.problem in PORTFOLIOS:
        context.warn("there is one asset: every set decides for it")
    if 2 * k > N:
        context.warn(f"{N} rows for {k} columns: covariances are hardly known")
    if inputs.gamma * inputs.n_bootstrap < 1:
        context.warn("gamma * n_bootstrap is below 1: the radius is close to the largest bootstrap's distance")
