"""Tables come out as they went in, in the declared kinds, whatever format and dialect they are written in."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Hashable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfp_methods.artifacts import Column, Format, format_of, read_table
from kfp_methods.errors import InputError

PEOPLE = (Column("age", "int"), Column("income"), Column("town", "str"), Column("member", "bool"))
CSV = "age,income,town,member\n1,0.5,Ulm,true\n2,-1e3,NA,false\n"
DIALECTS = {
    "plain": CSV.encode(),
    "byte_order_mark": b"\xef\xbb\xbf" + CSV.encode(),
    "windows_lines": CSV.replace("\n", "\r\n").encode(),
    "old_mac_lines": CSV.replace("\n", "\r").encode(),
    "tabs": CSV.replace(",", "\t").encode(),
    "semicolons": CSV.replace(",", ";").encode(),
    "bars": CSV.replace(",", "|").encode(),
    "quoted": CSV.replace("Ulm", '"Ulm"').replace("age", '"age"').encode(),
    "blank_lines": CSV.replace("\n", "\n\n").encode(),
    "no_last_line_break": CSV.rstrip("\n").encode(),
    "gzipped": gzip.compress(CSV.encode()),
    "json_lines": b'{"age":1,"income":0.5,"town":"Ulm","member":true}\n'
    b'{"age":2,"income":-1000,"town":"NA","member":false}\n',
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects_of_text_give_the_same_table(dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "people"  # an upstream artifact has no suffix
    path.write_bytes(DIALECTS[dialect])
    frame = read_table(path, field="people", columns=PEOPLE, extra="forbid")
    expected = pd.DataFrame(
        {"age": [1, 2], "income": [0.5, -1000.0], "town": ["Ulm", "NA"], "member": [True, False]}
    ).astype({"town": "str"})
    pd.testing.assert_frame_equal(frame, expected)


def test_content_outranks_a_lying_suffix(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    pd.DataFrame({"x": [1.0]}).to_parquet(path)
    assert format_of(path) is Format.PARQUET
    assert read_table(path, field="people")["x"].tolist() == [1.0]


def test_quoted_line_breaks_and_delimiters_stay_in_their_cell(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('x,note\n1,"a, ""b""\nc"\n2,d\n')
    assert read_table(path, field="t")["note"].tolist() == ['a, "b"\nc', "d"]


def test_missing_values_keep_their_column_kind(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"i,f,s,b,c\n{2**62 + 1},1,a,1,u\n,NA,,,\n")
    kinds = {"i": "int", "f": "float", "s": "str", "b": "bool", "c": "category"}
    frame = read_table(path, field="t", columns=[Column(n, k, nullable=True) for n, k in kinds.items()])  # type: ignore[arg-type]
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "float64", "str", "boolean", "category"]
    assert frame["i"][0] == 2**62 + 1  # not through a double
    assert frame.isna().iloc[1].all()


def test_identifiers_keep_their_leading_zeros(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,day,x\n007,2024-05-01,1\n")
    rules = [Column("id", "str"), Column("x")]
    assert read_table(path, field="t", columns=rules, extra=Column("*", "category"))["id"].tolist() == ["007"]
    everything = read_table(path, field="t", extra=Column("*", "str"))
    assert everything.iloc[0].tolist() == ["007", "2024-05-01", "1"]


def test_json_text_that_looks_like_a_time_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"s":"2024-05-01 10:00:00","x":1}\n')
    assert read_table(path, field="t", columns=[Column("s", "str")])["s"].tolist() == ["2024-05-01 10:00:00"]


def test_rule_for_undeclared_columns_applies_to_each(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,a,b\n0,1,2\n1,x,-3\n")
    with pytest.raises(InputError) as caught:
        read_table(path, field="t", columns=[Column("y", "int")], extra=Column("*", ge=0))
    assert len(caught.value.problems) == 2
    assert "'a': not a number" in str(caught.value)
    assert "'b': not at least 0" in str(caught.value)


def test_undeclared_columns_are_named_when_forbidden(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,a\n0,1\n")
    with pytest.raises(InputError, match="not expected: 'a'"):
        read_table(path, field="t", columns=[Column("y")], extra="forbid")


@pytest.mark.parametrize("kind", ["int", "str", "category"])
def test_allowed_values_are_listed_for_one_that_is_not(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("label\n0\n1\n2\n")
    rule = Column("label", kind, allowed=(0, 1))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not among the allowed values in 1 of 3 rows, first in line 4"):
        read_table(path, field="t", columns=[rule])
    path.write_text("label\n0\n1\n")
    assert len(read_table(path, field="t", columns=[rule])) == 2


@pytest.mark.parametrize(
    ("bound", "refused"),
    [("ge", [-1]), ("gt", [-1, 0]), ("le", [1]), ("lt", [0, 1])],
    ids=["ge", "gt", "le", "lt"],
)
def test_bounds_are_exactly_what_their_names_say(bound: str, refused: list[int], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for value in (-1, 0, 1):
        path.write_text(f"x\n{value}\n")
        rule = Column("x", "int", **{bound: 0})  # type: ignore[arg-type]
        if value in refused:
            with pytest.raises(InputError, match=rf"in 1 of 1 row, first in line 2 \({value}\)"):
                read_table(path, field="t", columns=[rule])
        else:
            assert read_table(path, field="t", columns=[rule])["x"].tolist() == [value]


def test_row_bounds_are_inclusive(tmp_path: Path) -> None:
    csv, parquet = tmp_path / "t.csv", tmp_path / "t.parquet"
    frame = pd.DataFrame({"x": [1, 2, 3]})
    frame.to_csv(csv, index=False)
    frame.to_parquet(parquet)
    for path in (csv, parquet):
        assert len(read_table(path, field="t", min_rows=3, max_rows=3)) == 3
        with pytest.raises(InputError, match="has 3 rows, too many"):
            read_table(path, field="t", max_rows=2)
        with pytest.raises(InputError, match="has 3 rows, too few"):
            read_table(path, field="t", min_rows=4)


def test_optional_columns_may_be_absent(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n")
    frame = read_table(path, field="t", columns=[Column("x"), Column("w", required=False)])
    assert frame.columns.tolist() == ["x"]


def test_infinities_pass_where_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x\n-inf\n-0.0\n")
    values = read_table(path, field="t", columns=[Column("x", finite=False)])["x"]
    assert values[0] == -math.inf
    assert math.copysign(1, values[1]) == -1


def test_line_named_in_the_error_is_the_line_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = ["1," + "2" * 300] * 150_000
    rows[123_456] = "1,2,3"
    path.write_text("a,b\n" + "\n".join(rows))  # longer than two of the parser's blocks
    with pytest.raises(InputError, match="line 123458 has 3 cells"):
        read_table(path, field="t")


def test_unnamed_pandas_index_is_no_column(tmp_path: Path) -> None:
    path = tmp_path / "t"
    pd.DataFrame({"x": [1.0, 2.0]}, index=[5, 7]).to_parquet(path)
    assert read_table(path, field="t").columns.tolist() == ["x"]


def test_parquet_promising_more_rows_than_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    pa.parquet.write_table(pa.table({"x": pa.nulls(10_000_000, pa.int32())}), path)
    assert path.stat().st_size < 2**20
    with pytest.raises(InputError, match=r"unpacks to 76\.3 MiB"):
        read_table(path, field="t", max_bytes=2**20)


def test_unicode_names_of_files_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "naïve данные 表.csv"
    path.write_text("größe,年\n1,2\n", encoding="utf-8")
    frame = read_table(path, field="t", columns=[Column("größe"), Column("年", "int")])
    assert frame.columns.tolist() == ["größe", "年"]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\n", exclude_categories=["Cs"]), min_size=1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r", exclude_categories=["Cs"]), min_size=1)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    names = draw(
        st.lists(NAMES.filter(lambda name: name.strip() and not name.startswith("\ufeff")), min_size=4, max_size=4)
        .filter(lambda names: len(set(names)) == 4)
        .filter(lambda names: not names[0].lstrip().startswith(("<", "{", "[", "version https")))
        .filter(lambda names: not all(name.strip().replace(".", "").isdigit() for name in names))
    )
    size = draw(st.integers(1, 6))
    values = [
        draw(st.lists(FINITE, min_size=size, max_size=size)),
        draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=size, max_size=size)),
        draw(st.lists(st.booleans(), min_size=size, max_size=size)),
        draw(st.lists(WORDS, min_size=size, max_size=size)),
    ]
    return pd.DataFrame(dict(zip(names, values, strict=True))).astype({names[3]: "str"})


def kinds_of(frame: pd.DataFrame) -> list[Column]:
    return [
        Column(name, kind)  # type: ignore[arg-type]
        for name, kind in zip(frame.columns, ("float", "int", "bool", "str"), strict=True)
    ]


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl", "csv.gz"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=frames())
def test_round_trip_is_exact(form: str, frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / f"t.{form}"
    if form == "parquet":
        frame.to_parquet(path, index=False)
    elif form == "jsonl":
        path.write_text("".join(_json_line(row) for row in frame.to_dict("records")), encoding="utf-8")
    else:
        frame.to_csv(path, index=False, float_format="%.17g")
    read = read_table(path, field="t", columns=kinds_of(frame), extra="forbid")
    pd.testing.assert_frame_equal(read, frame, check_exact=True)


def _json_line(row: Mapping[Hashable, object]) -> str:
    return json.dumps(row) + "\n"


@pytest.mark.slow
def test_reading_a_million_rows_costs_little_more_than_parsing_them(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    values = np.random.default_rng(0).normal(size=(1_000_000, 10))
    names = [f"x{index}" for index in range(10)]
    pa.csv.write_csv(pa.table(dict(zip(names, values.T, strict=True))), path)

    def best_of_three(work: object) -> float:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            work()  # type: ignore[operator]
            times.append(time.perf_counter() - start)
        return min(times)

    ours = best_of_three(lambda: read_table(path, field="t", columns=[Column(name) for name in names]))
    theirs = best_of_three(lambda: pd.read_csv(path, engine="pyarrow"))
    print(f"read_table {ours:.2f} s, pandas.read_csv(engine='pyarrow') {theirs:.2f} s")
    assert ours < 2 * theirs + 0.2
