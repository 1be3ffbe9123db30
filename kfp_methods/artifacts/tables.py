"""A CSV, TSV, JSON lines or Parquet file becomes a data frame whose columns are what the method declared."""

from __future__ import annotations

import difflib
import gzip
import mmap
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from kfp_methods.artifacts.columns import Column, checked
from kfp_methods.artifacts.delimited import read_delimited
from kfp_methods.artifacts.files import GIB, Source, readable_file, too_large
from kfp_methods.artifacts.formats import HEAD, Format, expect, format_of_head
from kfp_methods.artifacts.jsonlines import read_jsonl
from kfp_methods.errors import InputError, Problem

MAX_TABLE_BYTES = 4 * GIB
_TABULAR = frozenset({Format.TEXT, Format.JSONL, Format.PARQUET, Format.GZIP})
_WRITE = "Write it with pandas: frame.to_parquet(path, index=False) or frame.to_csv(path, index=False)"
_TEXT_KINDS = ("str", "category")
_CHUNK = 2**20


def read_table(
    path: Path,
    *,
    field: str,
    columns: Sequence[Column] = (),
    min_rows: int = 1,
    max_rows: int | None = None,
    extra: Literal["allow", "forbid"] | Column = "allow",
    max_bytes: int = MAX_TABLE_BYTES,
) -> pd.DataFrame:
    """The table in a CSV, TSV, JSON lines (each also gzipped) or Parquet file, checked.

    The format is read from the content. Delimited text is UTF-8 with a header row; comma, tab, semicolon and
    vertical bar are recognised (see `read_delimited`), decimal commas are refused. Rows are counted from 1,
    the header and blank lines apart.

    Args:
        field: the input's name, for errors.
        columns: what the table must hold.
        extra: what of columns that are not declared: "allow" keeps them as they are, "forbid" refuses them,
            and a `Column` is the rule for each of them (its own name is not used).
        max_bytes: bound on the file and on what it unpacks to.

    Returns:
        The columns in the file's order. Declared kinds become float64, int64, bool, str and category; an int
        or bool column that may have missing values becomes Int64 or boolean. Missing values of others are
        NaN.

    Raises:
        InputError: with an entry for each thing wrong in the file.
    """
    source = readable_file(path, field=field, max_bytes=max_bytes)
    found = expect(source, _TABULAR, instead=_WRITE)
    if found is Format.PARQUET:
        table, text = _read_parquet(source, max_bytes, max_rows), False
    else:
        table, text = _read_text(source, found, columns, extra, max_bytes)
    problems = _shape_problems(source, table, columns, min_rows, max_rows, extra)
    if problems and (table.num_rows == 0 or len(set(table.column_names)) < table.num_columns):
        raise InputError(problems)
    return _frame(source, table, columns, extra, problems, text=text)


def _read_text(
    source: Source, found: Format, columns: Sequence[Column], extra: str | Column, max_bytes: int
) -> tuple[pa.Table, bool]:
    data: mmap.mmap | bytes
    if found is Format.GZIP:
        data = _gunzipped(source, max_bytes)
        name = source.path.name.removesuffix(".gz")
        found = format_of_head(data[:HEAD], size=len(data), name=name)
        if found not in (Format.TEXT, Format.JSONL):
            raise source.error(f"unpacks to {found}", _WRITE)
    else:
        with source.path.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if found is Format.JSONL:
        return read_jsonl(source, data), False
    as_text = [column.name for column in columns if column.kind in _TEXT_KINDS]
    known = [column.name for column in columns]
    rest_is_text = isinstance(extra, Column) and extra.kind in _TEXT_KINDS
    return read_delimited(source, data, text=as_text, known=known, rest_is_text=rest_is_text), True


def _gunzipped(source: Source, max_bytes: int) -> bytes:
    unpacked = bytearray()
    try:
        with gzip.open(source.path) as stream:
            while block := stream.read(_CHUNK):
                unpacked += block
                if len(unpacked) > max_bytes:
                    raise too_large(source, len(unpacked), max_bytes, "unpacks to at least")
    except EOFError:
        raise source.error("is a gzip file cut short", "Copy or write it again") from None
    except (OSError, zlib.error):
        raise source.error("is a damaged gzip file", "Copy or write it again") from None
    if not unpacked:
        raise source.error("unpacks to nothing (0 bytes)", "Give a file with content")
    return bytes(unpacked)


