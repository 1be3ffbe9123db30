"""A row is named as its user finds it: by its line in text, by its number elsewhere."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfp_methods.artifacts import Array, Column, read_arrays, read_table, row_place
from kfp_methods.errors import InputError

CELLS = st.text(st.sampled_from(list('ab ,;"\n\r')), max_size=6)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(CELLS, min_size=1, max_size=8), bad=st.data())
def test_the_line_is_where_the_row_begins(packed: bool, rows: list[str], bad: st.DataObject, tmp_path: Path) -> None:
    """Cells with quotes, delimiters and line breaks before it, and blank lines, move the row down."""
    wrong = bad.draw(st.integers(0, len(rows) - 1))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(["x", "note"])
    for index, note in enumerate(rows):
        if index % 2:
            stream.write("\n")  # a blank line
        if index == wrong:
            line = len(io.StringIO(stream.getvalue(), newline="").readlines()) + 1
        writer.writerow(["lots" if index == wrong else index, note])
    content = stream.getvalue().encode()
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert row_place(path, wrong) == f"line {line}"
    with pytest.raises(InputError, match=rf"not a number in 1 of .*, first in line {line} \('lots'\)"):
        read_table(path, field="t", columns=[Column("x"), Column("note", "str", nullable=True)])


def test_lines_of_other_dialects(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b'\xef\xbb\xbfx;s\r"1";"a\r;b"\r2;c\r')  # a byte order mark, lines that end as on an old Mac
    assert [row_place(path, row, delimiter=";") for row in (0, 1)] == ["line 2", "line 4"]
    path.write_bytes(b'\n{"x":1}\n\n{"x":2}\n')
    assert [row_place(path, row) for row in (0, 1)] == ["line 2", "line 4"]


def test_rows_of_files_without_lines_are_counted_from_1(tmp_path: Path) -> None:
    parquet, npz = tmp_path / "t.parquet", tmp_path / "t.npz"
    pd.DataFrame({"x": [1.0, -2.0]}).to_parquet(parquet)
    np.savez(npz, x=np.array([1.0, -2.0]))
    assert row_place(parquet, 1) == row_place(npz, 1) == "row 2"
    with pytest.raises(InputError, match=r"first in row 2 \(-2.0\)"):
        read_table(parquet, field="t", columns=[Column("x", ge=0)])
    with pytest.raises(InputError, match=r"first in row 2: x\[1\] = -2.0"):
        read_arrays(npz, field="t", arrays=[Array("x", ge=0)])


def test_a_cell_too_long_for_the_csv_module_leaves_the_row_its_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'x,s\n1,"{"a" * 200_000}"\nlots,b\n')
    with pytest.raises(InputError, match="first in row 2"):
        read_table(path, field="t", columns=[Column("x"), Column("s", "str")])


def test_problems_of_one_kind_in_many_columns_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    names = [f"x{index}" for index in range(30)]
    path.write_text(";".join(names) + "\n" + ";".join(["0,5"] * 30) + "\n" + ";".join(["1,5"] * 29 + [""]) + "\n")
    with pytest.raises(InputError) as caught:
        read_table(path, field="t", extra=Column("*"))
    assert [problem.problem for problem in caught.value.problems] == [
        "columns 'x0', 'x1', 'x2' and 27 more: not a number, first in line 2 ('0,5')",
        "column 'x29': missing (empty, NA or NaN) in 1 of 2 rows, first in line 3",
    ]
    with pytest.raises(InputError) as caught:
        read_table(path, field="t", columns=[Column(f"y{name}") for name in range(30)])
    assert len(caught.value.problems) <= 2


def test_numbers_that_only_float32_cannot_hold_are_not_called_infinite(tmp_path: Path) -> None:
    table, arrays = tmp_path / "t.csv", tmp_path / "t.npz"
    table.write_text("x,y\n1,2\n1e300,-1e39\n")
    np.savez(arrays, x=np.array([1.0, 1e300]))
    assert read_table(table, field="t", columns=[Column("x")])["x"].tolist() == [1.0, 1e300]
    with pytest.raises(InputError) as caught:
        read_table(table, field="t", columns=[Column("x", single=True)])
    assert "'x': too large for float32, whose range is ±3.4e38 in 1 of 2 rows, first in line 3 (1e+300)" in str(
        caught.value
    )
    with pytest.raises(InputError, match=r"1 of 2 entries are too large for float32.*x\[1\] = 1e\+300") as caught:
        read_arrays(arrays, field="t", arrays=[Array("x", single=True)])
    assert "infinite" not in str(caught.value)
