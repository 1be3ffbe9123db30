"""JSON lines become an Arrow table, or an error that names the line that is no JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from mmap import mmap

import pyarrow as pa
import pyarrow.json

from kfp_methods.artifacts.encoding import not_utf8
from kfp_methods.artifacts.files import Source
from kfp_methods.errors import InputError
from kfp_methods.wording import token

_BLOCK = 16 * 2**20  # bytes; also the longest line that can be read
_DEEPEST = 100
_TOKEN = re.compile(rb'"(?:\\.|[^"\\])*"|[\[\]{}]', re.DOTALL)
_KINDS = {
    bool: "true/false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def read_jsonl(source: Source, data: mmap | bytes) -> pa.Table:
    """The table of one JSON object a line; a key that a line lacks is missing there. Text stays text.

    Raises:
        InputError: for a line that is no JSON object, a column whose kind changes, or very deep nesting.
    """
    wrong_bytes = not_utf8(source, data)  # the fast parser does not look
    if wrong_bytes:
        raise wrong_bytes
    _check_depth(source, data)
    read = pa.json.ReadOptions(block_size=_BLOCK)
    try:
        table = pa.json.read_json(pa.BufferReader(data), read)
        # Text that looks like a time is read as one; JSON has no times, so give the text back.
        times = [entry.name for entry in table.schema if pa.types.is_timestamp(entry.type)]
        if times:
            schema = pa.schema([(name, pa.string()) for name in times])
            table = pa.json.read_json(pa.BufferReader(data), read, pa.json.ParseOptions(explicit_schema=schema)).select(
                table.column_names
            )
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(source, data, str(error)) from None
    return table


def _lines(data: mmap | bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield data[start:end]
        start = end + 1


def _check_depth(source: Source, data: mmap | bytes) -> None:
    """Refuses nesting deep enough to exhaust the parser's stack, which would end the process.

    After `}` a line break and `{` are only valid between two objects, so as long as the openings barely
    outnumber those places the file is flat, and that can be counted at the speed of memory.
    """
    view = memoryview(data)
    counts = [0, 0]
    for start in range(0, len(view), _BLOCK):
        block = bytes(view[start : start + _BLOCK + 2])  # overlapping, so that no place between objects is missed
        opened = block[:_BLOCK]
        counts[0] += opened.count(b"[") + opened.count(b"{")
        counts[1] += block.count(b"}\n{")
    view.release()
    if counts[0] - counts[1] <= _DEEPEST:
        return
    for row, line in enumerate(_lines(data), start=1):
        content = line.strip()
        if not content:
            continue
        if not (content.startswith(b"{") and content.endswith(b"}")):
            raise _line_error(source, row)
        if content.count(b"[") + content.count(b"{") > _DEEPEST and _depth(content) > _DEEPEST:
            raise source.error(
                f"line {row} nests lists or objects more than {_DEEPEST} deep",
                "Give flat objects of numbers and text",
            )


def _depth(line: bytes) -> int:
    depth = deepest = 0
    for match in _TOKEN.finditer(line):
        mark = match.group()
        depth += (mark in b"[{") - (mark in b"]}") if len(mark) == 1 else 0
        deepest = max(deepest, depth)
    return deepest


def _line_error(source: Source, row: int) -> InputError:
    return source.error(f"line {row} is not one JSON object", 'Write one object a line, such as {"x": 1}')


def _unreadable(source: Source, data: mmap | bytes, message: str) -> InputError:
    """Reads line by line with the standard library to find what the fast parser tripped over."""
    kinds: dict[str, tuple[str, int]] = {}
    for row, line in enumerate(_lines(data), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_once)
        except _TwiceError as twice:
            return source.error(f"line {row} gives {token(str(twice))} twice", "Give each column once a line")
        except (ValueError, RecursionError):
            return _line_error(source, row)
        if not isinstance(record, dict):
            return _line_error(source, row)
        for name, value in record.items():
            kind = _KINDS.get(type(value))
            if kind is None:
                continue
            first, first_row = kinds.setdefault(name, (kind, row))
            if kind != first:
                return source.error(
                    f"column {token(name)}: line {row} holds {kind}, line {first_row} {first}",
                    "Give a column values of one kind, and null where one is missing",
                )
    if "straddl" in message:
        return source.error(f"a line is longer than {_BLOCK // 2**20} MiB", "Write one object a line")
    return source.error("cannot be read as JSON lines", "Write one object of plain values a line")


class _TwiceError(ValueError):
    """A key that an object holds twice."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record: dict[str, object] = {}
    for name, value in pairs:
        if name in record:
            raise _TwiceError(name)
        record[name] = value
    return record
