"""Files as users really send them, each with the error that tells what is wrong and what would be right."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from kfp_methods.artifacts import Array, Column, read_arrays, read_table
from kfp_methods.errors import InputError

COLUMNS = (Column("age", "int", ge=0), Column("income", "float"))
ARRAYS = (Array("x", shape=("n", 3)), Array("y", shape=("n",), kind="int"))


class Payload:
    """A pickle that would write a file named `ran` where it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
        return open, ("ran", "w")


def text(content: str, encoding: str = "utf-8", name: str = "data.csv") -> Callable[[Path], Path]:
    return raw(content.encode(encoding), name)


def raw(content: bytes, name: str = "data") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return write


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return stream.getvalue()


def parquet(frame: pd.DataFrame) -> bytes:
    return frame.to_parquet(index=False)


def npy(values: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=allow_pickle)
    return stream.getvalue()


def npy_header(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def link_to(target: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "folder").mkdir()
        (folder / "data.csv").symlink_to(target)
        return folder / "data.csv"

    return write


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "data.csv")
    return folder / "data.csv"


GOOD = "age,income\n1,2.5\n2,3.5\n"
TABLES = {
    # what the file is: (how it is written, what its error says)
    "missing": (lambda folder: folder / "no.csv", ["does not exist", "Check the path"]),
    "folder": (lambda folder: folder, ["is a folder", "Give the file itself"]),
    "link_to_a_folder": (link_to("folder"), ["is a folder"]),
    "broken_link": (link_to("gone.csv"), ["link to a file that does not exist"]),
    "link_to_itself": (link_to("data.csv"), ["cannot be opened", "symbolic links"]),
    "pipe": (pipe, ["device, pipe or socket", "regular file"]),
    "empty": (raw(b""), ["is empty (0 bytes)"]),
    "one_word": (text("hello"), ["no row of data", "header row"]),
    "blank_lines": (text("\n\n\n"), ["only blank lines", "header row"]),
    "header_only": (text("age,income\n"), ["has 0 rows", "at least 1 row"]),
    "near_miss": (
        text("Age,incomes\n1,2\n"),
        ["columns 'age', 'income' are missing", "Rename 'Age' to 'age', 'incomes' to 'income'"],
    ),
    "no_header_integers": (text("1,2\n3,4\n"), ["columns 'age', 'income' are missing", "first row holds numbers"]),
    "no_header_floats": (text("0.5,2\n1.5,4\n"), ["first row holds numbers, not column names", "columns' names"]),
    "missing_column": (text("age,q\n1,2\n"), ["'income' is missing", "other columns: 'q'"]),
    "duplicate_columns": (text("age,age,income\n1,2,3\n"), ["column 'age' is there more than once"]),
    "saved_index": (text(",age,income\n0,1,2\n"), ["column 1 has no name", "index=False"]),
    "trailing_delimiter": (text("age,income,\n1,2,\n"), ["header ends with a comma", "off the end"]),
    "trailing_delimiter_in_rows": (
        text("age,income\n1,2,\n3,4,\n"),
        ["line 2 has 3 cells", "and so does 1 other row", "off the end"],
    ),
    "no_table": (
        text("root:x:0\nbackup:x:34,a,b:/\n"),
        ["line 2 has 3 cells where the header has 1", "the file that is"],
    ),
    "ragged": (text("age,income\n1,2\n3\n4,5,6\n"), ["line 3 has 1 cell where", "and so does 1 other row", "2 cells"]),
    "open_quote": (text('age,income\n1,"2\n3,4\n'), ["line 2 ('2\\n3,4\\n')", "Close the quote"]),
    "nan": (
        text("age,income\n1,2\n2,NaN\n3,\n"),
        ["'income'", "missing", "2 of 3 rows", "first in line 3", "Fill"],
    ),
    "infinite": (text("age,income\n1,inf\n"), ["'income': infinite", "in 1 of 1 row, first in line 2 (inf)"]),
    "too_big_float": (text("age,income\n1,1e999\n"), ["'income': infinite, or too large for float64"]),
    "words": (text("age,income\n1,2\n2,lots\n"), ["'income': not a number in 1 of 2 rows", "line 3 ('lots')"]),
    "out_of_range": (text("age,income\n1,2\n-3,2\n"), ["'age': not at least 0", "line 3 (-3)", "at least 0"]),
    "fractions": (text("age,income\n1,2\n2.5,2\n"), ["'age': not a whole number", "line 3 (2.5)"]),
    "huge_integers": (
        text("age,income\n99999999999999999999,2\n"),
        ["too large to hold", "64 bits, or as text"],
    ),
    "thousands": (text('age,income\n1,"1,234.5"\n'), ["'1,234.5'", "without thousands separators"]),
    "decimal_comma": (text("age;income\n1;0,5\n"), ["'0,5'", "a decimal point, not a decimal comma"]),
    "decimal_comma_in_csv": (
        text("age,income\n1,0,2,5\n"),
        ["line 2 has 4 cells", "look like decimal commas"],
    ),
    "dates": (text("age,income\n1,2024-05-01\n"), ["dates or times where numbers are expected", "line 2 (2024-05-01)"]),
    "foreign_dates": (text("age,income\n1,01.05.2024\n"), ["'01.05.2024'", "look like dates"]),
    "yes_no": (text("age,income\n1,yes\n"), ["'yes'", "1 for yes and 0 for no"]),
    "units": (text("age,income\n1,12 kg\n"), ["'12 kg'", "without a unit"]),
    "booleans": (text("age,income\n1,true\n"), ["true/false where numbers are expected"]),
    "latin_1": (
        text("age,income,town\n1,2,Z\xfcrich\n", "latin-1"),
        ["line 2 is not UTF-8", "0xfc", "iconv"],
    ),
    "latin_1_header": (text("age,income,\xe9t\xe9\n1,2,3\n", "latin-1"), ["line 1 is not UTF-8"]),
    "utf_16": (text(GOOD, "utf-16"), ["is UTF-16 text", "Save it as UTF-8"]),
    "utf_16_without_mark": (text(GOOD, "utf-16-le"), ["is UTF-16 text"]),
    "nul_bytes": (text(GOOD + "3,\x004\n"), ["NUL byte at byte 25", "as UTF-8 text"]),
    "pickle_named_csv": (
        raw(pickle.dumps(Payload()), "data.csv"),
        ["is a pickle", "a program", "to_parquet"],
    ),
    "text_pickle": (raw(pickle.dumps(Payload(), 0), "data.csv"), ["is a pickle"]),
    "gzipped_pickle": (raw(gzip.compress(pickle.dumps(Payload())), "data.csv.gz"), ["is a pickle"]),
    "html": (text("<!DOCTYPE html><html>Log in</html>"), ["is an HTML page", "login"]),
    "lfs_pointer": (text("version https://git-lfs.github.com/spec/v1\noid x\n"), ["Git LFS", "git lfs pull"]),
    "excel": (raw(zipped(xl__workbook_dot_xml=b"<x/>"), "data.csv"), ["is an Excel workbook", "to_csv"]),
    "zip": (raw(zipped(data_dot_csv=GOOD.encode())), ["is a zip archive", "Unpack it"]),
    "arrays": (raw(npz(x=np.ones(3))), ["is a NumPy .npz archive"]),
    "xz": (raw(b"\xfd7zXZ\x00rest"), ["is a compressed file", "gzip"]),
    "truncated_parquet": (
        raw(parquet(pd.DataFrame({"age": [1], "income": [2.0]}))[:-20]),
        ["is a damaged Parquet file, perhaps cut short", "again"],
    ),
    "parquet_text": (
        raw(parquet(pd.DataFrame({"age": [1], "income": ["a lot"]}))),
        ["'income': not a number in 1 of 1 row, first in row 1 ('a lot')"],
    ),
    "parquet_lists": (
        raw(parquet(pd.DataFrame({"age": [1], "income": [[1.0]]}))),
        ["'income': lists or objects where numbers"],
    ),
    "parquet_uint64": (
        raw(parquet(pd.DataFrame({"age": np.array([2**64 - 1], "uint64"), "income": [1.0]}))),
        ["'age': a whole number too large", "18446744073709551615"],
    ),
    "truncated_gzip": (raw(gzip.compress(GOOD.encode() * 99)[:-12]), ["gzip file cut short"]),
    "damaged_gzip": (raw(gzip.compress(GOOD.encode())[:-8] + b"12345678"), ["damaged gzip"]),
    "gzip_bomb": (
        raw(gzip.compress(b"a,b\n" + b"1,2\n" * 500_000)),
        ["unpacks to at least", "1.0 MiB allowed"],
    ),
    "too_large": (raw(b"a,b\n" + b"1,2\n" * 500_000), ["is 1.9 MiB, more than the 1.0 MiB allowed"]),
    "json_array": (text('[{"age": 1}]', name="d.json"), ["is a JSON array", "lines=True"]),
    "json_broken_line": (
        text('{"age":1,"income":2}\n{"age":1,\n', name="d"),
        ["line 2 is not one JSON object"],
    ),
    "json_mixed": (
        text('{"age":1,"income":2}\n{"age":1,"income":"x"}\n', name="d"),
        ["column 'income': line 2 holds text, line 1 a number", "one kind"],
    ),
    "json_repeated_key": (text('{"age":1,"age":2}\n', name="d"), ["gives 'age' twice"]),
    "json_not_objects": (
        text('{"age":1,"income":2}\n3\n', name="d"),
        ["line 2 is not one JSON object"],
    ),
    "json_deep": (text('{"age":' + "[" * 200_000 + "]" * 200_000 + "}", name="d"), ["line 1 nests", "flat"]),
    "json_deep_in_lines": (
        text('{"a":\n' * 100_000 + "1" + "}\n" * 100_000, name="d"),
        ["line 1 is not one JSON"],
    ),
    "json_missing": (
        text('{"age":1,"income":2}\n{"age":2}\n', name="d"),
        ["'income': missing", "1 of 2 rows, first in line 2"],
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_table_error_says_what_is_wrong(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, parts = TABLES[case]
    path = write(tmp_path)
    with pytest.raises(InputError) as caught:
        read_table(path, field="people", columns=COLUMNS, max_bytes=2**20)
    message = str(caught.value)
    assert message.startswith(f"people={path}"[:100])
    for part in parts:
        assert part in message
    assert not (tmp_path / "ran").exists()


GOOD_ARRAYS = {"x": np.ones((2, 3)), "y": np.array([0, 1])}
ARRAY_FILES = {
    "pickle_named_npz": (raw(pickle.dumps(Payload()), "data.npz"), ["is a pickle", "numpy.savez"]),
    "object_array": (
        raw(npy(np.array([Payload()], object), allow_pickle=True)),
        ["holds Python objects (a pickle)"],
    ),
    "object_array_in_npz": (
        raw(zipped(x_dot_npy=npy(np.array([Payload()], object), allow_pickle=True))),
        ["array 'x' holds Python objects"],
    ),
    "pickle_in_npz": (raw(zipped(x_dot_npy=pickle.dumps(Payload()))), ["array 'x' is not in NumPy's format"]),
    "torch_checkpoint": (
        raw(zipped(archive__data_dot_pkl=b"\x80\x02.")),
        ["is a PyTorch checkpoint", "a program"],
    ),
    "zip_bomb": (raw(npz(x=np.zeros(2**20))), ["unpacks to 8.0 MiB, more than the 1.0 MiB allowed"]),
    "header_bomb": (raw(npy_header("(1000000000000,)")), ["damaged or cut short", "(1000000000000,)"]),
    "header_bomb_in_npz": (raw(zipped(x_dot_npy=npy_header("(1000000000000,)"))), ["array 'x' is damaged"]),
    "negative_shape": (raw(npy_header("(-1,)")), ["damaged"]),
    "code_in_header": (raw(npy_header("(__import__('os').system('x'),)")), ["damaged header"]),
    "nested_header": (raw(npy_header("(" * 60)), ["damaged header"]),
    "truncated_npy": (raw(npy(np.ones((9, 3)))[:-5]), ["cut short", "(9, 3)"]),
    "truncated_npz": (raw(npz(**GOOD_ARRAYS)[:-30]), ["is a zip archive without its end", "cut short or damaged"]),
    "records": (raw(npy(np.zeros(2, [("a", "f8")]))), ["holds records"]),
    "one_array_for_two": (raw(npy(np.ones((2, 3)))), ["'x' is missing", "'y' is missing", "'array'"]),
    "near_miss": (raw(npz(X=np.ones((2, 3)), y=np.array([0, 1]))), ["'x' is missing", "Rename 'X' to 'x'"]),
    "wrong_width": (
        raw(npz(x=np.ones((2, 4)), y=np.array([0, 1]))),
        ["shape (2, 4) where (n, 3)", "length 3"],
    ),
    "wrong_axes": (raw(npz(x=np.ones(2), y=np.array([0, 1]))), ["'x' has shape (2,) where (n, 3)"]),
    "lengths_disagree": (
        raw(npz(x=np.ones((2, 3)), y=np.arange(5))),
        ["'y' has shape (5,)", "n=2, as in 'x'"],
    ),
    "floats_for_ints": (raw(npz(x=np.ones((2, 3)), y=np.ones(2))), ["'y' has type float64", "x.astype(int)"]),
    "complex": (raw(npz(x=np.ones((2, 3), complex), y=np.arange(2))), ["'x' has type complex128"]),
    "text": (raw(npz(x=np.array([["a"] * 3] * 2), y=np.arange(2))), ["'x' has type <U1"]),
    "nan": (
        raw(npz(x=np.array([[1, 2, 3], [1, np.nan, np.inf]]), y=np.arange(2))),
        ["2 of 6 entries are NaN or infinite, first in row 2: x[1, 1] = nan", "finite numbers"],
    ),
    "table": (text(GOOD), ["is delimited text", "numpy.savez"]),
    "truncated_safetensors": (
        raw((17).to_bytes(8, "little") + b'{"x":{"dtype":"F8'),
        ["damaged safetensors file, perhaps cut short"],
    ),
    "foreign_bytes_named_safetensors": (
        raw(b"\x00\x01\x02\xff" * 20, "w.safetensors"),
        ["is binary data of an unknown format", "safetensors"],
    ),
    "safetensors_with_a_damaged_header": (
        raw(b"\x40\0\0\0\0\0\0\0" + b"\0" * 64 + np.ones(50, np.float32).tobytes(), "w.safetensors"),
        ["is binary data of an unknown format"],
    ),
    "safetensors_header_cut_short": (
        raw((500).to_bytes(8, "little") + b'{"x":{"dtype":"F8', "w.safetensors"),
        ["damaged safetensors file, perhaps cut short", "Copy or write it again"],
    ),
    "empty_npz": (raw(npz()), ["holds no arrays"]),
}


@pytest.mark.parametrize("case", ARRAY_FILES)
def test_array_error_says_what_is_wrong(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, parts = ARRAY_FILES[case]
    path = write(tmp_path)
    with pytest.raises(InputError) as caught:
        read_arrays(path, field="members", arrays=ARRAYS, max_bytes=2**20)
    message = str(caught.value)
    assert message.startswith(f"members={path}"[:100])
    for part in parts:
        assert part in message
    assert not (tmp_path / "ran").exists()


def test_payload_runs_when_it_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusals above would mean nothing if the payload were harmless."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Payload())).close()  # noqa: S301
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file_names_its_permissions(tmp_path: Path) -> None:
    path = text(GOOD)(tmp_path)
    path.chmod(0)
    with pytest.raises(InputError, match="permissions"):
        read_table(path, field="people")


def test_all_problems_of_a_file_come_together(tmp_path: Path) -> None:
    path = text("age,q,z\n-1,x,1\n2.5,y,1\n,y,1\n")(tmp_path)
    rules = (*COLUMNS, Column("q", "int"), Column("z", unique=True))
    with pytest.raises(InputError) as caught:
        read_table(path, field="people", columns=rules, min_rows=10)
    problems = [problem.problem for problem in caught.value.problems]
    starts = [
        "column 'income' is missing",
        "has 3 rows, too few",
        "column 'age': missing",
        "column 'age': not a whole number",
        "column 'q': not a number",
        "column 'z': a repeat of an earlier row in 2 of 3 rows, first in line 3",
    ]
    assert [problem[: len(start)] for problem, start in zip(problems, starts, strict=True)] == starts


def test_safetensors_of_a_foreign_type_names_the_type(tmp_path: Path) -> None:
    header = b'{"x":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    path = raw(len(header).to_bytes(8, "little") + header + b"\x00\x00")(tmp_path)
    with pytest.raises(InputError, match=r"'x' has type F8_E4M3.*float32"):
        read_arrays(path, field="weights")


def test_damaged_safetensors_values_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w"
    save_file({"x": np.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="damaged safetensors"):
        read_arrays(path, field="weights")
