"""The container's command: KFP's executor input in, the method's outputs and an exit code out.

`python3 -m kfp_methods.entrypoint METHOD --executor-input JSON`. Exit codes: 0 done, 2 the inputs cannot be used
(one line for each wrong field), 1 a fault of ours (traceback), 143 terminated (what was finished is written).
Results are written before MLflow is asked for anything.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_methods.errors import ExitCode, InputError, Terminated

if TYPE_CHECKING:
    from kfp_methods.task import Task

log = logging.getLogger("kfp_methods")


def main(arguments: list[str] | None = None) -> int:
    """Runs one method and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m kfp_methods.entrypoint", description=__doc__)
    parser.add_argument("method", help="name of the method")
    parser.add_argument("--executor-input", required=True, help="JSON, or @FILE with it")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger().setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    log.info("%s: starting", options.method)
    for number in _SIGNALS:
        signal.signal(number, _terminate)
    text = options.executor_input
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        return run(options.method, text)
    except Terminated:  # before the method was loaded: there is nothing to keep
        return int(ExitCode.TERMINATED)


def run(name: str, executor_input: str) -> int:
    """Runs the method `name`; every way to end is an exit code, an MLflow run state and a line in the log."""
    from kfp_methods.task import Task

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kfp-methods-") as scratch:
        task = Task(name, executor_input, Path(scratch), os.environ)
        code = _attempt(task)
        _ignore_signals()
        code = task.finish(code, time.monotonic() - started)
    log.info("%s: exit code %d after %.1f s", name, code, time.monotonic() - started)
    return int(code)


def _attempt(task: Task) -> ExitCode:
    try:
        task.prepare()
        task.execute()
    except InputError as error:
        task.error = str(error)
        log.error("the inputs cannot be used:\n%s", error)
        return ExitCode.BAD_INPUT
    except Terminated:
        task.error = "terminated before the end (SIGTERM)"
        log.error("%s; writing what is finished", task.error)
        return ExitCode.TERMINATED
    except (Exception, SystemExit):  # a library may call sys.exit
        task.error = traceback.format_exc()
        log.exception("a fault of ours, not of the inputs; please report it")
        return ExitCode.FAULT
    return ExitCode.OK


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _terminate(signum: int, frame: Any) -> None:
    _ignore_signals()
    raise Terminated


def _ignore_signals() -> None:
    """A signal must not stop what was finished from being written."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
