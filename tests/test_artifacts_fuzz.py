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
from kfp_methods.wording import TOKEN


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


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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


SECRET = st.text(st.sampled_from("QXZJKW0123456789+/$"), min_size=45, max_size=150)
SHAPES: dict[str, Callable[[str], bytes]] = {
    # a secret in each place of a file that a reader looks at
    "bare": lambda secret: secret.encode(),
    "lines": lambda secret: f"{secret}\n{secret}\n".encode(),
    "shadow": lambda secret: f"root:{secret}:19000:0\ndaemon:*:19000:0\n".encode(),
    "quoted": lambda secret: f'"{secret}\n'.encode(),
    "column": lambda secret: f"x,{secret}\n1,2\n".encode(),
    "columns": lambda secret: f"{secret},{secret}\n1,2\n".encode(),
    "cell": lambda secret: f"x,s,i\n{secret},a,{secret}\n".encode(),
    "ragged": lambda secret: f"x,s,i\n1,a,1\n{secret}\n".encode(),
    "ragged_header": lambda secret: f"{secret}\n1,2\n".encode(),
    "latin_1": lambda secret: f"x,s,i\n1,{secret}\xff,1\n".encode("latin-1"),
    "nul": lambda secret: f"x,s,i\n1,{secret}\0,1\n".encode(),
    "json": lambda secret: f'{{"{secret}":"{secret}"}}'.encode(),
    "json_lines": lambda secret: f'{{"x":1,"s":"a","i":1}}\n{{"x":"{secret}","s":1,"i":1}}\n'.encode(),
    "json_twice": lambda secret: f'{{"{secret}":1,"{secret}":2}}'.encode(),
    "json_broken": lambda secret: f'{{"x":1}}\n{secret}\n'.encode(),
    "json_value": lambda secret: f'{{"x":"{secret}","s":["{secret}"],"i":"{secret}"}}'.encode(),
    "html": lambda secret: f"<html>{secret}".encode(),
    "parquet": lambda secret: pd.DataFrame({"x": [secret], "s": [secret], "i": [secret], secret: [1]}).to_parquet(),
    "npz": lambda secret: _npz_of(**{secret.replace("/", "_"): np.ones(2)}),
    "npz_text": lambda secret: _npz_of(x=np.array([secret])),
    "safetensors": lambda secret: save({secret: np.ones(2)}),
    "safetensors_broken": lambda secret: (200).to_bytes(8, "little") + f'{{"{secret}"'.encode(),
}


def _npz_of(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning", "ignore:Reading `.npy`")
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(secret=SECRET)
def test_errors_repeat_no_more_of_a_file_than_a_token(shape: str, secret: str, tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(SHAPES[shape](secret))
    for reader in READERS.values():
        message = _message(reader, path)
        pieces = [secret[start : start + TOKEN + 1] for start in range(len(secret) - TOKEN)]
        assert not any(piece in message for piece in pieces), message


@pytest.mark.parametrize("shape", ["bare", "lines", "shadow", "quoted", "ragged_header", "json", "json_broken", "html"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(secret=SECRET)
def test_errors_repeat_nothing_of_a_file_of_another_kind(shape: str, secret: str, tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(SHAPES[shape](secret))
    for name, reader in READERS.items():
        message = _message(reader, path)
        assert name not in ("read_table", "read_arrays") or message
        assert not any(secret[start : start + 12] in message for start in range(len(secret) - 11)), message


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.one_of(st.binary(min_size=60, max_size=400), st.text(min_size=60, max_size=300).map(_encoded)))
def test_errors_about_random_files_repeat_no_more_than_a_token(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(content)
    texts = [content.decode(encoding, "replace") for encoding in ("utf-8", "latin-1")]
    for reader in READERS.values():
        message = _message(reader, path)
        for text in texts:
            assert not any(text[start : start + TOKEN + 1] in message for start in range(len(text) - TOKEN))


def _message(reader: Callable[[Path], object], path: Path) -> str:
    try:
        reader(path)
    except InputError as error:
        return str(error)
    return ""


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
