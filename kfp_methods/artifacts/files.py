"""What on disk may be read: regular files within a size bound, and folders whose links stay inside them."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import listed, token

GIB = 2**30
MAX_FILES = 10_000


@dataclass(frozen=True)
class Source:
    """A file or folder that a user gave for an input field; makes the errors that name both."""

    path: Path
    field: str

    def problem(self, problem: str, remedy: str) -> Problem:
        """One entry of an InputError about this file."""
        return Problem(self.field, str(self.path), problem, remedy)

    def error(self, problem: str, remedy: str) -> InputError:
        """An InputError with one entry about this file."""
        return InputError(self.problem(problem, remedy))


def shown_bytes(count: int) -> str:
    """`count` bytes in the unit that reads best: 512 B, 1.5 KiB, 3.0 GiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def too_large(source: Source, size: int, max_bytes: int, what: str = "is") -> InputError:
    """The error for a file that `what` (is, unpacks to …) more than `max_bytes`."""
    return source.error(
        f"{what} {shown_bytes(size)}, more than the {shown_bytes(max_bytes)} allowed here",
        "Give a smaller file, for instance fewer rows or a narrower number type",
    )


def readable_file(path: Path, *, field: str, max_bytes: int) -> Source:
    """The file at `path`, known to be a regular, non-empty, readable file of at most `max_bytes`.

    Raises:
        InputError: when it is missing, a folder, a device, empty, unreadable or too large.
    """
    source = Source(Path(path), field)
    status = _status(source)
    if stat.S_ISDIR(status.st_mode):
        raise source.error(f"is a folder{_inside(source.path)} where a file is expected", "Give the file itself")
    _check_regular(source, status)
    if status.st_size == 0:
        raise source.error("is empty (0 bytes)", "Check the step that wrote it, and give a file with content")
    if status.st_size > max_bytes:
        raise too_large(source, status.st_size, max_bytes)
    return source


def folder_files(folder: Path, *, field: str, max_bytes: int) -> dict[str, Path]:
    """Files of a folder by their relative POSIX name, in the order of those names' bytes.

    A link to a file inside the folder counts as that file; a link to a folder inside it is not followed,
    since what it leads to is listed in its own place.

    Raises:
        InputError: when a link leads outside the folder or nowhere, when an entry is a device, or when there
            are more than `MAX_FILES` files or `max_bytes` bytes.
    """
    source = Source(Path(folder), field)
    root = source.path.resolve()
    found: dict[str, Path] = {}
    total = 0
    for parent, folders, names in os.walk(root):
        for name in folders:
            _check_inside(source, root, Path(parent, name))
        for name in names:
            path = Path(parent, name)
            _check_inside(source, root, path)
            entry = Source(path, field)
            status = _status(entry)
            _check_regular(entry, status)
            found[path.relative_to(root).as_posix()] = path
            total += status.st_size
            if total > max_bytes:
                raise too_large(source, total, max_bytes, "holds at least")
            if len(found) > MAX_FILES:
                raise source.error(f"holds more than {MAX_FILES} files", "Give only the folder that is needed")
    return dict(sorted(found.items(), key=lambda item: os.fsencode(item[0])))


def _inside(folder: Path) -> str:
    try:
        return f" (it holds {listed(sorted(os.listdir(folder)), 5)})"
    except OSError:  # one that may not be listed
        return ""


def _status(source: Source) -> os.stat_result:
    try:
        return source.path.stat()
    except FileNotFoundError:
        if source.path.is_symlink():
            raise source.error("is a link to a file that does not exist", "Give the file itself") from None
        raise source.error("does not exist", "Check the path; it is read on the machine that runs it") from None
    except PermissionError:
        raise source.error("may not be read by this user", "Change its permissions (chmod a+r)") from None
    except ValueError:
        raise source.error("is no path: it holds a NUL character", "Give a plain path") from None
    except OSError as error:
        raise source.error(f"cannot be opened: {error.strerror}", "Give a readable file") from None


def _check_regular(source: Source, status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise source.error("is a device, pipe or socket", "Give a regular file")
    if not os.access(source.path, os.R_OK):
        raise source.error("may not be read by this user", "Change its permissions (chmod a+r)")


def _check_inside(source: Source, root: Path, path: Path) -> None:
    if not path.is_symlink():
        return
    name = path.relative_to(root).as_posix()
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise source.error(f"its link {token(name)} leads nowhere", "Copy the folder with its files: cp -rL") from None
    if not target.is_relative_to(root):
        raise source.error(f"its link {token(name)} leads outside it", "Copy the folder with its files: cp -rL")
