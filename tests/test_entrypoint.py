"""The container's command: exit codes, MLflow run states, signals, and results that do not wait for MLflow."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kfp_methods import catalogue, entrypoint
from kfp_methods.tracking import local_tracking_uri
from tests.conftest import Ended, executor_input
from tests.servers import free_port

OUTPUTS = {"report", "metrics", "claims", "doubled"}
_LONG = {"steps": 100_000, "pause": 0.02}
_PATIENCE = 120.0


@dataclass
class Started:
    """A running entrypoint; its log goes to a file so that it can be watched."""

    process: subprocess.Popen[str]
    folder: Path
    log: Path

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text() or self.process.poll() is not None)
        assert text in self.log.read_text(), self.log.read_text()

    def end(self) -> Ended:
        stdout, _ = self.process.communicate(timeout=_PATIENCE)
        return Ended(self.process.returncode, stdout, self.log.read_text(), self.folder)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def start(folder: Path, parameters: Mapping[str, Any], name: str = "noop", **environ: str) -> Started:
    folder.mkdir(parents=True)
    message = json.dumps(executor_input("noop", folder, parameters))
    command = [sys.executable, "-m", "kfp_methods.entrypoint", name, "--executor-input", message]
    log = folder.with_suffix(".log")
    with log.open("w") as stream:
        env = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=env, cwd=folder)
    return Started(process, folder, log)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("entrypoint")


@pytest.fixture(scope="module")
def tracking(folder: Path) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": made_database(folder)}


def made_database(folder: Path) -> str:
    """The URI of a tracking database that is there already: to make one takes longer than an eviction leaves."""
    from mlflow import MlflowClient

    uri = local_tracking_uri(folder)
    MlflowClient(uri).search_experiments()
    return uri


def tracked_runs(uri: str, experiment: str) -> int:
    """How many runs MLflow knows of an experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return len(client.search_runs([found.experiment_id])) if found else 0


@pytest.fixture(scope="module")
def finished(folder: Path, tracking: dict[str, str]) -> Ended:
    return start(folder / "finished", {"preset": "smoke", "seed": 3}, **tracking).end()


@pytest.fixture(scope="module")
def interrupted(folder: Path, tracking: dict[str, str]) -> Ended:
    """SIGTERM in the middle, and again while what there is gets written."""
    running = start(folder / "interrupted", {**_LONG, "experiment": "interrupted"}, **tracking)
    running.wait_for("adding: started")
    wait_until(lambda: tracked_runs(tracking["MLFLOW_TRACKING_URI"], "interrupted") == 1)
    running.process.send_signal(signal.SIGTERM)
    running.wait_for("writing what is finished")
    running.process.send_signal(signal.SIGTERM)
    return running.end()


def mlflow_run(ended: Ended, tracking: Mapping[str, str]) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking["MLFLOW_TRACKING_URI"]).get_run(ended.summary["mlflow"]["run_id"])


@pytest.mark.slow
def test_a_run_that_succeeds_exits_with_0_and_is_finished(finished: Ended, tracking: dict[str, str]) -> None:
    assert finished.code == 0, finished.stderr
    run = mlflow_run(finished, tracking)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["total"] == 6.0
    assert run.data.params["seed"] == "3"


@pytest.mark.slow
def test_every_output_is_written_and_listed(finished: Ended) -> None:
    assert set(finished.executor_output["artifacts"]) == OUTPUTS
    assert finished.executor_output["parameterValues"] == {"rows": 3, "echo": {}}
    assert all((finished.folder / name).is_file() for name in {*OUTPUTS, "rows", "echo"})
    assert (finished.folder / "doubled").read_text() == "x\n2.0\n4.0\n6.0\n"
    assert finished.summary["headline"] == "The sum is 6."
    assert finished.summary["problems"] == []
    metadata = finished.executor_output["artifacts"]["claims"]["artifacts"][0]["metadata"]
    assert (metadata["data"], metadata["seed"]) == ("sample", 3)
    assert metadata["mlflow_run_id"] == finished.summary["mlflow"]["run_id"]
    assert finished.summary["metrics"] == {"total": 6.0, "steps_made": 1, "unknown": None}
    assert "tracking_error" not in finished.executor_output["artifacts"]["metrics"]["artifacts"][0]["metadata"]


