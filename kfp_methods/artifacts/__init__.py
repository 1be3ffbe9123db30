"""A URI becomes a local file, and a file becomes a checked table, array set or model folder.

Everything here reads data and never runs it: pickles, TorchScript and their like are refused whatever they
are called, and every size is bounded before a byte is read. What is wrong with a user's file is one
`kfp_methods.errors.InputError` with an entry for each kind of problem. It calls a row of text by its line in the
file (`line 7`, the header counted) and a row of any other file by its number from 1 (`row 6`); a method that
checks further does the same with `Source(path, field).error(...)` and `row_place(path, row)`.

The names below load their module on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfp_methods.artifacts.arrays import Array, read_arrays, read_tensors
    from kfp_methods.artifacts.columns import Column
    from kfp_methods.artifacts.digests import digest
    from kfp_methods.artifacts.files import Source
    from kfp_methods.artifacts.formats import Format, format_of, refuse_program
    from kfp_methods.artifacts.models import huggingface_folder, onnx_session
    from kfp_methods.artifacts.places import row_place
    from kfp_methods.artifacts.tables import read_table
    from kfp_methods.artifacts.uris import fetch, redacted

__all__ = [
    "Array",
    "Column",
    "Format",
    "Source",
    "digest",
    "fetch",
    "format_of",
    "huggingface_folder",
    "onnx_session",
    "read_arrays",
    "read_table",
    "read_tensors",
    "redacted",
    "refuse_program",
    "row_place",
]

_HOME = {
    "Array": "arrays",
    "Column": "columns",
    "Format": "formats",
    "Source": "files",
    "digest": "digests",
    "fetch": "uris",
    "format_of": "formats",
    "huggingface_folder": "models",
    "onnx_session": "models",
    "read_arrays": "arrays",
    "read_table": "tables",
    "read_tensors": "arrays",
    "redacted": "uris",
    "refuse_program": "formats",
    "row_place": "places",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
