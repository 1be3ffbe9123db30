"""A KFP pipeline runs on this machine through kfp.local: in subprocesses, or in the real images with Docker."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kfp_methods.containers import docker_runner, require_images, stop_containers
from kfp_methods.errors import ExitCode
from kfp_methods.standby import ENTRYPOINT, Standby, start
from kfp_methods.task import SUMMARY_FILE

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class LocalRun:
    """How a local pipeline ended; `summaries` has one entry for each task of ours, in order of end.

    exit_code: that of the first task that failed; 143 after SIGTERM and 130 after SIGINT (Ctrl-C), which reach the
        tasks as SIGTERM.
    failure: what kfp.local said of a failed pipeline, or "".
    """

    folder: Path
    exit_code: int
    log: Path
    summaries: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""


def run_pipeline(
    pipeline: Any,
    arguments: Mapping[str, Any],
    *,
    root: Path,
    runner: Literal["subprocess", "docker"] = "subprocess",
    environment: Mapping[str, str] | None = None,
    network: str = "none",
    verbose: bool = False,
    standby: Standby | None = None,
) -> LocalRun:
    """Runs a compiled pipeline function with kfp.local below the folder `root`.

    The tasks' own logs go to standard error; kfp.local's go to a file in the run's folder, or with `verbose`
    to standard error too. SIGINT and SIGTERM are passed on to the tasks, which write what they have finished.
    `network` is the containers' Docker network; with "none" they reach no MLflow server.
    `standby` is a process for the first task of its method.

    Raises:
        InputError: there is no Docker engine, or the images or the network are not there.
        OSError: `root` cannot be written to.
    """
    from kfp import local

    if runner == "docker":
        require_images(_images(pipeline.pipeline_spec), network)
    job = uuid.uuid4().hex
    root = root.resolve()
    folder = root / f"{pipeline.name}-{job[:8]}"
    (folder / "workspace").mkdir(parents=True)
    log = folder / "kfp-local.log"
    # Several tasks are nested under one MLflow run, as on a cluster; one task is a run of its own.
    job_id = {"KFP_RUN_ID": job} if len(pipeline.pipeline_spec.root.dag.tasks) > 1 else {}
    env = {**job_id, **(environment or {})}
    local.init(
        runner=docker_runner(root, env, job, network) if runner == "docker" else local.SubprocessRunner(use_venv=False),
        pipeline_root=str(folder),
        workspace_root=str(folder / "workspace"),
        raise_on_error=True,
    )
    pipeline = _with_empty_defaults(pipeline)
    tasks = _Tasks(job, env, standby)
    with log.open("w", encoding="utf-8") as stream, _environment(env), tasks.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = sys.stderr if verbose else stream
        with contextlib.redirect_stdout(target):
            failure = _failure(lambda: pipeline(**arguments))
        print(failure, file=target)
    summaries = [*tasks.killed, *_summaries(folder)]
    codes = [summary["exit_code"] for summary in summaries]
    unexplained = ExitCode.TERMINATED if tasks.stopped_by else ExitCode.FAULT
    code = next((code for code in codes if code), int(unexplained) if failure else 0)
    if code == ExitCode.TERMINATED and tasks.stopped_by:
        code = 128 + tasks.stopped_by
    return LocalRun(folder, code, log, summaries, failure)


def _images(spec: Any) -> set[str]:
    """Those of our tasks."""
    executors = spec.deployment_spec["executors"]
    return {str(executors[label]["container"]["image"]) for label in executors if _is_ours(spec, label)}


def _with_empty_defaults(pipeline: Any) -> Any:
    """A copy of the pipeline in which our inputs that have no default may be left out.

    Kubernetes leaves them out of the executor input. kfp.local fails: it has no value for them, and takes none that
    is not of the input's type. So they become an empty text, which the contract reads as "not given".
    """
    from kfp.pipeline_spec.pipeline_spec_pb2 import ParameterType

    pipeline = copy.deepcopy(pipeline)
    spec = pipeline.pipeline_spec
    for component in (spec.root, *spec.components.values()):
        if component.executor_label and not _is_ours(spec, component.executor_label):
            continue
        for parameter in component.input_definitions.parameters.values():
            if parameter.is_optional and not parameter.HasField("default_value"):
                parameter.default_value.string_value = ""
                parameter.parameter_type = ParameterType.STRING
    return pipeline


def _is_ours(spec: Any, executor_label: str) -> bool:
    executor = spec.deployment_spec["executors"][executor_label]
    return "container" in executor and list(executor["container"]["command"])[:3] == ENTRYPOINT


def _failure(run: Callable[[], object]) -> str:
    """What kfp.local says when a task fails, also one that is not ours and leaves no summary; else ""."""
    try:
        run()
    except RuntimeError as error:  # kfp.local has no type of its own for it
        return _COLOURS.sub("", str(error)) or "the pipeline failed"
    return ""


class _Tasks:
    """Replaces kfp.local's subprocess handler while a pipeline runs, and passes signals on to its tasks."""

    def __init__(self, job: str, environment: Mapping[str, str], standby: Standby | None) -> None:
        self.job, self.environment, self.standby = job, environment, standby
        self.children: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.stopped_by = 0
        self.killed: list[dict[str, Any]] = []  # what stands for the summaries that these could not write

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        from kfp.local import subprocess_task_handler as module

        original = module.SubprocessTaskHandler
        module.SubprocessTaskHandler = _handler(original, self)
        main_thread = threading.current_thread() is threading.main_thread()
        previous = {number: signal.signal(number, self._stop) for number in _SIGNALS} if main_thread else {}
        try:
            yield
        finally:
            module.SubprocessTaskHandler = original
            for number, handler in previous.items():
                signal.signal(number, handler)

    def run(self, command: list[str], executor_input: str, environment: Mapping[str, str]) -> int:
        """The exit code of a task's process."""
        environment = {**self.environment, **environment}
        with self.lock:
            if self.stopped_by:
                return int(ExitCode.TERMINATED)
            child = (self.standby and self.standby.take(command)) or start(command, environment)
            self.children.add(child)
        child.communicate(json.dumps({"environment": environment, "executor_input": executor_input}).encode())
        with self.lock:
            self.children.discard(child)
            if child.returncode < 0 and not self.stopped_by:
                self.killed.append(_killed(command, executor_input, -child.returncode))
        return child.returncode

    def _stop(self, number: int, frame: Any) -> None:
        self.stopped_by = self.stopped_by or number
        for child in list(self.children):
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        stop_containers(self.job)