@pytest.mark.slow
def test_a_pods_log_reads_well(finished: Ended) -> None:
    assert finished.stdout == ""
    assert "\r" not in finished.stderr
    assert "\x1b" not in finished.stderr
    lines = [line.partition(" ")[2] for line in finished.stderr.splitlines()]
    assert lines[:2] == ["noop: starting", "noop: data is three numbers, licence Apache-2.0."]
    assert lines[-1].startswith("noop: exit code 0 after ")


@pytest.mark.slow
def test_the_same_seed_and_inputs_give_the_same_outputs(finished: Ended, folder: Path) -> None:
    again = start(folder / "again", {"preset": "smoke", "seed": 3}).end()
    for name in ("metrics", "claims", "doubled", "rows"):
        assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes()
    assert again.summary["mlflow"] is None


@pytest.mark.slow
def test_bad_input_exits_with_2_one_line_a_field_and_a_failed_run(folder: Path, tracking: dict[str, str]) -> None:
    ended = start(folder / "bad", {"steps": 0, "preset": "huge", "stpes": 1}, **tracking).end()
    assert ended.code == 2
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    assert [line.split("=")[0] for line in lines if ". " in line and "=" in line] == ["preset", "steps", "stpes"]
    assert "steps=0: is too small. Give at least 1 and at most 100000." in lines
    assert not (ended.folder / "executor_output.json").exists()
    run = mlflow_run(ended, tracking)
    assert run.info.status == "FAILED"
    assert "steps=0: is too small" in " ".join(run.data.tags.values())
    assert ended.summary["exit_code"] == 2
    assert "steps=0" in ended.summary["error"]
    problem = {"field": "steps", "value": 0, "problem": "is too small", "remedy": "Give at least 1 and at most 100000"}
    assert problem in ended.summary["problems"]
    assert [found["field"] for found in ended.summary["problems"]] == ["preset", "steps", "stpes"]


@pytest.mark.slow
def test_a_fault_exits_with_1_its_traceback_and_a_failed_run(folder: Path, tracking: dict[str, str]) -> None:
    ended = start(folder / "fault", {"mode": "crash"}, **tracking).end()
    assert ended.code == 1
    assert "Traceback (most recent call last)" in ended.stderr
    assert "RuntimeError: asked to crash" in ended.stderr
    assert mlflow_run(ended, tracking).info.status == "FAILED"
    assert "RuntimeError: asked to crash" in ended.summary["error"]


@pytest.mark.parametrize(("name", "message"), [("nop", "Did you mean noop?"), ("qqq", "`kfp-methods list` shows them")])
def test_an_unknown_method_is_bad_input(folder: Path, name: str, message: str) -> None:
    ended = start(folder / name, {}, name=name).end()
    assert ended.code == 2
    assert f"method={name}: there is no such method. {message}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_users_file_that_is_missing_is_bad_input(folder: Path) -> None:
    ended = start(folder / "missing", {"data_uri": "/no/such/file.csv"}).end()
    assert ended.code == 2
    assert "data_uri=/no/such/file.csv: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.summary["data"] == "user"


@pytest.mark.slow
def test_sigterm_exits_with_143_and_the_run_is_killed(interrupted: Ended, tracking: dict[str, str]) -> None:
    assert interrupted.code == 143
    assert "Traceback" not in interrupted.stderr
    run = mlflow_run(interrupted, tracking)
    assert run.info.status == "KILLED"
    assert run.data.metrics["partial"] >= 1


