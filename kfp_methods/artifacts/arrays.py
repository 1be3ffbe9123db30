"""A NPY, NPZ or safetensors file becomes arrays whose shapes and values are what the method declared."""

from __future__ import annotations

import difflib
import io
import json
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import safetensors

from kfp_methods import wording
from kfp_methods.artifacts.columns import FLOAT32_MAX, TOO_LARGE
from kfp_methods.artifacts.files import GIB, Source, folder_files, readable_file, too_large
from kfp_methods.artifacts.formats import Format, expect
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, token

MAX_ARRAY_BYTES = 16 * GIB
_WRITE = "Write the arrays with numpy.savez(path, x=x) or safetensors.numpy.save_file({'x': x}, path)"


_WEIGHTS = "Write the weights with safetensors.torch.save_file(model.state_dict(), path)"
_SAFETENSORS_TYPES = {
    "F64": "f8", "F32": "f4", "F16": "f2", "BF16": "f4", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
    "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    zlib.error,
    zipfile.BadZipFile,
    MemoryError,
    OverflowError,
)


@dataclass(frozen=True)
class Array:
    """An array a method reads, and what it must be.

    `shape` has an entry for each axis: a length, None for any, or a name such as "n" that stands for the same
    length wherever it appears in the file. `kind`: "float" takes any real numbers (whole ones become
    float64), "int" whole number types, "bool" booleans or 0/1, "str" text of fixed width (never objects).
    `finite`: are NaN and infinities refused?
    `single`: must finite numbers stay finite in float32, in which the method computes? `ge`, `le` bound each
    entry.
    """

    name: str
    ndim: int | None = None
    shape: Sequence[int | str | None] | None = None
    kind: Literal["float", "int", "bool", "str"] = "float"
    finite: bool = True
    single: bool = False
    ge: float | None = None
    le: float | None = None
    required: bool = True


