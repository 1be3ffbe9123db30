"""A file or folder of the user's that cannot be written to is the user's to mend: exit code 2, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from kfp_methods.errors import InputError, Problem

_ERRORS = {
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOSPC,
    errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
_FULL = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC}


@contextlib.contextmanager
def writing_to(field: str, path: Path) -> Iterator[None]:
    """Raises InputError on the input `field` when a place in or around `path` cannot be written to."""
    try:
        yield
    except OSError as error:
        raise refusal(error, field, path) from None


def refusal(error: OSError, field: str = "", path: Path | None = None) -> Exception:
    """The InputError that says so; the very error when it is of another kind."""
    # Some places take no folder at all, such as those below /proc, where the system says "no such file".
    places = [] if path is None else [str(place) for place in (path, *path.parents)]
    takes_none = error.errno == errno.ENOENT and error.filename in places
    if error.errno is None or (error.errno not in _ERRORS and not takes_none):
        return error
    reason = os.strerror(error.errno)
    remedy = "Make room there, or choose another place" if error.errno in _FULL else "Choose one that you may write to"
    place = error.filename if path is None else str(path)
    field = field or ("file" if place else "standard output")
    elsewhere = f" ({error.filename})" if path is not None and error.filename not in (None, str(path)) else ""
    return InputError(Problem(field, place, f"cannot be written to: {reason}{elsewhere}", remedy))