@pytest.mark.slow
def test_sigterm_keeps_what_is_finished(interrupted: Ended) -> None:
    page = (interrupted.folder / "report").read_text()
    assert re.search("interrupted", page, re.IGNORECASE)
    assert "3 numbers are there." in page
    assert "partial" in page
    assert interrupted.summary["exit_code"] == 143
    assert interrupted.summary["outputs"] == {"report": str(interrupted.folder / "report")}
    assert "terminated" in interrupted.summary["error"]


@pytest.mark.slow
def test_an_interrupted_report_shows_where_curves_were_and_no_metrics(interrupted: Ended) -> None:
    page = (interrupted.folder / "report").read_text()
    assert "Key metrics" not in page
    assert "Last values of curves (partial)" in page
    assert "note (partial)" in page
    assert interrupted.summary["metrics"] == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_is_finished_without_mlflow_too(folder: Path, number: signal.Signals) -> None:
    running = start(folder / number.name, _LONG)
    running.wait_for("adding: started")
    running.process.send_signal(number)
    ended = running.end()
    assert ended.code == 143
    assert "3 numbers are there." in (ended.folder / "report").read_text()
    assert "Traceback" not in ended.stderr


def test_a_signal_before_the_method_is_loaded_ends_quietly(folder: Path) -> None:
    running = start(folder / "early", _LONG)
    running.wait_for("noop: starting")
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 143
    assert "Traceback" not in ended.stderr


def test_a_library_that_calls_sys_exit_is_a_fault(tmp_path: Path) -> None:
    component = tmp_path / "methods" / "tabular" / "quitter" / "component.py"
    component.parent.mkdir(parents=True)
    source = (Path(__file__).parent / "methods" / "tabular" / "noop" / "component.py").read_text()
    component.write_text(source.replace('raise RuntimeError("asked to crash")', "raise SystemExit(0)"))
    metadata = (Path(__file__).parent / "methods" / "tabular" / "noop" / "metadata.yaml").read_text()
    (component.parent / "metadata.yaml").write_text(metadata.replace("name: noop", "name: quitter"))
    path = str(tmp_path / "methods")
    ended = start(tmp_path / "out", {"mode": "crash"}, name="quitter", KFP_METHODS_PATH=path).end()
    assert ended.code == 1
    assert "SystemExit" in ended.summary["error"]


