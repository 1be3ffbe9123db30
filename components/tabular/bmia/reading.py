"""A user's file becomes labelled records, in the column order of the audit file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kfp_methods import artifacts
from kfp_methods.artifacts import Array, Column, Format
from kfp_methods.components.tabular.bmia.arrays import Flags, Floats, Integers
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.errors import InputError, Problem

_TABLES = (Format.TEXT, Format.JSONL, Format.PARQUET, Format.GZIP)
_ARRAYS = [
    Array("x"),
    Array("y", ndim=1, kind="int"),
    Array("member", ndim=1, kind="bool", required=False),
]
_COLUMNS = [Column("label", "int", ge=0), Column("member", "bool", required=False)]


@dataclass(frozen=True)
class RecordsFile:
    """What a file of records holds.

    Attributes:
        field: the input that it was given as, for errors.
        records: inputs and classes.
        member: true membership [n]; None when the file does not say.
        features: names of a table's feature columns, in the order of `records.x`; () for arrays.
    """

    field: str
    records: Records
    member: Flags | None
    features: tuple[str, ...] = ()


def read_records(path: Path, field: str) -> RecordsFile:
    """Reads NPZ (or safetensors) with x, y and perhaps member, or a table with label, perhaps member, and features.

    Raises:
        InputError: the file cannot be used.
    """
    if not path.is_dir() and artifacts.format_of(path) in _TABLES:
        return _read_table(path, field)
    values = artifacts.read_arrays(path, field=field, arrays=_ARRAYS)
    _check_lengths(path, field, values)
    return RecordsFile(field, _records(field, values["x"], values["y"]), values.get("member"))


def aligned(file: RecordsFile, audit: RecordsFile) -> RecordsFile:
    """The file's records with their features in the order of the audit file's.

    Raises:
        InputError: the features are others, or some records are marked as members of the target's training set.
    """
    if file.member is not None and file.member.any():
        problem = f"{int(file.member.sum())} of its {len(file.records)} records are marked as members"
        raise InputError(
            Problem(file.field, None, problem, "Leave them out: the target must not have seen these records")
        )
    if file.features and audit.features:
        return _in_order(file, audit.features)
    theirs, audits = (tuple(one.records.x.shape[1:]) for one in (file, audit))
    if theirs != audits:
        problem = f"its records have the shape {theirs}, the audit's {audits}"
        raise InputError(Problem(file.field, None, problem, "Give the same features in the same order"))
    return file


def _read_table(path: Path, field: str) -> RecordsFile:
    frame = artifacts.read_table(path, field=field, columns=_COLUMNS, extra=Column("", "float"))
    features = frame.drop(columns=["label", "member"], errors="ignore")
    if features.shape[1] == 0:
        problem = "has no feature columns beside label and member"
        raise InputError(Problem(field, path.name, problem, "Add the numeric columns that the classifier sees"))
    records = _records(field, features.to_numpy(np.float64), frame["label"].to_numpy(np.int64))
    member = frame["member"].to_numpy(bool) if "member" in frame else None
    return RecordsFile(field, records, member, tuple(map(str, features.columns)))


def _check_lengths(path: Path, field: str, values: Mapping[str, Floats]) -> None:
    shapes = {name: values[name].shape for name in ("x", "y", "member") if name in values}
    if len(shapes["x"]) < 2 or len({shape[0] for shape in shapes.values()}) > 1 or 0 in shapes["x"]:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        remedy = "Give x of shape (n, features…) with n labels y"
        raise InputError(Problem(field, path.name, f"the arrays do not fit together ({listed})", remedy))


def _records(field: str, x: Floats, y: Integers) -> Records:
    with np.errstate(over="ignore"):
        records = Records.from_arrays(x, y)
    if not records.x.isfinite().all():
        problem = "some inputs are beyond ±3.4e38, the range of float32"
        raise InputError(Problem(field, None, problem, "Give them in another unit"))
    return records


def _in_order(file: RecordsFile, wanted: tuple[str, ...]) -> RecordsFile:
    lacking = [name for name in wanted if name not in file.features]
    surplus = [name for name in file.features if name not in wanted]
    if lacking or surplus:
        words = [f"{what} {names[:5]}" for what, names in (("lacks", lacking), ("adds", surplus)) if names]
        problem = f"its feature columns are not the audit's: it {' and '.join(words)}"
        raise InputError(Problem(file.field, None, problem, "Give the same feature columns in both"))
    order = [file.features.index(name) for name in wanted]
    return replace(file, records=Records(file.records.x[:, order], file.records.y), features=wanted)