def _killed(command: list[str], executor_input: str, number: int) -> dict[str, Any]:
    """The summary of a task whose process was ended from outside, which it could not write."""
    method = command[command.index("kfp_methods.entrypoint") + 1]
    seed = json.loads(executor_input)["inputs"].get("parameterValues", {}).get("seed")
    error = f"its process was ended by signal {number} ({signal.Signals(number).name})"
    if number == signal.SIGKILL:
        error += "; where nobody sent it, the machine ran out of memory"
    print(f"{method}{'' if seed is None else f', seed {int(seed)}'}: {error}", file=sys.stderr)
    whose = {"method": method, "seed": None if seed is None else int(seed)}
    return {**whose, "exit_code": 128 + number, "error": error, "outputs": {}, "warnings": []}


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _handler(base: Any, tasks: _Tasks) -> type:
    """kfp.local's handler, which refuses container components, accepting ours (kubeflow/pipelines#11793)."""
    from kfp.local.status import Status

    class EntrypointTaskHandler(base):
        def validate_image(self, image: str) -> None:
            if not self._is_ours:
                super().validate_image(image)

        def validate_not_container_component(self, full_command: list[str]) -> None:
            self.full_command = full_command
            if not self._is_ours:
                super().validate_not_container_component(full_command)

        @property
        def _is_ours(self) -> bool:
            return getattr(self, "full_command", ENTRYPOINT)[:3] == ENTRYPOINT

        def run(self) -> Any:
            if not self._is_ours:
                return super().run()
            *command, executor_input = self.full_command
            code = tasks.run([sys.executable, *command[1:]], executor_input, self.env_vars)
            return Status.SUCCESS if code == 0 else Status.FAILURE

    return EntrypointTaskHandler


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})


def _summaries(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.rglob(SUMMARY_FILE), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]
