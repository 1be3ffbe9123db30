"""A user's tables become rows of levels, with the names and codes of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Column
from kfp_methods.components.tabular.fire.predictive import Floats
from kfp_methods.components.tabular.fire.two_stage import Rows
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, listed, token

if TYPE_CHECKING:
    from kfp_methods.components.tabular.fire.component import FireInputs
    from kfp_methods.context import Context

LEAST_ROWS = 3
_LEAST_TESTED = 2
MOST_ROWS = 1_000_000
_MOST_CATEGORIES, _SHOWN = 50, 3
_MOST_CONVOLVED = 20_000
_LARGEST = 1e100  # squares of larger numbers, summed, overflow
_OWN = ("y", "fidelity", "split")


@dataclass(frozen=True)
class Features:
    """Columns by name; a text column's categories stand for 0, 1, 2, … in their alphabetical order."""

    names: tuple[str, ...]
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def numbers(self, frame: pd.DataFrame) -> Floats:
        """[rows, features] of a frame that holds these columns; an unknown category becomes NaN."""
        columns = [
            frame[name].astype(str).map({text: code for code, text in enumerate(self.categories[name])}).to_numpy(float)
            if name in self.categories
            else frame[name].to_numpy(np.float64)
            for name in self.names
        ]
        return np.column_stack(columns)


@dataclass(frozen=True)
class UserData:
    """training and, where some of the highest level are held out, test [m]; query: rows to predict, as given.

    levels: the fidelities as the user numbers them, rising; Rows count them from 0.
    """

    features: Features
    levels: tuple[int, ...]
    training: Rows
    X_test: Floats
    y_test: Floats
    query: pd.DataFrame | None
    X_query: Floats
    held_out_at_random: bool

    @property
    def everything(self) -> Rows:
        """Training rows and held-out ones, for what is predicted in the end."""
        X, y = np.vstack([self.training.X, self.X_test]), np.concatenate([self.training.y, self.y_test])
        top = np.full(len(self.y_test), len(self.levels) - 1)
        return Rows(X, y, np.concatenate([self.training.level, top]))


def load(inputs: FireInputs, context: Context) -> UserData:
    """Reads and checks the tables.

    Raises:
        InputError: a table cannot be used.
    """
    assert inputs.table is not None  # noqa: S101 (the contract requires it)
    name, path = inputs.table.field, context.fetch(inputs.table)
    frame = _typed(path, name)
    features = _features(frame, name)
    levels = tuple(sorted(int(level) for level in frame["fidelity"].unique()))
    if len(levels) < 2:
        problem = f"column 'fidelity' has one level only, {levels[0]}"
        raise InputError(Problem(name, None, problem, "Give rows of a cheaper level too, with a lower number"))
    rows = Rows(features.numbers(frame), frame["y"].to_numpy(float), np.searchsorted(levels, frame["fidelity"]))
    if max(np.abs(rows.X).max(), np.abs(rows.y).max()) > _LARGEST:
        raise InputError(Problem(name, None, f"some numbers are beyond ±{_LARGEST:g}", "Give them in another unit"))
    test = _test_rows(frame, rows, inputs, name)
    if inputs.mode == "benchmark":
        _check_budgets(int((rows.level == rows.level.max()).sum()), inputs)
    training = rows.take(~test)
    _check_counts(training, levels, name, inputs)
    _warn_of_repeats(training, context)
    if not np.ptp(training.X, axis=0).any():
        context.warn("no feature varies: every prediction is the same")
    if inputs.quantile_mode == "convolve" and test.sum() > _MOST_CONVOLVED:
        problem = f"takes too much memory for {int(test.sum()):,} held-out rows"
        raise InputError(Problem("quantile_mode", "convolve", problem, "Hold fewer out, or give quantile_mode=normal"))
    query, X_query = _query(inputs, context, features)
    return UserData(features, levels, training, rows.X[test], rows.y[test], query, X_query, "split" not in frame)


def _typed(path: Path, name: str) -> pd.DataFrame:
    """Text columns as categories, others as finite numbers."""
    declared = [Column("y"), Column("fidelity", "int"), Column("split", "str", required=False,
                                                               allowed=("train", "test"))]  # fmt: skip
    first = artifacts.read_table(path, field=name, columns=declared, max_rows=MOST_ROWS)
    return _read(path, name, declared, [str(column) for column in first.columns if column not in _OWN], first)


