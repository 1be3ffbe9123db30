"""A URI becomes a local file, and a file becomes a checked table, array set or model folder.

Everything here reads data and never runs it: pickles, TorchScript and their like are refused whatever they
are called, and every size is bounded before a byte is read. What is wrong with a user's file is one
`kfp_methods.errors.InputError` with an entry for each problem.

The names below load their module on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfp_methods.artifacts.arrays import Array, read_arrays, read_tensors
    from kfp_methods.artifacts.columns import Column
    from kfp_methods.artifacts.digests import digest
    from kfp_methods.artifacts.formats import Format, format_of, refuse_program
    from kfp_methods.artifacts.models import huggingface_folder, onnx_session
    from kfp_methods.artifacts.tables import read_table
    from kfp_methods.artifacts.uris import fetch, redacted

__all__ = [
    "Array",
    "Column",
    "Format",
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
]

_HOME = {
    "Array": "arrays",
    "Column": "columns",
    "Format": "formats",
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
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
