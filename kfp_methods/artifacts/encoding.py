"""Text is UTF-8, or an error names the line that is not."""

from __future__ import annotations

import codecs
from mmap import mmap

from kfp_methods.artifacts.files import Source
from kfp_methods.errors import InputError

_BLOCK = 2**20


def not_utf8(source: Source, data: mmap | bytes) -> InputError | None:
    """The error that names the first byte of `data` that is not UTF-8, or None."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        try:
            decoder.decode(block, final=start + _BLOCK >= len(data))
        except UnicodeDecodeError as error:
            line += bytes(error.object[: error.start]).count(b"\n")
            byte = error.object[error.start]
            return source.error(
                f"line {line} is not UTF-8 text (byte 0x{byte:02x})",
                "Save it as UTF-8, for instance: iconv -f ISO-8859-1 -t UTF-8",
            )
        line += block.count(b"\n")
    return None