def _read(
    path: Path, name: str, declared: Sequence[Column], features: Sequence[str], like: pd.DataFrame
) -> pd.DataFrame:
    kinds = [Column(one, "float" if pd.api.types.is_numeric_dtype(like[one]) else "str") for one in features]
    return artifacts.read_table(path, field=name, columns=[*declared, *kinds], max_rows=MOST_ROWS)


def _features(frame: pd.DataFrame, name: str) -> Features:
    names = tuple(str(column) for column in frame.columns if column not in _OWN)
    if not names:
        raise InputError(
            Problem(name, None, "has no feature beside y and fidelity", "Give one column of inputs or more")
        )
    categories = {
        one: tuple(sorted(frame[one].astype(str).unique()))
        for one in names
        if not pd.api.types.is_numeric_dtype(frame[one])
    }
    for one, found in categories.items():
        if len(found) > _MOST_CATEGORIES:
            problem = f"column {token(one)} is text with {len(found):,} different values"
            remedy = f"Give numbers, {_MOST_CATEGORIES} categories at most, or leave the column out"
            raise InputError(Problem(name, None, problem, remedy))
    return Features(names, categories)


def _test_rows(frame: pd.DataFrame, rows: Rows, inputs: FireInputs, name: str) -> np.ndarray:
    top = rows.level == rows.level.max()
    if "split" in frame:
        test = (frame["split"] == "test").to_numpy()
        if (test & ~top).any():
            problem = f"{counted(int((test & ~top).sum()), 'row')} of a lower fidelity stand in the split test"
            raise InputError(Problem(name, None, problem, "Test on the highest fidelity alone: set them to train"))
        return test
    test = np.zeros(len(frame), bool)
    high = np.flatnonzero(top)
    n = min(round(inputs.test_fraction * len(high)), max(0, len(high) - LEAST_ROWS))
    test[np.random.default_rng((inputs.seed, 1, 1)).permutation(high)[:n]] = True
    return test


def _check_counts(training: Rows, levels: Sequence[int], name: str, inputs: FireInputs) -> None:
    counts = np.bincount(training.level, minlength=len(levels))
    few = [f"{levels[i]} (has {counted(int(count), 'row')})" for i, count in enumerate(counts) if count < LEAST_ROWS]
    if few:
        more = f" and {len(few) - _SHOWN} more" * (len(few) > _SHOWN)
        problem = f"too few rows to learn from at fidelity {', '.join(few[:_SHOWN])}{more}"
        remedy = f"Give {LEAST_ROWS} or more of each level" + (
            ", or a smaller test_fraction" * bool(inputs.test_fraction)
        )
        raise InputError(Problem(name, None, problem, remedy))


def _check_budgets(n_high: int, inputs: FireInputs) -> None:
    largest = max(inputs.hf_budgets)
    if largest + _LEAST_TESTED > n_high:
        problem = f"leaves fewer than {_LEAST_TESTED} of the {n_high} costly rows to test on"
        raise InputError(Problem("hf_budgets", largest, problem, f"Give {n_high - _LEAST_TESTED} at most"))


def _warn_of_repeats(training: Rows, context: Context) -> None:
    frame = pd.DataFrame(training.X).assign(level=training.level, y=training.y)
    points = list(frame.columns[:-1])
    differ = frame.groupby(points)["y"].nunique()
    if (several := int((differ > 1).sum())) > 0:
        context.warn(f"{counted(several, 'point')} occur with different y at one fidelity: taken as noise")


def _query(inputs: FireInputs, context: Context, features: Features) -> tuple[pd.DataFrame | None, Floats]:
    if inputs.query is None:
        return None, np.empty((0, len(features.names)))
    name = inputs.query.field
    columns = [Column(one, "str" if one in features.categories else "float") for one in features.names]
    frame = artifacts.read_table(context.fetch(inputs.query), field=name, columns=columns, max_rows=MOST_ROWS)
    for one, known in features.categories.items():
        if unknown := sorted(set(frame[one].astype(str)) - set(known)):
            problem = f"column {token(one)} holds {listed(unknown, 5)}, which the table does not"
            raise InputError(Problem(name, None, problem, f"Known are {listed(known, 10)}"))
    return frame, features.numbers(frame)