@pytest.mark.slow
def test_an_unreachable_server_costs_no_result(folder: Path) -> None:
    away = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{free_port()}", "KFP_METHODS_TRACKING_SECONDS": "2"}
    ended = start(folder / "unreachable", {"preset": "smoke"}, **away).end()
    assert ended.code == 0, ended.stderr
    assert set(ended.executor_output["artifacts"]) == OUTPUTS
    metadata = ended.executor_output["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert away["MLFLOW_TRACKING_URI"] in metadata["tracking_error"]
    assert metadata["total"] == 6.0
    assert metadata["tracking_error"] in ended.stderr
    assert ended.summary["mlflow"]["error"] == metadata["tracking_error"]


@pytest.mark.slow
def test_tracking_that_is_required_and_fails_is_an_error_after_the_outputs(folder: Path) -> None:
    away = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{free_port()}", "KFP_METHODS_TRACKING_SECONDS": "2"}
    ended = start(folder / "required", {"preset": "smoke", "require_tracking": True}, **away).end()
    assert ended.code == 1
    assert set(ended.executor_output["artifacts"]) == OUTPUTS
    assert "require_tracking=True: MLflow at " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.summary["exit_code"] == 1
    assert ended.summary["error"].startswith("require_tracking=True")


def test_tracking_that_is_required_needs_a_server_to_be_named(folder: Path) -> None:
    ended = start(folder / "unnamed", {"preset": "smoke", "require_tracking": True}).end()
    assert ended.code == 2
    assert "Set MLFLOW_TRACKING_URI" in ended.stderr


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
def test_results_are_written_before_mlflow_answers(folder: Path, silent_server: str) -> None:
    running = start(
        folder / "hanging",
        {"preset": "smoke"},
        MLFLOW_TRACKING_URI=silent_server,
        KFP_METHODS_TRACKING_SECONDS="15",
    )
    output_file = running.folder / "executor_output.json"
    wait_until(output_file.exists)
    time.sleep(0.5)
    message = json.loads(output_file.read_text())
    assert running.process.poll() is None, "the process ended without waiting for MLflow: nothing is proved"
    assert set(message["artifacts"]) == OUTPUTS
    assert "tracking_error" not in message["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert (running.folder / "report").stat().st_size > 1000
    ended = running.end()
    assert ended.code == 0
    assert "tracking_error" in ended.executor_output["artifacts"]["metrics"]["artifacts"][0]["metadata"]


def imports_of_a_run(parameters: dict[str, Any], folder: Path) -> tuple[set[str], set[str]]:
    """The packages that the entrypoint imports before its first line, and after it."""
    message = json.dumps(executor_input("noop", folder, parameters))
    command = [sys.executable, "-X", "importtime", "-m", "kfp_methods.entrypoint", "noop", "--executor-input", message]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    before, line, after = done.stderr.partition("noop: starting")
    assert line, done.stderr
    first, later = (set(re.findall(r"^import time: .*\|\s*(\w+)", part, re.MULTILINE)) for part in (before, after))
    return first, later


def test_nothing_heavy_is_imported_before_the_inputs_are_known_to_be_right(folder: Path) -> None:
    before, after = imports_of_a_run({"steps": 0}, folder / "imports")
    assert "argparse" in before
    assert not before & {"torch", "mlflow", "kfp", "pandas", "numpy", "pydantic", "yaml", "jinja2"}
    assert "pydantic" in after
    assert not after & {"torch", "mlflow", "kfp", "pandas", "matplotlib"}


def test_a_short_run_with_checkpoints_does_not_import_torch_for_them(folder: Path) -> None:
    _, after = imports_of_a_run({"steps": 3, "checkpoints": str(folder / "kept")}, folder / "imports")
    assert "pandas" in after
    assert "torch" not in after


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("no_cuda")
def test_cuda_without_a_gpu_is_refused_before_the_data_are_read(folder: Path) -> None:
    ended = start(folder / "cuda", {"device": "cuda", "data_uri": "/no/such/file.csv"}).end()
    assert ended.code == 2
    assert "device=cuda: this machine has no CUDA device" in ended.stderr
    assert "data_uri=" not in ended.stderr
    assert [problem["field"] for problem in ended.summary["problems"]] == ["device"]


def redirected(folder: Path, place: Path) -> str:
    """The executor input of a run whose outputs belong into `place`, their list and the summary into `folder`."""
    message = executor_input("noop", place, {"preset": "smoke"})
    message["outputs"]["outputFile"] = str(folder / "executor_output.json")
    return json.dumps(message)


def ended_process(message: str, folder: Path, **options: Any) -> Ended:
    command = [sys.executable, "-m", "kfp_methods.entrypoint", "noop", "--executor-input", message]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return Ended(done.returncode, done.stdout, done.stderr, folder)


def test_outputs_that_cannot_be_written_are_bad_input_with_a_line_each(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_text("a file where a folder should be")
    ended = ended_process(redirected(tmp_path, place), tmp_path)
    assert ended.code == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("output=")]
    named = {Path(line.partition("=")[2].partition(": cannot be written (")[0]).name for line in lines}
    assert named == {*OUTPUTS, "rows", "echo"}
    assert ended.summary["outputs"] == {}
    assert ended.executor_output == {"parameterValues": {}, "artifacts": {}}
    assert {Path(problem["value"]).name for problem in ended.summary["problems"]} == named
    assert ended.summary["headline"] == "The sum is 6.", "the result itself is not lost"


def test_a_read_only_folder_is_bad_input_without_a_traceback(tmp_path: Path) -> None:
    """/sys takes no folders from anyone; not even the summary can be written."""
    place = Path("/sys/kfp-methods")
    ended = ended_process(json.dumps(executor_input("noop", place, {"preset": "smoke"})), tmp_path)
    assert ended.code == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    for name in ("report", "executor_output.json", "summary.json"):
        assert f"output={place / name}: cannot be written (" in ended.stderr


def test_what_fits_on_a_full_disk_is_kept_and_listed(tmp_path: Path) -> None:
    limit = 5_000  # bytes: the report is larger, all else is smaller
    ended = ended_process(
        redirected(tmp_path, tmp_path / "place"),
        tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ended.code == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert f"output={tmp_path / 'place' / 'report'}: cannot be written (File too large)" in ended.stderr
    assert set(ended.executor_output["artifacts"]) == OUTPUTS - {"report"}
    assert set(ended.summary["outputs"]) == {*OUTPUTS, "rows", "echo"} - {"report"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_is_bad_input_without_a_traceback(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        ended = ended_process(redirected(tmp_path, place), tmp_path)
        assert ended.code == 2, ended.stderr
        assert "Traceback" not in ended.stderr
        assert "report: cannot be written (No space left on device)" in ended.stderr
        assert set(ended.executor_output["artifacts"]) == {Path(path).name for path in place.iterdir()} & OUTPUTS
    finally:
        subprocess.run(["umount", place], check=True)


def test_no_place_for_temporary_files_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/sys/kfp-methods")
    assert entrypoint.run("noop", json.dumps(executor_input("noop", tmp_path, {}))) == 2


def test_a_disk_that_fills_up_while_a_method_works_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    noop = catalogue.load("noop")
    monkeypatch.setattr(catalogue, "load", lambda name: replace(noop, run=full))
    assert entrypoint.run("noop", json.dumps(executor_input("noop", tmp_path, {}))) == 2
    (problem,) = json.loads((tmp_path / "summary.json").read_text())["problems"]
    assert problem["field"] == "TMPDIR"
    assert "No space left on device" in problem["problem"]


def test_a_file_name_that_is_no_utf_8_reaches_report_and_summary(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9 \xe2\x82\xac.csv"
    with open(path, "wb") as stream:
        stream.write(b"x\n1\n2\n")
    out = tmp_path / "out"
    message = json.dumps(
        executor_input("noop", out, {"data_uri": os.fsdecode(path), "labels": {"é" * 300: "日本" * 300}})
    )
    ended = ended_process(message, out)
    assert ended.code == 0, ended.stderr
    assert ended.summary["metrics"]["total"] == 3.0
    assert "caf%E9%20%E2%82%AC.csv" in (out / "report").read_text(encoding="utf-8")
    missing = json.dumps(executor_input("noop", tmp_path / "bad", {"data_uri": os.fsdecode(path) + "\udcff"}))
    refused = ended_process(missing, tmp_path / "bad")
    assert refused.code == 2, refused.stderr
    assert "Traceback" not in refused.stderr
    assert [problem["field"] for problem in refused.summary["problems"]] == ["data_uri"]


def test_threads_of_torch_wait_asleep(execute: Callable[..., Any]) -> None:
    asked = {"OMP_DISPLAY_ENV": "TRUE", "CUDA_VISIBLE_DEVICES": ""}
    ended = execute("noop", {"device": "cuda"}, environ=asked)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in ended.stderr
    ended = execute("noop", {"device": "cuda"}, environ={**asked, "OMP_WAIT_POLICY": "ACTIVE"}, into="active")
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in ended.stderr


@pytest.mark.slow
def test_ctrl_c_and_the_command_line_s_own_signal_may_arrive_together(folder: Path) -> None:
    """A terminal signals the whole group, and the command line passes the signal on."""
    for number in range(3):
        running = start(folder / f"together-{number}", _LONG)
        running.wait_for("adding: started")
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGTERM)
        ended = running.end()
        assert ended.code == 143
        assert "Traceback" not in ended.stderr
