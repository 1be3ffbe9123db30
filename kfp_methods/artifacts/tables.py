"""A CSV, TSV, JSON lines or Parquet file becomes a data frame whose columns are what the method declared."""

from __future__ import annotations

import difflib
import gzip
import mmap
import zlib
from collections import Counter
from collections.abc import Collection, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from kfp_methods import wording
from kfp_methods.artifacts.columns import Column, Finding, checked
from kfp_methods.artifacts.delimited import read_delimited
from kfp_methods.artifacts.files import GIB, Source, readable_file, too_large
from kfp_methods.artifacts.formats import HEAD, Format, expect, format_of_head
from kfp_methods.artifacts.jsonlines import read_jsonl
from kfp_methods.artifacts.places import row_places
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, token

MAX_TABLE_BYTES = 4 * GIB
_TABULAR = frozenset({Format.TEXT, Format.JSONL, Format.PARQUET, Format.GZIP})
_WRITE = "Write it with pandas: frame.to_parquet(path, index=False) or frame.to_csv(path, index=False)"
_TEXT_KINDS = ("str", "category")
_CHUNK = 2**20
_SHOWN = 3  # columns that an error about many names


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
    vertical bar are recognised (see `read_delimited`), decimal commas are refused. Errors name rows as
    `places.row_places` does, and repeat of a file's content only names and cells cut to `wording.TOKEN`
    characters, and none where the file does not look like a table of the wanted kind.

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
        InputError: with an entry for each kind of thing wrong in the file.
    """
    source = readable_file(path, field=field, max_bytes=max_bytes)
    found = expect(source, _TABULAR, instead=_WRITE)
    delimiter = None
    if found is Format.PARQUET:
        table = _read_parquet(source, max_bytes, max_rows)
    else:
        table, delimiter = _read_text(source, found, columns, extra, max_bytes)
    problems = _shape_problems(source, table, columns, min_rows, max_rows, extra)
    names = table.column_names
    wanted = [column.name for column in columns if column.required]
    another_table = bool(wanted) and not set(wanted) & set(names)
    if problems and (table.num_rows == 0 or len(set(names)) < len(names) or another_table):
        raise InputError(problems)
    table, found_problems = _converted(source, table, columns, extra, delimiter)
    if problems or found_problems:
        raise InputError([*problems, *found_problems])
    return _frame(source, table, columns, extra)


def _read_text(
    source: Source, found: Format, columns: Sequence[Column], extra: str | Column, max_bytes: int
) -> tuple[pa.Table, str | None]:
    """The table, and the delimiter of a delimited one."""
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
        return read_jsonl(source, data), None
    as_text = [column.name for column in columns if column.kind in _TEXT_KINDS]
    known = [column.name for column in columns]
    rest_is_text = isinstance(extra, Column) and extra.kind in _TEXT_KINDS
    return read_delimited(source, data, text=as_text, known=known, rest_is_text=rest_is_text)


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
    declared = {column.name for column in columns}
    shows_names = _looks_like_a_table(names, declared)
    problems = []
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        problems.append(
            source.problem(f"{_columns(repeated)} {_is(repeated)} there more than once", "Give each its own name")
        )
    lacking = [column.name for column in columns if column.required and column.name not in names]
    unexpected = [name for name in names if name not in declared]
    if lacking:
        problems += _missing_columns(source, lacking, unexpected, shows_names=shows_names)
    if extra == "forbid" and unexpected:
        listed = f": {wording.listed(unexpected)}" if shows_names else ""
        problems.append(
            source.problem(
                f"has columns that are not expected{listed}",
                f"Leave them out; the columns are {wording.listed(sorted(declared))}",
            )
        )
    if table.num_rows < min_rows:
        problems.append(
            source.problem(
                f"has {counted(table.num_rows, 'row')}, too few", f"Give at least {counted(min_rows, 'row')} of data"
            )
        )
    if max_rows is not None and table.num_rows > max_rows:
        problems.append(_too_many_rows(source, table.num_rows, max_rows))
    return problems


def _converted(
    source: Source,
    table: pa.Table,
    columns: Sequence[Column],
    extra: Literal["allow", "forbid"] | Column,
    delimiter: str | None,
) -> tuple[pa.Table, list[Problem]]:
    """The table with its columns in their declared kinds, and what is wrong with their values."""
    rules = {column.name: column for column in columns}
    if isinstance(extra, Column):
        rules |= {name: replace(extra, name=name) for name in table.column_names if name not in rules}
    findings: list[tuple[str, Finding]] = []
    for index, name in enumerate(table.column_names):
        if name not in rules:
            continue
        values, found = checked(rules[name], table.column(index), text=delimiter is not None)
        findings += [(name, finding) for finding in found]
        if values is not None:
            table = table.set_column(index, name, values)
    if not findings:
        return table, []
    shows_content = _looks_like_a_table(table.column_names, {column.name for column in columns})
    return table, _grouped(source, findings, delimiter or ",", shows_content=shows_content)


def _frame(source: Source, table: pa.Table, columns: Sequence[Column], extra: str | Column) -> pd.DataFrame:
    """The table in pandas' memory; the table is of no use afterwards."""
    rules = {column.name: column for column in columns}
    fallback = extra if isinstance(extra, Column) else None
    nullable = {
        name: table.column(name)
        for name in table.column_names
        if (rule := rules.get(name, fallback)) and rule.nullable and rule.kind in ("int", "bool")
    }
    try:  # each column is let go as soon as pandas has it, or the data would be there twice
        frame = table.to_pandas(date_as_object=False, self_destruct=True)
    except (pa.ArrowException, ValueError, OverflowError):
        raise source.error("holds values that pandas cannot represent", _WRITE) from None
    types = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    for name, values in nullable.items():
        frame[name] = values.to_pandas(types_mapper=types.get)
    return frame


