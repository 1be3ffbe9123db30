"""A user's tables become rows to fit and to test, with the scaling that their bounds or, on request, the data give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Column
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats
from kfp_methods.components.tabular.iterative_hessian_mixing.sample import Rows, split
from kfp_methods.components.tabular.iterative_hessian_mixing.scaling import Scaling
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, listed

if TYPE_CHECKING:
    from kfp_methods.components.tabular.iterative_hessian_mixing.component import IterativeHessianMixingInputs
    from kfp_methods.context import Context

MIN_ROWS = 50
_LARGEST = 1e100  # squares of larger numbers, summed, overflow


@dataclass(frozen=True)
class UserData:
    """Rows to fit, rows to test on (None for a release), and how both are scaled."""

    training: Rows
    test: Rows | None
    scaling: Scaling


def load(inputs: IterativeHessianMixingInputs, context: Context) -> UserData:
    """Reads and checks the tables.

    Raises:
        InputError: a table cannot be used, or does not fit the parameters.
    """
    assert inputs.data is not None  # noqa: S101 (the contract requires it)
    field, path = inputs.data.field, context.fetch(inputs.data)
    frame = _read(path, field, inputs)
    target = _target(field, frame, inputs)
    if inputs.person:
        _warn_of_repeats(frame.pop(inputs.person), context, inputs)
    rows = _rows(field, frame, target, MIN_ROWS)
    training, test = (rows, None) if inputs.release else _parts(inputs, context, rows)
    _check(field, training)
    scaling = _scaling(field, training, inputs)
    _check_clipped(training, scaling, inputs, context)
    _warn_of_delta(inputs, len(training.y), context)
    return UserData(training, test, scaling)


def _read(path: Path, field: str, inputs: IterativeHessianMixingInputs) -> pd.DataFrame:
    columns = [Column(inputs.person, "str", nullable=True)] if inputs.person else []
    columns += [Column(inputs.target)] if inputs.target else []
    return artifacts.read_table(path, field=field, columns=columns, extra=Column("", "float"))


def _target(field: str, frame: pd.DataFrame, inputs: IterativeHessianMixingInputs) -> str:
    names = [str(name) for name in frame.columns if name != inputs.person]
    if len(names) < 2:
        raise InputError(Problem(field, None, "has no feature beside the target", "Give 2 numeric columns or more"))
    return inputs.target or names[-1]


def _rows(field: str, frame: pd.DataFrame, target: str, least: int) -> Rows:
    if len(frame) < least:
        problem = f"{counted(len(frame), 'row')} {'is' if len(frame) == 1 else 'are'} too few"
        raise InputError(Problem(field, None, problem, f"Give {counted(least, 'row')} or more"))
    features = frame.drop(columns=target)
    rows = Rows(
        tuple(map(str, features.columns)), target, features.to_numpy(np.float64), frame[target].to_numpy(np.float64)
    )
    if max(np.abs(rows.x).max(), np.abs(rows.y).max()) > _LARGEST:
        raise InputError(Problem(field, None, f"some numbers are beyond ±{_LARGEST:g}", "Give them in another unit"))
    return rows


def _parts(inputs: IterativeHessianMixingInputs, context: Context, rows: Rows) -> tuple[Rows, Rows]:
    if inputs.test_data is None:
        return split(rows, inputs.seed)
    field, names = inputs.test_data.field, [*rows.features, rows.target]
    columns = [Column(name) for name in names]
    frame = artifacts.read_table(context.fetch(inputs.test_data), field=field, columns=columns)
    return rows, _rows(field, frame[names], rows.target, 2)


def _check(field: str, rows: Rows) -> None:
    n, m = rows.x.shape
    if n <= m + 1:
        problem = f"{n} rows to fit are no more than the {m + 1} coefficients"
        raise InputError(Problem(field, None, problem, "Give more rows or fewer columns"))
    constant = [name for name, column in zip(rows.features, rows.x.T, strict=True) if np.ptp(column) == 0]
    constant += [rows.target] if np.ptp(rows.y) == 0 else []
    if constant:
        problem = f"{_columns(constant)} the same in all rows to fit"
        raise InputError(Problem(field, None, problem, "Leave constant columns out"))


def _scaling(field: str, rows: Rows, inputs: IterativeHessianMixingInputs) -> Scaling:
    if inputs.data_dependent_scaling:
        return Scaling.from_data(rows.x, rows.y)
    given: Mapping[str, Sequence[float]] = inputs.feature_bounds
    problems = []
    if missing := [name for name in rows.features if name not in given]:
        remedy = "Give [low, high] for each, known without the data; or data_dependent_scaling=true to try out"
        problems.append(Problem("feature_bounds", None, f"no bounds for {listed(missing, 5)}", remedy))
    if unknown := [name for name in given if name not in rows.features]:
        problem = f"no feature is named {listed(unknown, 5)}"
        problems.append(Problem("feature_bounds", None, problem, f"The features: {listed(rows.features, 10)}"))
    if problems:
        raise InputError(problems)
    bounds: Floats = np.array([given[name] for name in rows.features], np.float64)
    low, high = inputs.target_bounds
    row_clip = inputs.row_clip if isinstance(inputs.row_clip, float) else None
    return Scaling.from_bounds(bounds, (low, high), intercept=inputs.fit_intercept, row_clip=row_clip)


def _check_clipped(rows: Rows, scaling: Scaling, inputs: IterativeHessianMixingInputs, context: Context) -> None:
    """Raises InputError where bounds leave nothing of a column; tells the owner what they clip.

    A release keeps silent about how much, for its report may be published.
    """
    X, y = scaling.rows(rows.x, clip=True), scaling.targets(rows.y, clip=True)
    lost = [name for name, column in zip(rows.features, X.T, strict=False) if np.ptp(column) == 0]
    if lost:
        problem = f"every value of {listed(lost, 5)} lies outside, at one end"
        raise InputError(Problem("feature_bounds", None, problem, "Give bounds in the units of the data"))
    if np.ptp(y) == 0:
        problem = f"every value of {rows.target} lies outside, at one end"
        raise InputError(Problem("target_bounds", inputs.target_bounds, problem, "Give bounds in the data's units"))
    if inputs.release or not scaling.public:
        return
    features, targets = scaling.outside(rows.x, rows.y)
    if features or targets:
        context.warn(f"bounds clip {features:.2%} of the features' values and {targets:.2%} of the targets'")
    if scaling.clip_rows and (share := scaling.shortened(rows.x)):
        context.warn(f"row_clip shortens {share:.2%} of the rows")


def _warn_of_repeats(person: pd.Series, context: Context, inputs: IterativeHessianMixingInputs) -> None:
    repeats = int(person.duplicated().sum())
    if repeats:
        count = "" if inputs.release else f" ({repeats:,} rows repeat one)"
        context.warn(f"some persons have several rows{count}: the guarantee is for a row, not for a person")


def _warn_of_delta(inputs: IterativeHessianMixingInputs, n: int, context: Context) -> None:
    if isinstance(inputs.delta, float) and inputs.delta >= 1 / n:
        context.warn(
            f"delta = {inputs.delta:g} is 1 / rows or more: a mechanism that publishes one person's row would meet it"
        )


def _columns(names: Sequence[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {listed(names, 5)} {'are' if len(names) > 1 else 'is'}"