@dataclass(frozen=True)
class _Stored:
    """An array in a file, known from the file's directory, and how to read it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], np.ndarray]


def read_arrays(
    path: Path,
    *,
    field: str,
    arrays: Sequence[Array] = (),
    extra: Literal["allow", "forbid"] = "allow",
    max_bytes: int = MAX_ARRAY_BYTES,
) -> dict[str, np.ndarray]:
    """The arrays in a NPZ, NPY or safetensors file, by name, checked.

    Names, shapes and types are checked from the file's directory before any values are read; nothing pickled
    is ever loaded. A NPY file's one array takes the name of the one declared array, or "array". bfloat16
    becomes float32. Byte order becomes the machine's.

    Args:
        arrays: what the file must hold.
        extra: "allow" also reads arrays that are not declared, "forbid" refuses them.
        max_bytes: bound on the file and on what it unpacks to.

    Raises:
        InputError: with an entry for each thing wrong in the file.
    """
    source = readable_file(path, field=field, max_bytes=max_bytes)
    found = expect(source, {Format.NPZ, Format.NPY, Format.SAFETENSORS}, instead=_how_to_write(arrays))
    opened = {Format.NPZ: _open_npz, Format.NPY: _open_npy, Format.SAFETENSORS: _open_safetensors}[found]
    with opened(source, max_bytes) as stored:
        if found is Format.NPY:
            required = [array for array in arrays if array.required] or list(arrays)
            stored = {required[0].name if len(required) == 1 else "array": stored["array"]}
        problems = _layout_problems(source, stored, arrays, extra)
        if problems:
            raise InputError(problems)
        values = {name: _read(source, name, entry) for name, entry in stored.items()}
    for array in arrays:
        if array.name in values:
            values[array.name], found_problems = _checked(source, array, values[array.name])
            problems += found_problems
    if problems:
        raise InputError(problems)
    return values


def _how_to_write(arrays: Sequence[Array]) -> str:
    """With the names that the file must have."""
    names = [array.name for array in arrays if array.required] or ["x"]
    return f"Write the arrays with numpy.savez(path, {', '.join(f'{name}={name}' for name in names)})"


def read_tensors(path: Path, *, field: str, max_bytes: int = MAX_ARRAY_BYTES) -> dict[str, np.ndarray]:
    """The tensors by name in a safetensors file, or in all those of a folder (bfloat16 as float32).

    Raises:
        InputError: for another format, a damaged file, a type numpy lacks (float8), or a name in two files.
    """
    path = Path(path)
    if path.is_dir():
        files = folder_files(path, field=field, max_bytes=max_bytes)
        paths = [file for name, file in files.items() if name.endswith(".safetensors")]
        if not paths:
            raise Source(path, field).error("holds no safetensors file", _WEIGHTS)
    else:
        paths = [path]
    tensors: dict[str, np.ndarray] = {}
    for file in paths:
        source = readable_file(file, field=field, max_bytes=max_bytes)
        expect(source, {Format.SAFETENSORS}, instead=_WEIGHTS)
        with _open_safetensors(source, max_bytes) as stored:
            repeated = sorted(tensors.keys() & stored.keys())
            if repeated:
                raise source.error(f"repeats tensor {token(repeated[0])} of another file", "Keep one file of weights")
            tensors |= {name: _read(source, name, entry) for name, entry in stored.items()}
    return tensors


def _read(source: Source, name: str, entry: _Stored) -> np.ndarray:
    try:
        values = entry.read()
    except (*_DAMAGE, safetensors.SafetensorError):
        raise source.error(f"array {token(name)} is damaged or cut short", "Copy or write the file again") from None
    return values.astype(values.dtype.newbyteorder("="), copy=False)


@contextmanager
def _open_npz(source: Source, max_bytes: int) -> Iterator[dict[str, _Stored]]:
    try:
        archive = zipfile.ZipFile(source.path)
    except (*_DAMAGE, NotImplementedError):
        raise source.error("is a damaged zip archive, perhaps cut short", "Copy or write it again") from None
    with archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > max_bytes:
            raise too_large(source, size, max_bytes, "unpacks to")
        stored: dict[str, _Stored] = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in stored:
                raise source.error(f"holds array {token(name)} twice", _WRITE)
            stored[name] = _member(source, archive, member, name)
        yield stored


def _member(source: Source, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> _Stored:
    def read() -> np.ndarray:
        with archive.open(member) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    try:
        with archive.open(member) as stream:
            shape, dtype = _header(source, stream, member.file_size, name)
    except InputError:
        raise
    except (*_DAMAGE, NotImplementedError):
        raise source.error(f"array {token(name)} is damaged, encrypted or cut short", _WRITE) from None
    return _Stored(shape, dtype, read)


@contextmanager
def _open_npy(source: Source, max_bytes: int) -> Iterator[dict[str, _Stored]]:
    size = source.path.stat().st_size
    with source.path.open("rb") as stream:
        shape, dtype = _header(source, stream, size, "array")
    yield {"array": _Stored(shape, dtype, lambda: np.load(source.path, allow_pickle=False))}


def _header(source: Source, stream: IO[bytes], size: int, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type from a NPY header, known to agree with the `size` bytes that the file has."""
    start = stream.read(12)
    if not start.startswith(b"\x93NUMPY"):
        raise source.error(f"array {token(name)} is not in NumPy's format (a pickle, perhaps)", _WRITE)
    version = start[6]
    head = io.BytesIO(start + stream.read(2**16))
    try:
        np.lib.format.read_magic(head)
        reader = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = reader(head)
    except (*_DAMAGE, KeyError, TypeError, SyntaxError, RecursionError, AttributeError, tokenize.TokenError):
        raise source.error(f"array {token(name)} has a damaged header, or one for records", _WRITE) from None
    if dtype.hasobject:
        raise source.error(
            f"array {token(name)} holds Python objects (a pickle)", "Write an array of numbers: x.astype(float)"
        )
    if dtype.fields is not None:
        raise source.error(f"array {token(name)} holds records", "Write an array for each field")
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != size - head.tell():
        raise source.error(
            f"array {token(name)} is damaged or cut short: its header promises shape {token(shape)} of {dtype}, and "
            f"the file holds {counted(size - head.tell(), 'byte')} for it",
            "Copy or write the file again",
        )
    return shape, dtype


@contextmanager
def _open_safetensors(source: Source, max_bytes: int) -> Iterator[dict[str, _Stored]]:
    try:
        opened = safetensors.safe_open(source.path, framework="np")
    except (*_DAMAGE, safetensors.SafetensorError):
        raise source.error("is a damaged safetensors file, perhaps cut short", "Copy or write it again") from None
    with opened as file:
        stored: dict[str, _Stored] = {}
        for name in file.keys():  # noqa: SIM118 - not a mapping
            about = file.get_slice(name)
            kind = about.get_dtype()
            if kind not in _SAFETENSORS_TYPES:
                raise source.error(f"tensor {token(name)} has type {kind}", "Convert it to float32 before saving")
            read = _bfloat16(source, name) if kind == "BF16" else lambda name=name: file.get_tensor(name)
            stored[name] = _Stored(tuple(about.get_shape()), np.dtype(_SAFETENSORS_TYPES[kind]), read)
        yield stored


def _bfloat16(source: Source, name: str) -> Callable[[], np.ndarray]:
    """Reads a bfloat16 tensor, which numpy lacks, as float32: its bits are float32's upper half."""

    def read() -> np.ndarray:
        with source.path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            entry = json.loads(stream.read(length))[name]
            begin, end = entry["data_offsets"]
            stream.seek(8 + length + begin)
            halves = np.frombuffer(stream.read(end - begin), "<u2")
        return (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])

    return read


