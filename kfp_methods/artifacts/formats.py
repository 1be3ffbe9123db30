"""A file's format is read from its content, for upstream artifacts have no suffix; a name is only a hint."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import pickletools
import re
import zipfile
import zlib
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path

from kfp_methods.artifacts.files import GIB, Source, folder_files, readable_file

HEAD = 64 * 1024
_SAFETENSORSHEADER = 100 * 2**20  # the format's own bound on its JSON header


class Format(StrEnum):
    """What a file is; each value reads after "is"."""

    TEXT = "delimited text"
    JSONL = "JSON lines"
    PARQUET = "a Parquet file"
    NPY = "a NumPy .npy file"
    NPZ = "a NumPy .npz archive"
    SAFETENSORS = "a safetensors file"
    JSON_ARRAY = "a JSON array"
    UTF16 = "UTF-16 text"
    HTML = "an HTML page"
    LFS_POINTER = "a Git LFS pointer, not the file it stands for"
    GZIP = "a gzip file"
    COMPRESSED = "a compressed file (bzip2, xz or zstd)"
    ZIP = "a zip archive"
    ZIP_CUT_SHORT = "a zip archive without its end (NPZ files and Excel workbooks are zip archives)"
    EXCEL = "an Excel workbook"
    ARROW = "an Arrow/Feather file"
    HDF5 = "an HDF5 file"
    SQLITE = "an SQLite database"
    PDF = "a PDF document"
    BINARY = "binary data of an unknown format"
    PICKLE = "a pickle (also written by joblib and torch.save)"
    TORCH_CHECKPOINT = "a PyTorch checkpoint (a zipped pickle)"
    TORCHSCRIPT = "a TorchScript archive"
    TORCH_EXPORT = "a torch.export (.pt2) archive"
    KERAS = "a Keras archive"


PROGRAMS = frozenset({Format.PICKLE, Format.TORCH_CHECKPOINT, Format.TORCHSCRIPT, Format.TORCH_EXPORT, Format.KERAS})
SAFE_MODEL = (
    "Give the weights as safetensors (safetensors.torch.save_file(model.state_dict(), 'model.safetensors')), "
    "a Hugging Face folder from save_pretrained(safe_serialization=True), or an ONNX file"
)

_MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"PAR1", Format.PARQUET),
    (b"\x93NUMPY", Format.NPY),
    (b"PK\x03\x04", Format.ZIP),
    (b"PK\x05\x06", Format.ZIP),
    (b"\x1f\x8b", Format.GZIP),
    (b"BZh", Format.COMPRESSED),
    (b"\xfd7zXZ\x00", Format.COMPRESSED),
    (b"\x28\xb5\x2f\xfd", Format.COMPRESSED),
    (b"\x89HDF\r\n\x1a\n", Format.HDF5),
    (b"ARROW1", Format.ARROW),
    (b"\xd0\xcf\x11\xe0", Format.EXCEL),
    (b"SQLite format 3\x00", Format.SQLITE),
    (b"%PDF-", Format.PDF),
    (b"version https://git-lfs", Format.LFS_POINTER),
    (b"\xff\xfe", Format.UTF16),
    (b"\xfe\xff", Format.UTF16),
)
_REMEDIES = {
    Format.JSON_ARRAY: "Write one object a line: frame.to_json(path, orient='records', lines=True)",
    Format.UTF16: "Save it as UTF-8: iconv -f UTF-16 -t UTF-8",
    Format.HTML: "The address gives a page (a login or an error?), not the file: give the file's own address",
    Format.LFS_POINTER: "Fetch the file itself: git lfs pull",
    Format.COMPRESSED: "Unpack it, or compress it with gzip",
    Format.ZIP: "Unpack it and give the file inside",
    Format.ZIP_CUT_SHORT: "It is cut short or damaged: copy or write it again",
}
# Compressed pickles are what joblib.dump(compress=…) writes.
_UNPACKERS: tuple[tuple[tuple[bytes, ...], Callable[[], object]], ...] = (
    ((b"\x1f\x8b",), lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    ((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), zlib.decompressobj),
    ((b"BZh",), bz2.BZ2Decompressor),
    ((b"\xfd7zXZ\x00", b"\x5d\x00\x00"), lzma.LZMADecompressor),
)
_TEXT_PICKLE = re.compile(rb"\(?(?:[ld]p\d+\n)?\(?c[\w.]+\n[\w.]+\n(?:p\d+\n|q.)?[()]", re.DOTALL)


def format_of(path: Path) -> Format:
    """The format of the file at `path`, by its first 64 KiB (for a zip archive, by its directory)."""
    path = Path(path)
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    found = format_of_head(head, size=path.stat().st_size, name=path.name)
    return _zip_format(path) if found is Format.ZIP else found


def format_of_head(head: bytes, *, size: int, name: str) -> Format:
    """The format of `size` bytes that begin with `head`; `name` is a hint where the bytes leave a doubt."""
    for magic, known in _MAGIC:
        if head.startswith(magic) and not _packs_a_pickle(head):
            return known
    if _is_safetensors(head):
        return Format.SAFETENSORS
    if _is_pickle(head, complete=len(head) == size) or _packs_a_pickle(head):
        return Format.PICKLE
    return _text_format(head, name)


def expect(source: Source, accepted: Collection[Format], *, instead: str) -> Format:
    """The format of a file, known to be one of `accepted`.

    Raises:
        InputError: when it is another, saying which, and `instead` or what turns that format into an accepted
            one.
    """
    found = format_of(source.path)
    if found in accepted:
        return found
    if found in PROGRAMS:
        raise source.error(f"is {found}: a program that runs when it is loaded, not data", instead)
    raise source.error(f"is {found}", _REMEDIES.get(found, instead))


def refuse_program(path: Path, *, field: str, instead: str = SAFE_MODEL, max_bytes: int = 64 * GIB) -> None:
    """Raises InputError when the file, or a file in the folder, is a program in disguise, whatever its name.

    Programs are pickles (joblib's too, compressed or not), `torch.save` checkpoints, TorchScript,
    torch.export archives and Keras archives: loading one runs what its author wrote.
    """
    path = Path(path)
    if path.is_dir():
        files = list(folder_files(path, field=field, max_bytes=max_bytes).values())
    else:
        files = [readable_file(path, field=field, max_bytes=max_bytes).path]
    for file in files:
        found = format_of(file)
        if found in PROGRAMS:
            raise Source(file, field).error(f"is {found}: a program that runs when it is loaded, not data", instead)


def _zip_format(path: Path) -> Format:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        return Format.ZIP_CUT_SHORT
    last = [name.rsplit("/", 1)[-1] for name in names]
    if "data.pkl" in last or "constants.pkl" in last:
        script = any("/code/" in f"/{name}" for name in names)
        return Format.TORCHSCRIPT if script else Format.TORCH_CHECKPOINT
    if {"serialized_exported_program.json", "archive_format"} & set(last):
        return Format.TORCH_EXPORT
    if "model.weights.h5" in last:
        return Format.KERAS
    if "xl/workbook.xml" in names:
        return Format.EXCEL
    return Format.NPZ if all(name.endswith(".npy") for name in names) else Format.ZIP


def _is_safetensors(head: bytes) -> bool:
    """Whether the file begins as one does; one that is cut short inside its header too."""
    length = int.from_bytes(head[:8], "little")
    return head[8:9] == b"{" and 2 <= length <= _SAFETENSORSHEADER


def _is_pickle(head: bytes, *, complete: bool) -> bool:
    if head[:1] == b"\x80":
        return len(head) > 1 and 2 <= head[1] <= 5
    if _TEXT_PICKLE.match(head):
        return True
    if not complete:
        return False
    try:  # protocols 0 and 1 have no magic: it is a pickle when it disassembles to its end (nothing is run)
        pickletools.dis(head, out=io.StringIO())
    except Exception:
        return False
    return True


def _packs_a_pickle(head: bytes) -> bool:
    for magics, unpacker in _UNPACKERS:
        if head.startswith(magics):
            try:
                inside = unpacker().decompress(head, HEAD)  # type: ignore[attr-defined]
            except (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError):
                return False
            return _is_pickle(inside, complete=False)
    return False


def _text_format(head: bytes, name: str) -> Format:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:15].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return Format.HTML
    if b"\x00" in head:
        return Format.UTF16 if _is_utf16(head) else _with_nul(head)
    delimited = any(part in ("csv", "tsv") for part in name.lower().split(".")[1:])
    if start.startswith(b"{") and not delimited:
        return Format.JSONL
    if start.startswith((b"[{", b"[[", b"[\n", b"[ ")) and not delimited:
        return Format.JSON_ARRAY
    return Format.TEXT


def _is_utf16(head: bytes) -> bool:
    """Whether two bytes a character make text of it; arrays of zeros and ones are half NULs too."""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = codecs.decode(head[: len(head) // 2 * 2], encoding, "replace")
        if sum(letter.isascii() and (letter.isprintable() or letter in "\t\r\n") for letter in text) > 0.7 * len(text):
            return True
    return False


def _with_nul(head: bytes) -> Format:
    # A few NULs in what is otherwise text are a damaged text file, better reported with their place.
    printable = sum(byte >= 32 or byte in b"\t\r\n" for byte in head)
    return Format.TEXT if printable > 0.9 * len(head) else Format.BINARY
