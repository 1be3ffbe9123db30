"""Named arrays from a NPZ or safetensors file or from a table, whichever a user has; checked alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from kfp_methods.artifacts import Array, Column, Format, format_of, read_arrays, read_table
from kfp_methods.errors import InputError, Problem

_ARRAYS = (Format.NPZ, Format.NPY, Format.SAFETENSORS)


def read_columns(path: Path, field: str, arrays: Sequence[Array]) -> dict[str, np.ndarray]:
    """The declared arrays that the file holds, by name; the first axis of the first one counts rows.

    A table (CSV, Parquet, JSON lines) holds those with that axis. In it an array of one axis is a column; one of two
    axes is either a column of lists of one length, or columns named by number: observations_0, observations_1, …

    Raises:
        InputError: with an entry for each thing wrong.
    """
    if path.is_dir() or format_of(path) in _ARRAYS:
        found = read_arrays(path, field=field, arrays=arrays)
        return {array.name: found[array.name] for array in arrays if array.name in found}
    rows = arrays[0].shape[0] if arrays[0].shape else None
    arrays = [array for array in arrays if array.shape and array.shape[0] == rows]
    scalars = [array for array in arrays if len(array.shape or ()) == 1]
    columns = [Column(array.name, array.kind, required=array.required) for array in scalars]
    frame = read_table(path, field=field, columns=columns)
    found, problems = {a.name: frame[a.name].to_numpy() for a in scalars if a.name in frame}, []
    for array in arrays:
        if array in scalars:
            continue
        matrix = _matrix(frame, array)
        if isinstance(matrix, np.ndarray):
            found[array.name] = matrix
        elif array.required or matrix is not None:
            words, remedy = matrix or (
                "is missing",
                f"Give lists in {array.name}, or {array.name}_0, {array.name}_1, …",
            )
            problems.append(Problem(field, path.name, f"column {array.name!r} {words}", remedy))
    if problems or (problems := _uneven(arrays, found, field, path)):
        raise InputError(problems)
    return found


def _matrix(frame: pd.DataFrame, array: Array) -> np.ndarray | tuple[str, str] | None:
    """Rows of an array of two axes; what is wrong with them and the remedy; None when there are none."""
    if array.name in frame:
        try:
            matrix = np.stack([np.asarray(row, np.float64) for row in frame[array.name]])
        except (TypeError, ValueError):
            return "holds something else than lists of numbers of one length", "Give a list of numbers in each row"
        if matrix.ndim != 2:
            return "holds numbers where lists are expected", f"Give lists, or columns {array.name}_0, {array.name}_1, …"
    else:
        width = 0
        while f"{array.name}_{width}" in frame:
            width += 1
        if width == 0:
            return None
        numbers = frame[[f"{array.name}_{index}" for index in range(width)]].apply(pd.to_numeric, errors="coerce")
        matrix = numbers.to_numpy(np.float64)
    if array.finite and not np.isfinite(matrix).all():
        row, entry = np.argwhere(~np.isfinite(matrix))[0]
        return f"is missing, no number or infinite in row {row + 1}, entry {entry}", "Give finite numbers"
    return matrix


def _uneven(arrays: Sequence[Array], found: dict[str, np.ndarray], field: str, path: Path) -> list[Problem]:
    """Arrays whose declared axes of one name differ in length."""
    lengths: dict[str, tuple[int, str]] = {}
    problems = []
    for array in arrays:
        shape = found[array.name].shape if array.name in found else ()
        for name, length in zip(array.shape or (), shape, strict=False):
            expected, owner = lengths.setdefault(str(name), (length, array.name))
            if length != expected:
                problem = f"{array.name!r} has {length} entries in a row where {owner!r} has {expected}"
                problems.append(Problem(field, path.name, problem, "Give both the same number of entries"))
    return problems
