"""What a method asks of a column, and the first row that does not meet it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kfp_methods import wording
from kfp_methods.artifacts.delimited import MISSING
from kfp_methods.wording import token

Kind = Literal["float", "int", "bool", "str", "category"]
_EXACT = 2**53  # integers up to here are exact in double precision
FLOAT32_MAX = 3.4028234663852886e38
TOO_LARGE = ("too large for float32, whose range is ±3.4e38", "Give smaller numbers, for instance in another unit")
_TRUE, _FALSE = ("true", "1"), ("false", "0")


@dataclass(frozen=True)
class Column:
    """A column a method reads, and what each of its values must be.

    `kind`: "float" takes any numbers, "int" whole numbers within 64 bits, "bool" true/false or 1/0, "str" and
    "category" text (whole numbers become text). `nullable`: may values be missing (an empty cell, NA, null,
    NaN)? `finite`: are infinities refused? `single`: must finite numbers stay finite in float32, in which the
    method computes? `ge`, `le`, `gt`, `lt` bound numbers; `allowed` lists the only values; `unique` refuses
    repeats.
    """

    name: str
    kind: Kind = "float"
    required: bool = True
    finite: bool = True
    single: bool = False
    ge: float | None = None
    le: float | None = None
    gt: float | None = None
    lt: float | None = None
    unique: bool = False
    allowed: Sequence[object] | None = None
    nullable: bool = False


@dataclass(frozen=True)
class Finding:
    """What is wrong with a column's values, and what would be right.

    Attributes:
        first: the first row that is wrong, counted from 0; None where none is.
        shown: that row's value as a token.
        count: how many of the `total` rows are wrong; None where all are.
    """

    what: str
    remedy: str
    first: int | None = None
    shown: str = ""
    count: int | None = None
    total: int = 0


def checked(column: Column, values: pa.ChunkedArray, *, text: bool) -> tuple[pa.ChunkedArray | None, list[Finding]]:
    """A column's values in its declared kind (None where they cannot be), and all that is wrong with them.

    `text` says that the values come from delimited text, where empty cells and words such as NA mean missing.
    """
    values = _plain(values)
    if text:
        values = _with_missing(values, keep_words=column.kind in ("str", "category"))
    if pa.types.is_floating(values.type) and pc.any(missing := pc.is_nan(values)).as_py():
        values = pc.if_else(missing, pa.scalar(None, values.type), values)
    findings = []
    if values.null_count and not column.nullable:
        findings.append(
            _finding(pc.is_null(values), None, "missing (empty, NA or NaN)", "Fill them in or leave those rows out")
        )
    converted, wrong = _CONVERT[column.kind](values)
    findings += wrong
    if converted is not None:
        findings += _value_findings(column, converted, text=text)
    return converted, findings


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values without dictionary coding, half precision or decimals, and text of one type."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_float16(values.type) or pa.types.is_decimal(values.type):
        return values.cast(pa.float64())
    if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        return values.cast(pa.string())
    return values


def _with_missing(values: pa.ChunkedArray, *, keep_words: bool) -> pa.ChunkedArray:
    if not pa.types.is_string(values.type):
        return values
    words = [""] if keep_words else list(MISSING)
    return pc.if_else(pc.is_in(values, pa.array(words)), pa.scalar(None, pa.string()), values)


Conversion = tuple[pa.ChunkedArray | None, list[Finding]]


def _to_float(values: pa.ChunkedArray) -> Conversion:
    kind = values.type
    if pa.types.is_string(kind):
        return _numbers(values)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        return values.cast(pa.float64(), safe=False), []
    return None, [_wrong_kind(values, "numbers")]


def _to_int(values: pa.ChunkedArray) -> Conversion:
    if pa.types.is_integer(values.type) or pa.types.is_null(values.type):
        if pa.types.is_uint64(values.type):
            largest = pa.scalar(2**63 - 1, pa.uint64())
            beyond = pc.greater(values, largest)
            if pc.any(beyond).as_py():
                return None, [_beyond(beyond, values)]
        return values.cast(pa.int64()), []
    numbers, wrong = _to_float(values)
    if numbers is None:
        return None, wrong
    broken = pc.not_equal(pc.floor(numbers), numbers)
    broken = pc.or_(broken, pc.is_inf(numbers))
    if pc.any(broken).as_py():
        return None, [_finding(broken, values, "not a whole number", "Give whole numbers such as 3")]
    beyond = pc.greater(pc.abs(numbers), float(_EXACT))
    if pc.any(beyond).as_py():
        return None, [_beyond(beyond, values)]
    return numbers.cast(pa.int64()), []


def _beyond(mask: pa.ChunkedArray, values: pa.ChunkedArray) -> Finding:
    return _finding(mask, values, "a whole number too large to hold exactly", "Give them within 64 bits, or as text")


def _to_bool(values: pa.ChunkedArray) -> Conversion:
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.bool_()), []
    if pa.types.is_string(kind):
        lower = pc.utf8_lower(values)
        true, known = pc.is_in(lower, pa.array(_TRUE)), pc.is_in(lower, pa.array((*_TRUE, *_FALSE)))
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        true = pc.equal(values, pa.scalar(1, kind))
        known = pc.or_(true, pc.equal(values, pa.scalar(0, kind)))
    else:
        return None, [_wrong_kind(values, "true/false")]
    bad = pc.and_(pc.invert(known), pc.is_valid(values))
    if pc.any(bad).as_py():
        return None, [_finding(bad, values, "neither true nor false", "Write true or false, or 1 or 0")]
    return pc.if_else(pc.is_valid(values), true, pa.scalar(None, pa.bool_())), []


def _to_str(values: pa.ChunkedArray) -> Conversion:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.string()), []
    return None, [_wrong_kind(values, "text")]


def _to_category(values: pa.ChunkedArray) -> Conversion:
    converted, wrong = _to_str(values)
    return (None, wrong) if converted is None else (converted.dictionary_encode(), wrong)


_CONVERT: dict[Kind, Callable[[pa.ChunkedArray], Conversion]] = {
    "float": _to_float,
    "int": _to_int,
    "bool": _to_bool,
    "str": _to_str,
    "category": _to_category,
}


def _numbers(values: pa.ChunkedArray) -> Conversion:
    """Text as float64: every cell that is not missing must be a number."""
    numbers = pa.chunked_array([pa.array(pd.to_numeric(values.to_pandas(), errors="coerce").astype("float64"))])
    bad = pc.and_(pc.is_valid(values), pc.invert(pc.is_valid(numbers)))
    if not pc.any(bad).as_py():
        return numbers, []
    first = values.filter(bad)[0].as_py()
    return None, [_finding(bad, values, "not a number", _number_remedy(first))]


_POINT = "Write a decimal point, not a decimal comma: 0.5"


def _number_remedy(text: str) -> str:
    text = text.strip()
    if "\n" in text:
        return "Close the quote that is open in this row: its cell spans lines"
    if re.fullmatch(r"[+-]?0,\d+", text):
        return _POINT
    if re.fullmatch(r"[+-]?\d{1,3}([,.' ]\d{3})+([.,]\d+)?", text):
        return "Write numbers without thousands separators: 1234.5"
    if re.fullmatch(r"[+-]?\d*,\d+", text):
        return _POINT
    if re.fullmatch(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*", text):
        return "These look like dates: give a number, such as days since a start"
    if text.lower() in ("true", "false", "yes", "no", "y", "n"):
        return "Write 1 for yes and 0 for no"
    if re.fullmatch(r"[A-Za-z_]+\d+", text):
        return "Number the kinds from 0 where these are names, or leave out what comes before the number"
    if re.fullmatch(r"\D{0,3}[+-]?[\d.]+\D{0,4}", text):
        return "Write the number alone, without a unit or sign"
    return "Write plain numbers such as 0.5"


def _wrong_kind(values: pa.ChunkedArray, wanted: str) -> Finding:
    kind = values.type
    holds = f"values of type {kind}"
    for test, name in (
        (pa.types.is_temporal, "dates or times"),
        (pa.types.is_boolean, "true/false"),
        (pa.types.is_floating, "fractional numbers"),
        (pa.types.is_integer, "whole numbers"),
        (pa.types.is_nested, "lists or objects"),
    ):
        if test(kind):
            holds = name
            break
    what, remedy = f"{holds} where {wanted} are expected", f"Write {wanted}"
    first = pc.index(pc.is_valid(values), True).as_py()
    return Finding(what, remedy) if first < 0 else Finding(what, remedy, first, token(values[first].as_py()))


def _value_findings(column: Column, values: pa.ChunkedArray, *, text: bool) -> list[Finding]:
    findings = []
    if column.kind == "float" and column.finite:
        infinite = pc.is_inf(values)
        if pc.any(infinite).as_py():
            # Text such as 1e999 is read as infinity, and may have been meant as a number.
            what = "infinite, or too large for float64" if text else "infinite"
            findings.append(_finding(infinite, values, what, "Give finite numbers"))
    if column.kind == "float" and column.single:
        large = pc.and_(pc.greater(pc.abs(values), FLOAT32_MAX), pc.is_finite(values))
        if pc.any(large).as_py():
            findings.append(_finding(large, values, *TOO_LARGE))
    if column.kind in ("float", "int"):
        findings += _bound_findings(column, values)
    if column.allowed is not None:
        findings += _allowed_findings(column.allowed, values)
    if column.unique:
        findings += _repeat_findings(values)
    return findings


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], Any], str], ...] = (
    ("ge", pc.less, "at least"),
    ("gt", pc.less_equal, "greater than"),
    ("le", pc.greater, "at most"),
    ("lt", pc.greater_equal, "less than"),
)


def _bound_findings(column: Column, values: pa.ChunkedArray) -> list[Finding]:
    findings = []
    for name, broken, words in _BOUNDS:
        bound = getattr(column, name)
        if bound is None:
            continue
        mask = broken(values, bound)
        if pc.any(mask).as_py():
            findings.append(_finding(mask, values, f"not {words} {bound:g}", f"Give numbers {words} {bound:g}"))
    return findings


def _allowed_findings(allowed: Sequence[object], values: pa.ChunkedArray) -> list[Finding]:
    plain = values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values
    listed = [str(item) for item in allowed] if pa.types.is_string(plain.type) else list(allowed)
    mask = pc.and_(pc.is_valid(plain), pc.invert(pc.is_in(plain, pa.array(listed, plain.type))))
    if not pc.any(mask).as_py():
        return []
    return [_finding(mask, plain, "not among the allowed values", f"Give one of {wording.listed(listed, 20)}")]


def _repeat_findings(values: pa.ChunkedArray) -> list[Finding]:
    repeats = values.to_pandas().duplicated() & values.is_valid().to_pandas()
    if not repeats.any():
        return []
    mask = pa.chunked_array([pa.array(repeats)])
    return [_finding(mask, values, "a repeat of an earlier row", "Give each value once")]


def _finding(mask: pa.ChunkedArray, values: pa.ChunkedArray | None, what: str, remedy: str) -> Finding:
    """`mask` [n] marks the rows that are `what`; `values` [n] shows the first of them."""
    first = pc.index(mask, True).as_py()
    shown = token(values[first].as_py()) if values is not None else ""
    return Finding(what, remedy, first, shown, count=pc.sum(pc.cast(mask, pa.int64())).as_py(), total=len(mask))