def _looks_like_a_table(names: Sequence[str], declared: Collection[str]) -> bool:
    """Whether names and cells may be repeated in errors: any text file has one column, a file of keys too."""
    return len(names) > 1 or bool(set(names) & set(declared))


def _grouped(
    source: Source, findings: Sequence[tuple[str, Finding]], delimiter: str, *, shows_content: bool
) -> list[Problem]:
    """One problem for each kind of finding, with the columns that it was made in and the place of the first."""
    groups: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for name, finding in findings:
        groups.setdefault((finding.what, finding.remedy), []).append((name, finding))
    firsts = [group[0][1].first for group in groups.values()]
    places = row_places(source.path, [row for row in firsts if row is not None], delimiter=delimiter)
    problems = []
    for (what, remedy), group in groups.items():
        first = group[0][1]
        names = [name for name, _ in group]
        where = ""
        if first.count is not None and len(group) == 1:
            where = f" in {first.count} of {counted(first.total, 'row')}"
        if first.first is not None:
            where += f", first in {places[first.first]}"
            where += f" ({first.shown})" if first.shown and shows_content else ""
        subject = _columns(names) if shows_content else "its only column"
        problems.append(source.problem(f"{subject}: {what}{where}", remedy))
    return problems


def _missing_columns(
    source: Source, lacking: Sequence[str], others: Sequence[str], *, shows_names: bool
) -> list[Problem]:
    """One problem for those that a similar column may stand for, and one for the others."""
    if others and all(other.isdecimal() for other in others):
        remedy = "Put a first row with the columns' names: its first row holds numbers"
        return [source.problem(f"{_columns(lacking)} {_is(lacking)} missing", remedy)]
    plain = {other.strip().casefold(): other for other in reversed(others)} if shows_names else {}
    near = {name: difflib.get_close_matches(name.strip().casefold(), list(plain), n=1, cutoff=0.7) for name in lacking}
    renamed = {name: plain[found[0]] for name, found in near.items() if found}
    absent = [name for name in lacking if name not in renamed]
    problems = []
    if renamed:
        pairs = [f"{token(other)} to {token(name)}" for name, other in renamed.items()]
        remedy = f"Rename {', '.join(pairs[:_SHOWN])}" + f" and {len(pairs) - _SHOWN} more" * (len(pairs) > _SHOWN)
        problems.append(source.problem(f"{_columns(list(renamed))} {_is(renamed)} missing", remedy))
    if absent:
        pronoun = "it" if len(absent) == 1 else "them"
        listed = f"; the file's other columns: {wording.listed(others)}" if shows_names else ""
        remedy = f"Add {pronoun}{listed}"
        problems.append(source.problem(f"{_columns(absent)} {_is(absent)} missing", remedy))
    return problems


def _too_many_rows(source: Source, count: int, max_rows: int) -> Problem:
    return source.problem(f"has {counted(count, 'row')}, too many", f"Give at most {counted(max_rows, 'row')}")


def _columns(names: Sequence[str]) -> str:
    return f"column{'s' * (len(names) != 1)} {wording.listed(names, _SHOWN)}"


def _is(names: Sized) -> str:
    return "is" if len(names) == 1 else "are"
