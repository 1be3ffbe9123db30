"""A row's number in a data frame becomes its place in the file, as a user finds it there."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TextIO

from kfp_methods.artifacts.formats import HEAD, Format, format_of, format_of_head


def row_place(path: Path, row: int, *, delimiter: str = ",") -> str:
    """The place of row `row`, counted from 0 as in a frame or array: `line 7` or `row 6`; see `row_places`."""
    return row_places(path, [row], delimiter=delimiter)[row]


def row_places(path: Path, rows: Collection[int], *, delimiter: str = ",") -> dict[int, str]:
    """Places of rows counted from 0, in one pass over the file.

    A row of text (delimited or JSON lines, gzipped or not) is the line on which it begins, counted from 1 as an
    editor does: the header and blank lines count. A row of any other file is its number, counted from 1.
    """
    path = Path(path)
    found = format_of(path)
    packed = found is Format.GZIP
    if packed:
        with gzip.open(path) as stream:
            head = stream.read(HEAD)
        found = format_of_head(head, size=len(head), name=path.name.removesuffix(".gz"))
    places = {row: f"row {row + 1}" for row in rows}
    if found not in (Format.TEXT, Format.JSONL):
        return places
    with _opened(path, packed=packed, newline="" if found is Format.TEXT else "\n") as text:
        starts = _delimited_starts(text, delimiter) if found is Format.TEXT else _line_starts(text)
        last = max(rows, default=-1)
        for row, line in enumerate(starts):
            if row in places:
                places[row] = f"line {line}"
            if row >= last:
                break
    return places


def _opened(path: Path, *, packed: bool, newline: str) -> TextIO:
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline=newline)
    return path.open(encoding="utf-8-sig", errors="replace", newline=newline)


def _delimited_starts(text: TextIO, delimiter: str) -> Iterator[int]:
    """The lines on which the rows below the header begin; a quoted cell may span lines."""
    number, header = 0, True
    for line in text:
        number += 1
        start = number
        if '"' in line:
            reader = csv.reader(itertools.chain([line], text), delimiter=delimiter)
            try:
                next(reader)
            except csv.Error:  # a cell longer than the csv module takes: what follows keeps its row's number
                return
            number += reader.line_num - 1
        elif not line.rstrip("\r\n"):
            continue
        if not header:
            yield start
        header = False


def _line_starts(text: TextIO) -> Iterator[int]:
    return (number for number, line in enumerate(text, start=1) if line.strip())
