"""A user's table or arrays become rows with inputs, concepts and targets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Array, Column, Format
from kfp_methods.components.tabular.mcbe.data import PARTS, Data, Floats, Ints, split
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, listed, token

if TYPE_CHECKING:
    from kfp_methods.components.tabular.mcbe.component import McbeInputs
    from kfp_methods.context import Context

MIN_ROWS, MAX_ROWS, MANY_CONCEPTS, MOST_CLASSES = 30, 1_000_000, 64, 1_000
_FEW = 10  # whole numbers of y up to as many are classes
_LARGEST = 1e9
_SPLITS = {"train": 0, "validation": 1, "val": 1, "valid": 1, "test": 2}


def load(inputs: McbeInputs, context: Context) -> Data:
    """Reads and checks the rows.

    Raises:
        InputError: they cannot be used, or do not fit the parameters.
    """
    assert inputs.data is not None  # noqa: S101 (the contract requires it)
    field, path = inputs.data.field, context.fetch(inputs.data)
    if artifacts.format_of(path) is Format.NPZ:
        x, c, y, c_names, y_names, part, kinds = _arrays(path, field)
    else:
        x, c, y, c_names, y_names, part, kinds = _table(path, field, inputs)
    c, c_names, kinds = _without_constant(c, c_names, kinds, field, context)
    binary = _binary(c, c_names, kinds, field)
    n = len(c)
    if n < MIN_ROWS:
        raise InputError(Problem(field, None, f"{counted(n, 'row')} are too few", f"Give {MIN_ROWS} or more"))
    first, middle, last = inputs.split_fractions
    part = split(n, (first, middle, last), inputs.seed) if part is None else part
    _check_parts(part, field)
    target, classes = _target(y, inputs, field)
    data = Data(x, c, target, part, c_names, y_names, binary, classes)
    _check(data, inputs, field, context)
    return data


Raw = tuple[
    Any, Floats, pd.DataFrame, tuple[str, ...], tuple[str, ...], Ints | None, tuple[str, ...] | None
]  # fmt: skip


def _table(path: Path, field: str, inputs: McbeInputs) -> Raw:
    there = [str(name) for name in artifacts.read_table(path, field=field).columns]
    x_names = [name for name in there if name.startswith("x_")]
    c_names = [name for name in there if name.startswith("c_")]
    y_names = [name for name in there if name == "y" or name.startswith("y_")]
    for names, what in ((x_names, "inputs x_*"), (c_names, "concepts c_*"), (y_names, "y")):
        if not names:
            remedy = f"The file's columns: {listed(there, 10)}"
            raise InputError(Problem(field, None, f"has no column of {what}", remedy))
    numbers = [Column(name, "float", ge=-_LARGEST, le=_LARGEST) for name in (*x_names, *c_names)]
    numbers += [Column("split", "str")] if "split" in there else []
    frame = artifacts.read_table(path, field=field, columns=numbers, max_rows=MAX_ROWS)
    targets = frame[y_names]
    if targets.isna().any(axis=None):
        row = int(targets.isna().any(axis=1).to_numpy().argmax())
        problem = f"column 'y' is missing in {artifacts.row_place(path, row)}"
        raise InputError(Problem(field, None, problem, "Fill it in or leave that row out"))
    part = _named_parts(frame["split"], field, path) if "split" in there else None
    x = frame[x_names].to_numpy(np.float32)
    concepts = tuple(name.removeprefix("c_") for name in c_names)
    shown = tuple(name.removeprefix("y_") for name in y_names)
    return x, frame[c_names].to_numpy(np.float64), targets, concepts, shown, part, None


def _named_parts(column: pd.Series, field: str, path: Path) -> Ints:
    found = column.str.strip().str.lower().map(_SPLITS)
    if found.isna().any():
        row = int(found.isna().to_numpy().argmax())
        problem = f"column 'split': {token(str(column.iloc[row]))} in {artifacts.row_place(path, row)}"
        raise InputError(Problem(field, None, problem, "Write train, validation or test"))
    return np.asarray(found, np.int64)


def _arrays(path: Path, field: str) -> Raw:
    labels = [Array(name, ndim=1, kind="str", required=False) for name in ("c_names", "y_names", "concept_types")]
    wanted = [Array("x"), Array("c", ndim=2), Array("y"), *labels]
    values = artifacts.read_arrays(path, field=field, arrays=wanted)
    x, c, y = values["x"].astype(np.float32), values["c"].astype(np.float64), values["y"]
    if x.ndim not in (2, 4) or not len(x) == len(c) == len(y) or y.ndim > 2 or not c.shape[1] or not x[:1].size:
        problem = f"x {x.shape}, c {c.shape} and y {y.shape} do not fit together"
        raise InputError(Problem(field, None, problem, "Give x (N, D) or (N, C, H, W), c (N, K) and y (N) or (N, O)"))
    targets = pd.DataFrame(y if y.ndim == 2 else y[:, None])
    c_names = _names(values.get("c_names"), c.shape[1], "c_names", "concept", field)
    y_names = _names(values.get("y_names"), targets.shape[1], "y_names", "y", field)
    kinds = values.get("concept_types")
    if kinds is not None and (len(kinds) != c.shape[1] or not set(kinds.tolist()) <= {"binary", "numeric"}):
        remedy = "Give binary or numeric for each concept"
        raise InputError(Problem(field, None, "concept_types does not fit the concepts", remedy))
    return x, c, targets, c_names, y_names, None, None if kinds is None else tuple(map(str, kinds))


def _names(given: Any, count: int, array: str, word: str, field: str) -> tuple[str, ...]:
    if given is None:
        return tuple(word if count == 1 and word == "y" else f"{word} {i}" for i in range(1, count + 1))
    if len(given) != count or len(set(given.tolist())) != count:
        raise InputError(Problem(field, None, f"{array} does not name {count} columns", "Give each its own name"))
    return tuple(map(str, given))


def _without_constant(
    c: Floats, names: tuple[str, ...], kinds: tuple[str, ...] | None, field: str, context: Context
) -> tuple[Floats, tuple[str, ...], tuple[str, ...] | None]:
    constant = np.ptp(c, axis=0) == 0
    if constant.all():
        raise InputError(Problem(field, None, "no concept varies", "Give concepts that differ between rows"))
    if constant.any():
        gone = [name for name, flat in zip(names, constant, strict=True) if flat]
        context.warn(f"concepts that are the same in all rows are left out: {listed(gone, 5)}")
        names = tuple(name for name, flat in zip(names, constant, strict=True) if not flat)
        kinds = None if kinds is None else tuple(k for k, flat in zip(kinds, constant, strict=True) if not flat)
    return c[:, ~constant], names, kinds


def _binary(c: Floats, names: tuple[str, ...], kinds: tuple[str, ...] | None, field: str) -> tuple[bool, ...]:
    """0/1 concepts are binary, unless the file says otherwise."""
    found = np.asarray(np.isin(c, (0.0, 1.0)).all(0))
    if kinds is None:
        return tuple(map(bool, found))
    wrong = [
        name for name, kind, is_binary in zip(names, kinds, found, strict=True) if kind == "binary" and not is_binary
    ]
    if wrong:
        problem = f"binary concepts with other values than 0 and 1: {listed(wrong, 5)}"
        raise InputError(Problem(field, None, problem, "Write 0 and 1, or call them numeric"))
    return tuple(kind == "binary" for kind in kinds)


def _check_parts(part: Ints, field: str) -> None:
    for number, name in enumerate(PARTS):
        if (count := int((part == number).sum())) < 2:
            problem = f"has {counted(count, 'row')} of split {name!r}"
            raise InputError(Problem(field, None, problem, "Give some of train, validation and test"))


def _target(y: pd.DataFrame, inputs: McbeInputs, field: str) -> tuple[Any, tuple[str, ...]]:
    """Numbers [n, O], or classes [n] with their names."""
    text = not all(pd.api.types.is_numeric_dtype(kind) for kind in y.dtypes)
    whole = not text and y.shape[1] == 1 and bool((y == np.round(y)).all(axis=None)) and y.iloc[:, 0].nunique() <= _FEW
    if inputs.task == "classification" or (inputs.task == "auto" and (text or whole)):
        if y.shape[1] > 1:
            raise InputError(Problem(field, None, "has several targets of classes", "Give one column y"))
        labels = y.iloc[:, 0]
        whole_numbers = not text and bool((labels == np.round(labels)).all())
        codes, names = pd.factorize(labels.astype(np.int64) if whole_numbers else labels, sort=True)
        return codes.astype(np.int64), tuple(map(str, names))
    if text:
        raise InputError(Problem("task", inputs.task, "y holds text", "Give task=classification, or numbers"))
    values = y.to_numpy(np.float64)
    if not np.isfinite(values).all() or np.abs(values).max() > _LARGEST:
        raise InputError(Problem(field, None, f"y holds numbers beyond ±{_LARGEST:g}", "Give them in another unit"))
    return values, ()


def _check(data: Data, inputs: McbeInputs, field: str, context: Context) -> None:
    train = data.rows(0)
    if data.classes:
        if len(data.classes) > MOST_CLASSES:
            raise InputError(Problem(field, None, f"has {len(data.classes)} classes", "Give numbers, task=regression"))
        counts = np.bincount(data.y[train], minlength=len(data.classes))
        if len(data.classes) < 2 or (counts < 2).any():
            few = [name for name, count in zip(data.classes, counts, strict=True) if count < 2]
            problem = f"classes with fewer than 2 training rows: {listed(few or data.classes, 5)}"
            raise InputError(Problem(field, None, problem, "Give more rows of them, or leave them out"))
    elif (np.ptp(data.y[train], axis=0) == 0).any():
        raise InputError(Problem(field, None, "y is the same in all training rows", "Give targets that differ"))
    if max(inputs.n_experts) > len(train) / 20:
        problem = f"is too many for {counted(len(train), 'training row')}"
        raise InputError(
            Problem("n_experts", max(inputs.n_experts), problem, f"Give {max(1, len(train) // 20)} at most")
        )
    if len(data.c_names) > MANY_CONCEPTS and inputs.variant != "linear":
        context.warn(f"{len(data.c_names)} concepts: symbolic regression takes long; variant=linear does not")
