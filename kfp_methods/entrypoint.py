"""The container's command: KFP's executor input in, the method's outputs and an exit code out.

`python3 -m kfp_methods.entrypoint METHOD --executor-input JSON`. Exit codes: 0 done, 2 the inputs cannot be used
(one line for each wrong field), 1 a fault of ours (traceback), 143 terminated (what was finished is written).
Results are written before MLflow is asked for anything.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kfp_methods.errors import ExitCode, InputError, Problem, Terminated
from kfp_methods.standby import EARLY, end_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_methods.task import Task

log = logging.getLogger("kfp_methods")


def main(arguments: list[str] | None = None) -> int:
    """Runs one method and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m kfp_methods.entrypoint", description=__doc__)
    parser.add_argument("method", help="name of the method")
    parser.add_argument("--executor-input", required=True, help="JSON, or - for a local run's standard input")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger().setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    # Torch's threads spin while they wait for one another. On a machine that others use too, as nodes are, that makes
    # small operations ten times slower; waiting asleep costs large ones nothing.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for number in _SIGNALS:
        signal.signal(number, _terminate)
    try:
        given = options.executor_input
        if given == "-":
            given = _from_standard_input()
        log.info("%s: starting", options.method)
        return run(options.method, given)
    except Terminated:  # before the method was loaded: there is nothing to keep
        return int(ExitCode.TERMINATED)


def _from_standard_input() -> str:
    """The executor input, and with it the environment, of a local run that started this process ahead of time."""
    end_with_parent()
    early, uri = os.environ.pop(EARLY, ""), os.environ.get("MLFLOW_TRACKING_URI", "")
    if early or uri:
        # Without a URI yet it will be the local database, whose store is another half second.
        modules = ["mlflow"] if uri.startswith("http") else ["mlflow", "mlflow.store.tracking.sqlalchemy_store"]
        threading.Thread(target=_import, args=[modules], daemon=True, name="mlflow-import").start()
    import kfp_methods.task  # noqa: F401 (what is slow to import, while the input is on its way)

    text = sys.stdin.read()
    if not text:  # the run ended before it needed this process
        raise Terminated
    message = json.loads(text)
    os.environ.update(message["environment"])
    return str(message["executor_input"])


def _import(modules: Sequence[str]) -> None:
    """Imports parts of MLflow ahead of the tracker, which reports what is wrong with them."""
    from kfp_methods.tracking.settings import quieten_mlflow

    quieten_mlflow()
    gc.disable()  # an import makes much and drops little: looking for garbage would take a fifth of the time
    with contextlib.suppress(ImportError):
        for module in modules:
            importlib.import_module(module)
    gc.freeze()
    gc.enable()


def run(name: str, executor_input: str) -> int:
    """Runs the method `name`; every way to end is an exit code, an MLflow run state and a line in the log."""
    from kfp_methods.task import Task

    started = time.monotonic()
    try:
        folder = tempfile.TemporaryDirectory(prefix="kfp-methods-", ignore_cleanup_errors=True)
    except OSError as error:
        log.error("%s", _no_scratch(error.strerror or str(error)))
        return int(ExitCode.BAD_INPUT)
    with folder as scratch:
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
        task.refuse(error)
        return ExitCode.BAD_INPUT
    except Terminated as error:
        task.error = f"terminated before the end ({error})"
        log.error("%s; writing what is finished", task.error)
        return ExitCode.TERMINATED
    except (Exception, SystemExit) as error:  # a library may call sys.exit
        from kfp_methods.executor import disk_is_full

        if reason := disk_is_full(error):
            task.refuse(InputError(_no_scratch(reason)))
            return ExitCode.BAD_INPUT
        task.error = traceback.format_exc()
        log.exception("a fault of ours, not of the inputs; please report it")
        return ExitCode.FAULT
    return ExitCode.OK


def _no_scratch(reason: str) -> Problem:
    """The outputs' own folder is checked where they are written; what else a run writes is temporary."""
    folder = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 (where Python looks too)
    return Problem("TMPDIR", folder, f"cannot be written ({reason})", "Free some space there, or set TMPDIR")


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _terminate(signum: int, frame: Any) -> None:
    _ignore_signals()
    raise Terminated(signal.Signals(signum).name)


def _ignore_signals() -> None:
    """A signal must not stop what was finished from being written.

    A handler that does nothing, not SIG_IGN: Python raises OSError in the main thread when the handler of a signal that
    it has already noticed is taken away.
    """
    for number in _SIGNALS:
        signal.signal(number, lambda signum, frame: None)


def _exit(code: int) -> NoReturn:
    """Ends the process without taking the libraries apart, which lasts a second once MLflow is there."""
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(main())