def _read_parquet(source: Source, max_bytes: int, max_rows: int | None) -> pa.Table:
    try:
        with pa.parquet.ParquetFile(source.path) as file:
            about = file.metadata
            groups = [about.row_group(index).total_byte_size for index in range(about.num_row_groups)]
            # Run lengths pack any number of equal values into few bytes: bound the cells too, 8 bytes each.
            size = max(sum(groups), about.num_rows * about.num_columns * 8)
            if size > max_bytes:
                raise too_large(source, size, max_bytes, "unpacks to")
            if max_rows is not None and about.num_rows > max_rows:
                raise InputError(_too_many_rows(source, about.num_rows, max_rows))
            table = file.read()
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError):
        raise source.error("is a damaged Parquet file, perhaps cut short", "Copy or write it again") from None
    # An index that pandas stored without a name is no column of the user's.
    unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed).replace_schema_metadata(None)


def _shape_problems(
    source: Source,
    table: pa.Table,
    columns: Sequence[Column],
    min_rows: int,
    max_rows: int | None,
    extra: Literal["allow", "forbid"] | Column,
) -> list[Problem]:
    names = table.column_names
    problems = [
        source.problem(f"column {name!r} appears {count} times", "Give each column its own name")
        for name, count in Counter(names).items()
        if count > 1
    ]
    declared = {column.name for column in columns}
    problems += [
        _missing_column(source, column.name, [name for name in names if name not in declared])
        for column in columns
        if column.required and column.name not in names
    ]
    unexpected = [name for name in names if name not in declared]
    if extra == "forbid" and unexpected:
        problems.append(
            source.problem(
                f"has columns that are not expected: {_listed(unexpected)}",
                f"Leave them out; the columns are {_listed(sorted(declared))}",
            )
        )
    if table.num_rows < min_rows:
        problems.append(
            source.problem(f"has {_rows(table.num_rows)}, too few", f"Give at least {_rows(min_rows)} of data")
        )
    if max_rows is not None and table.num_rows > max_rows:
        problems.append(_too_many_rows(source, table.num_rows, max_rows))
    return problems


def _frame(
    source: Source,
    table: pa.Table,
    columns: Sequence[Column],
    extra: Literal["allow", "forbid"] | Column,
    problems: list[Problem],
    *,
    text: bool,
) -> pd.DataFrame:
    rules = {column.name: column for column in columns}
    if isinstance(extra, Column):
        rules |= {name: replace(extra, name=name) for name in table.column_names if name not in rules}
    nullable: dict[str, pa.ChunkedArray] = {}
    for index, name in enumerate(table.column_names):
        if name not in rules:
            continue
        values, found = checked(rules[name], table.column(index), text=text)
        problems += [source.problem(f"column {name!r}: {item.problem}", item.remedy) for item in found]
        if values is not None:
            table = table.set_column(index, name, values)
            if rules[name].nullable and rules[name].kind in ("int", "bool"):
                nullable[name] = values
    if problems:
        raise InputError(problems)
    try:
        frame = table.to_pandas(date_as_object=False)
    except (pa.ArrowException, ValueError, OverflowError):
        raise source.error("holds values that pandas cannot represent", _WRITE) from None
    types = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    for name, values in nullable.items():
        frame[name] = values.to_pandas(types_mapper=types.get)
    return frame


def _missing_column(source: Source, name: str, others: Sequence[str]) -> Problem:
    plain = {other.strip().casefold(): other for other in reversed(others)}
    near = difflib.get_close_matches(name.strip().casefold(), list(plain), n=1, cutoff=0.7)
    remedy = (
        f"Rename {plain[near[0]]!r} to {name!r}" if near else f"Add it; the file's other columns: {_listed(others)}"
    )
    if others and all(other.isdecimal() for other in others):
        remedy = "Put a first row with the columns' names: its first row holds numbers"
    return source.problem(f"column {name!r} is missing", remedy)


def _too_many_rows(source: Source, count: int, max_rows: int) -> Problem:
    return source.problem(f"has {_rows(count)}, too many", f"Give at most {_rows(max_rows)}")


def _rows(count: int) -> str:
    return f"{count} row" + "s" * (count != 1)


def _listed(names: Sequence[str], limit: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:limit])
    return (shown + f" and {len(names) - limit} more" * (len(names) > limit)) or "none"
