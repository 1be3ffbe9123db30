"""A task's process that is started before its input is known, and imports meanwhile what is slow to import.

Only the standard library is imported here: the command line starts such a process before it does anything else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

ENTRYPOINT = ["python3", "-m", "kfp_methods.entrypoint"]
_WATCH_SECONDS = 0.5
EARLY = "KFP_METHODS_EARLY"  # tells the process that it will be tracked, before it is known where
_NO_SUBPROCESS = {"-h", "--help", "docker", "--runner=docker"}


class Standby:
    """The process; `take` gives it to the first task that it is for, and at the end of the block it is gone."""

    def __init__(self, method: str, environment: Mapping[str, str]) -> None:
        self.command = [sys.executable, *ENTRYPOINT[1:], method, "--executor-input"]
        self._child: subprocess.Popen[bytes] | None = start(self.command, environment)

    def __enter__(self) -> Standby:
        return self

    def __exit__(self, *_: object) -> None:
        if child := self.take(self.command):
            child.kill()  # it has done nothing yet, and waits
            child.communicate()

    def take(self, command: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """The process, if it is for this command and nobody had it before."""
        if list(command) != self.command:
            return None
        child, self._child = self._child, None
        return child


def ahead_of(arguments: Sequence[str]) -> Standby | None:
    """For a command line `run METHOD …` that will need one."""
    wanted = len(arguments) > 1 and arguments[0] == "run" and arguments[1].isidentifier()
    if not wanted or _NO_SUBPROCESS & set(arguments):
        return None
    return Standby(arguments[1], {EARLY: "1"})


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A task's process, which waits for its executor input.

    Its standard output joins its standard error: ours stays free for `--json`. The executor input comes by standard
    input, for an argument of a command holds 128 KiB at most on Linux.
    """
    return subprocess.Popen(  # noqa: S603
        [*command, "-"], stdin=subprocess.PIPE, stdout=_stderr(), stderr=_stderr(), env={**os.environ, **environment}
    )


def end_with_parent() -> None:
    """To be called by such a process: when the one that started it is gone, however it went, it gets SIGTERM.

    A process that is killed cannot pass anything on. Linux has a signal for a parent's death, but sends it when the
    starting thread ends; an orphan has another parent everywhere.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError):
        return 2
