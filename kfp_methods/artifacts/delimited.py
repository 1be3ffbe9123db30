"""Delimited text becomes an Arrow table, or an error that names the row that does not fit."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from mmap import mmap

import pyarrow as pa
import pyarrow.csv

from kfp_methods.artifacts.encoding import not_utf8
from kfp_methods.artifacts.files import Source
from kfp_methods.artifacts.places import row_place
from kfp_methods.errors import InputError
from kfp_methods.wording import counted

MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>")
_DELIMITERS = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a vertical bar"}
_BLOCK = 16 * 2**20  # bytes; also the longest row that can be read
_LOOK = 64 * 1024


def read_delimited(
    source: Source,
    data: mmap | bytes,
    *,
    text: Sequence[str],
    known: Sequence[str],
    rest_is_text: bool = False,
) -> tuple[pa.Table, str]:
    """The table of UTF-8 text in `data`, whose first row names the columns, and the delimiter of its cells.

    The delimiter is the comma, tab, semicolon or vertical bar that cuts the first rows into the same number
    of cells as the header; between several, the one under which most `known` column names appear, then in
    that order. Columns named in `text` stay text, and with `rest_is_text` so do all that are not `known`; the
    others become numbers, booleans or dates where every cell allows it.

    Raises:
        InputError: for NUL bytes, text that is not UTF-8, rows of unequal length, nameless columns.
    """
    nul = data.find(b"\x00")
    if nul >= 0:
        raise source.error(
            f"holds a NUL byte at byte {nul}, so it is damaged or not text", "Write it again as UTF-8 text"
        )
    delimiter = _delimiter(data, known)
    # Rows may be cut anywhere for the threads unless a quoted cell may hold a line break.
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=data.find(b'"') >= 0)
    try:
        if rest_is_text:
            with pa.csv.open_csv(pa.BufferReader(data), parse_options=parse) as header:
                text = [*text, *(name for name in header.schema.names if name not in known)]
        convert = pa.csv.ConvertOptions(null_values=list(MISSING), column_types=dict.fromkeys(text, pa.string()))
        table = pa.csv.read_csv(pa.BufferReader(data), pa.csv.ReadOptions(block_size=_BLOCK), parse, convert)
        names = list(table.column_names)
    except (pa.ArrowException, UnicodeError, OSError) as error:
        raise _unreadable(source, data, parse, error) from None
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        raise not_utf8(source, data) or source.error("is not UTF-8 text", "Save it as UTF-8")
    _check_header(source, names, delimiter)
    return table, delimiter


def _delimiter(data: mmap | bytes, known: Sequence[str]) -> str:
    head = data[:_LOOK]
    if len(data) > _LOOK:
        head = head[: head.rfind(b"\n") + 1] or head
    lines = codecs.decode(head.removeprefix(b"\xef\xbb\xbf"), "utf-8", "replace").replace("\r\n", "\n")
    best, best_score = ",", (False, -1, 0)
    for delimiter in _DELIMITERS:
        try:
            rows = [row for row in csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter) if row]
        except csv.Error:
            continue
        width = len(rows[0]) if rows else 0
        agree = width > 1 and all(len(row) == width for row in rows)
        score = (agree, len(set(known) & set(rows[0] if rows else ())), width if not agree else 0)
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _check_header(source: Source, names: Sequence[str], delimiter: str) -> None:
    nameless = [index + 1 for index, name in enumerate(names) if not name.strip()]
    if nameless and nameless[-1] == len(names) > 1:
        raise source.error(
            f"its header ends with {_DELIMITERS[delimiter]}, so column {len(names)} has no name",
            "Take the delimiter off the end of each row, or name the column",
        )
    if nameless:
        raise source.error(
            f"column {nameless[0]} has no name",
            "Name it; if it is a saved index, write with to_csv(index=False)",
        )
    if names and all(_is_number(name) for name in names) and not all(name.isdecimal() for name in names):
        raise source.error(
            "its first row holds numbers, not column names",
            "Put a first row with the columns' names",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unreadable(source: Source, data: mmap | bytes, parse: pa.csv.ParseOptions, error: Exception) -> InputError:
    message = str(error)
    wrong_bytes = not_utf8(source, data)
    if wrong_bytes:
        return wrong_bytes
    if "straddl" in message:
        return source.error(
            f"a row is longer than {_BLOCK // 2**20} MiB", "Look for a quote that is opened and never closed"
        )
    if "Empty CSV" in message:
        what = "no row of data" if data[:_BLOCK].strip() else "no rows, only blank lines"
        return source.error(f"holds {what}", "Give a header row and rows of data")
    return _ragged(source, data, parse) or source.error(
        "cannot be read as delimited text", "Write it with pandas.DataFrame.to_csv(index=False)"
    )


def _ragged(source: Source, data: mmap | bytes, parse: pa.csv.ParseOptions) -> InputError | None:
    """The error for rows that have more or fewer cells than the header, if there are any."""
    odd: list[pa.csv.InvalidRow] = []

    def keep(row: pa.csv.InvalidRow) -> str:
        odd.append(row)
        return "skip"

    parse.invalid_row_handler = keep
    try:  # one thread, or the parser does not know the rows' numbers
        pa.csv.read_csv(pa.BufferReader(data), pa.csv.ReadOptions(block_size=_BLOCK, use_threads=False), parse)
    except (pa.ArrowException, UnicodeError, OSError):
        return None
    if not odd:
        return None
    first = odd[0]
    expected, actual = first.expected_columns, first.actual_columns
    place = row_place(source.path, first.number - 2, delimiter=parse.delimiter) if first.number else "a row"
    others = f", and so {'does' if len(odd) == 2 else 'do'} {counted(len(odd) - 1, 'other row')}"
    return source.error(
        f"{place} has {counted(actual, 'cell')} where the header has {expected}{others if len(odd) > 1 else ''}",
        _ragged_remedy(first.text, expected, actual, parse.delimiter),
    )


def _ragged_remedy(text: str, expected: int, actual: int, delimiter: str) -> str:
    if expected == 1 and not text.strip().endswith(delimiter):
        return "Begin with a header row that names every column, or give the file that is meant"
    if actual == expected + 1 and text.rstrip("\r\n").endswith(delimiter):
        return f"Take {_DELIMITERS[delimiter]} off the end of each row"
    if delimiter == "," and actual == 2 * expected:
        return "Write numbers with a decimal point: its commas look like decimal commas"
    if text.count('"') % 2:
        return "Close the quote that is open in this row"
    return f"Give every row {counted(expected, 'cell')}, and quote a cell that holds {_DELIMITERS[delimiter]}"