def _layout_problems(
    source: Source, stored: Mapping[str, _Stored], arrays: Sequence[Array], extra: str
) -> list[Problem]:
    declared = {array.name for array in arrays}
    unexpected = sorted(stored.keys() - declared)
    problems = [
        _missing(source, array.name, unexpected) for array in arrays if array.required and array.name not in stored
    ]
    if extra == "forbid" and unexpected:
        problem = f"holds arrays that are not expected: {wording.listed(unexpected)}"
        problems.append(source.problem(problem, f"Give only {wording.listed(sorted(declared))}"))
    if not stored:
        problems.append(source.problem("holds no arrays", _WRITE))
    lengths: dict[str, tuple[int, str]] = {}
    for array in arrays:
        if array.name in stored:
            entry = stored[array.name]
            wrong = _kind_problem(array, entry.dtype) or _shape_problem(array, entry.shape, lengths)
            if wrong:
                problems.append(source.problem(f"array {token(array.name)} {wrong[0]}", wrong[1]))
    return problems


def _missing(source: Source, name: str, others: Sequence[str]) -> Problem:
    near = difflib.get_close_matches(name.casefold(), [other.casefold() for other in others], n=1, cutoff=0.6)
    similar = next((other for other in others if near and other.casefold() == near[0]), None)
    listed = wording.listed(others)
    remedy = f"Rename {token(similar)} to {token(name)}" if similar else f"Add it; the file's other arrays: {listed}"
    return source.problem(f"array {token(name)} is missing", remedy)


def _kind_problem(array: Array, dtype: np.dtype[Any]) -> tuple[str, str] | None:
    accepted = {"float": "fiu", "int": "iu", "bool": "biu", "str": "U"}[array.kind]
    if dtype.kind in accepted:
        return None
    wanted, cast = {
        "float": ("numbers", "float"),
        "int": ("whole numbers", "int"),
        "bool": ("booleans", "bool"),
        "str": ("texts", "str"),
    }[array.kind]
    return f"has type {dtype} where {wanted} are expected", f"Convert it before saving: x.astype({cast})"


def _shape_problem(array: Array, shape: tuple[int, ...], lengths: dict[str, tuple[int, str]]) -> tuple[str, str] | None:
    pattern = array.shape
    if pattern is None:
        if array.ndim is None or array.ndim == len(shape):
            return None
        return (
            f"has {counted(len(shape), 'axis', 'axes')} (shape {token(shape)}) where {array.ndim} are expected",
            "Reshape it before saving",
        )
    written = "(" + ", ".join("any" if entry is None else str(entry) for entry in pattern) + ")"
    if len(pattern) != len(shape):
        return f"has shape {token(shape)} where {written} is expected", "Reshape it before saving"
    for axis, (entry, length) in enumerate(zip(pattern, shape, strict=True)):
        if isinstance(entry, int) and entry != length:
            return f"has shape {token(shape)} where {written} is expected", f"Give axis {axis} length {entry}"
        if isinstance(entry, str):
            expected, owner = lengths.setdefault(entry, (length, array.name))
            if expected != length:
                return (
                    f"has shape {token(shape)} where {written} is expected "
                    f"with {entry}={expected}, as in {token(owner)}",
                    f"Give axis {axis} length {expected}, or correct {token(owner)}",
                )
    return None


def _checked(source: Source, array: Array, values: np.ndarray) -> tuple[np.ndarray, list[Problem]]:
    problems: list[Problem] = []

    def add(mask: np.ndarray, what: str, remedy: str) -> None:
        if mask.any():
            index = tuple(int(axis) for axis in np.unravel_index(int(np.argmax(mask)), mask.shape))
            place = f"in row {index[0] + 1}: {array.name}[{', '.join(map(str, index))}]" if index else array.name
            share = f"{int(mask.sum())} of {counted(mask.size, 'entry', 'entries')}"
            problem = f"array {token(array.name)}: {share} {what}, first {place} = {token(values[index])}"
            problems.append(source.problem(problem, remedy))

    if array.kind == "bool" and values.dtype.kind != "b":
        add((values != 0) & (values != 1), "are neither 0 nor 1", "Give booleans: x.astype(bool)")
        return values.astype(bool), problems
    if array.kind == "float" and values.dtype.kind in "iu":
        values = values.astype(np.float64)
    if array.finite and values.dtype.kind == "f":
        add(~np.isfinite(values), "are NaN or infinite", "Give finite numbers")
    if array.single and values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            add(np.isfinite(values) & (np.abs(values) > FLOAT32_MAX), f"are {TOO_LARGE[0]}", TOO_LARGE[1])
    if array.ge is not None:
        add(values < array.ge, f"are below {array.ge:g}", f"Give numbers of at least {array.ge:g}")
    if array.le is not None:
        add(values > array.le, f"are above {array.le:g}", f"Give numbers of at most {array.le:g}")
    return values, problems
