"""No bytes, however broken, bring anything but an InputError out of a reader."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from kfp_methods.artifacts import (
    Array,
    Column,
    digest,
    format_of,
    onnx_session,
    read_arrays,
    read_table,
    read_tensors,
    refuse_program,
)
from kfp_methods.errors import InputError


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.arange(6.0).reshape(2, 3), y=np.arange(2))
    return stream.getvalue()


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(6.0))
    return stream.getvalue()


FRAME = pd.DataFrame({"x": [1.5, 2.5], "s": ["a", "b"], "i": [1, 2]})
SOUND = {
    "csv": FRAME.to_csv(index=False).encode(),
    "csv.gz": gzip.compress(FRAME.to_csv(index=False).encode()),
    "jsonl": FRAME.to_json(orient="records", lines=True).encode(),
    "parquet": FRAME.to_parquet(index=False),
    "npz": _npz(),
    "npy": _npy(),
    "safetensors": save({"x": np.ones(3)}),
}
READERS: dict[str, Callable[[Path], object]] = {
    "read_table": lambda path: read_table(
        path,
        field="f",
        columns=[Column("x", nullable=True, ge=0), Column("s", "category"), Column("i", "int", unique=True)],
        max_bytes=2**24,
    ),
    "read_table_undeclared": lambda path: read_table(path, field="f", extra=Column("*", "str"), max_bytes=2**24),
    "read_table_bool": lambda path: read_table(
        path, field="f", columns=[Column("x", "bool", allowed=(True,)), Column("i", "float")], max_bytes=2**24
    ),
    "read_arrays": lambda path: read_arrays(path, field="f", arrays=[Array("x", shape=("n", 3))], max_bytes=2**24),
    "read_tensors": lambda path: read_tensors(path, field="f", max_bytes=2**24),
    "refuse_program": lambda path: refuse_program(path, field="f"),
    "onnx_session": lambda path: onnx_session(path, field="f"),
}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound file with some bytes replaced, cut out or put in."""
    content = bytearray(draw(st.sampled_from(sorted(SOUND.values()))))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(content)))
        action = draw(st.sampled_from(["replace", "cut", "insert"]))
        if action == "replace" and place < len(content):
            content[place] = draw(st.integers(0, 255))
        elif action == "cut":
            del content[place : place + draw(st.integers(1, 40))]
        else:
            content[place:place] = draw(st.binary(max_size=20))
    return bytes(content)


CSV_LIKE = st.text(st.sampled_from(list("xsi019.-+eE,;\t|\"'\n\r {}[]:NaInf\ufeffé")), max_size=80).map(str.encode)


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning", "ignore:Reading `.npy`")
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.one_of(st.binary(max_size=200), damaged(), CSV_LIKE))
def test_any_bytes_give_a_result_or_an_input_error(reader: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(content)
    message = None
    try:
        READERS[reader](path)
    except InputError as error:
        message = str(error)
    assert message is None or message.startswith("f=")
    format_of(path)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.dictionaries(
        st.lists(st.text("abc.", min_size=1, max_size=3).filter(lambda n: n.strip(".")), min_size=1, max_size=2)
        .map("/".join)
        .map(lambda name: f"{name}~"),
        st.binary(max_size=20),
        min_size=1,
        max_size=4,
    ),
    change=st.binary(min_size=1, max_size=3),
)
def test_digest_follows_content_and_names_alone(
    files: dict[str, bytes], change: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def write(contents: dict[str, bytes]) -> Path:
        folder = tmp_path_factory.mktemp("copy")
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder

    one = digest(write(files))
    assert digest(write(dict(reversed(files.items())))) == one
    name = next(iter(files))
    assert digest(write({**files, name: files[name] + change})) != one
    assert digest(write({**files, "new~": b""})) != one
    renamed = {("renamed~" if key == name else key): value for key, value in files.items()}
    assert digest(write(renamed)) != one


def test_digest_of_a_file_is_its_sha256(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    path.write_bytes(b"")
    assert digest(path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_digest_tells_a_name_from_content(tmp_path: Path) -> None:
    for folder, files in {"one": {"ab": b"c"}, "two": {"a": b"bc"}}.items():
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_bytes(content)
    assert digest(tmp_path / "one") != digest(tmp_path / "two")
