"""The identity of a file or folder is the SHA-256 of its content, wherever it lies."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from kfp_methods.artifacts.files import folder_files, readable_file

_NO_BOUND = 2**63


def digest(path: Path, *, field: str = "path") -> str:
    """SHA-256, in hexadecimal, of a file's bytes or of a folder's relative names and contents.

    A folder's digest does not depend on where it lies, on the order the disk lists it in, on times or on
    permissions; empty folders inside it do not count. Each name is preceded by its length and each content is
    hashed on its own, so that no two different folders feed the hash the same bytes.

    Raises:
        InputError: when `path` is missing or a link inside the folder leads out of it.
    """
    path = Path(path)
    if not path.is_dir():
        if path.is_file() and path.stat().st_size == 0:
            return hashlib.sha256().hexdigest()
        return _of_file(readable_file(path, field=field, max_bytes=_NO_BOUND).path).hex()
    whole = hashlib.sha256()
    for name, file in folder_files(path, field=field, max_bytes=_NO_BOUND).items():
        encoded = os.fsencode(name)
        whole.update(len(encoded).to_bytes(8, "little") + encoded + _of_file(file))
    return whole.hexdigest()


def _of_file(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
