"""Pipelines on this machine: values arrive as they were given, and every way to end leaves what was finished."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kfp import local as kfp_local
from kfp.local import subprocess_task_handler, task_dispatcher

from kfp_methods import catalogue, kubeflow
from kfp_methods.containers import require_images
from kfp_methods.errors import InputError
from kfp_methods.local import LocalRun, _Tasks, run_pipeline
from kfp_methods.standby import Standby
from tests.consumer.pipeline import consumer
from tests.test_entrypoint import made_database, tracked_runs, wait_until

NOOP = catalogue.load("noop")
PLACEMENT = kubeflow.Placement(retries=0)
ORIGINAL = subprocess_task_handler.SubprocessTaskHandler

AWKWARD = {
    "spaces": "  a  b ",
    "quotes": """it's "quoted" `so` \\ and \\n""",
    "shell": "$(touch pwned) $HOME; & | > < * ? ~ !",
    "python3": "python3 -m python3",
    "unicode": "größe 大きさ 🙂 \u202e",
    "lines": "first\nsecond\r\n\tthird",
    "json": '{"a": [1, null]} {{x}} %s {0}',
    "empty": "",
    "": "empty name",
    "long": "ü" * 100_000,
}


def run(root: Path, **arguments: Any) -> LocalRun:
    return run_pipeline(kubeflow.single_pipeline(NOOP, PLACEMENT), {"preset": "smoke", **arguments}, root=root)


def replicated(root: Path, seeds: list[int], **arguments: Any) -> LocalRun:
    arguments = {"preset": "smoke", "seeds": seeds, **arguments}
    return run_pipeline(kubeflow.replicated_pipeline(NOOP, PLACEMENT), arguments, root=root)


def task_folders(ended: LocalRun, name: str) -> list[Path]:
    return sorted(path.parent for path in ended.folder.rglob(f"{name}/summary.json"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("local")


@pytest.fixture(scope="module")
def single(root: Path) -> LocalRun:
    return run(root, labels=AWKWARD, weights=[0.1, -2e-300, 3], scale="2.5", seed=2**31 - 1, steps=2)


@pytest.fixture(scope="module")
def pooled(root: Path) -> LocalRun:
    return replicated(root, [5, 6, 7])


def test_a_single_run_ends_with_its_summary(single: LocalRun) -> None:
    assert (single.exit_code, single.failure) == (0, "")
    [summary] = single.summaries
    assert summary["metrics"]["total"] == 15.0
    assert summary["data"] == "sample"
    assert single.log.read_text().count("SUCCESS") >= 1


def test_values_arrive_as_they_were_given(single: LocalRun) -> None:
    [folder] = task_folders(single, "noop")
    assert json.loads((folder / "echo").read_text()) == AWKWARD
    assert single.summaries[0]["seed"] == 2**31 - 1
    assert not list(single.folder.rglob("pwned"))


def test_the_tasks_log_is_not_on_standard_output(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(root)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "noop: starting" in captured.err


@pytest.mark.slow
def test_replicates_are_pooled(pooled: LocalRun) -> None:
    assert pooled.exit_code == 0
    assert [summary["method"] for summary in pooled.summaries] == ["noop"] * 3 + ["collect"]
    assert sorted(summary["seed"] for summary in pooled.summaries[:3]) == [5, 6, 7]
    joined = pooled.summaries[-1]
    assert (joined["metrics"]["replicates"], joined["metrics"]["total"]) == (3, 6.0)
    [claim] = joined["claims"]
    assert (claim["verdict"], claim["n"], claim["value"]) == ("supported", 3, 12.0)
    assert claim["low"] < 12.0 < claim["high"]


@pytest.mark.slow
def test_joined_replicates_say_whose_data_it_was(pooled: LocalRun, root: Path) -> None:
    assert {summary["data"] for summary in pooled.summaries} == {"sample"}
    table = root / "numbers.csv"
    table.write_text("x\n1\n2\n")
    on_users = replicated(root, [0, 1], data_uri=str(table))
    assert {summary["data"] for summary in on_users.summaries} == {"user"}
    assert on_users.summaries[-1]["metrics"]["total"] == 3.0
    [folder] = task_folders(on_users, "collect")
    assert "replicate_claims: 2" in (folder / "report").read_text()


@pytest.mark.slow
def test_a_failing_replicate_decides_the_exit_code_and_the_others_outputs_stay(root: Path) -> None:
    ended = replicated(root, [1, -1, 2])
    assert ended.exit_code == 2
    assert "for-loop-1" in ended.failure
    assert "\x1b" not in ended.failure
    by_code = {summary["seed"]: summary for summary in ended.summaries}
    assert {seed: summary["exit_code"] for seed, summary in by_code.items()} == {1: 0, None: 2, 2: 0}
    assert all(Path(path).exists() for seed in (1, 2) for path in by_code[seed]["outputs"].values())
    assert "collect" not in {summary["method"] for summary in ended.summaries}


@pytest.mark.parametrize(("arguments", "code"), [({"mode": "crash"}, 1), ({"weights": []}, 2)])
def test_a_failed_run_has_the_containers_exit_code(root: Path, arguments: Mapping[str, Any], code: int) -> None:
    ended = run(root, **arguments)
    assert ended.exit_code == code
    assert ended.summaries[0]["error"]
    assert ended.failure


def test_a_task_that_dies_without_a_word_is_a_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ended = run(root)
    assert (ended.exit_code, ended.summaries) == (1, [])
    assert "noop" in ended.failure


def test_kfps_handler_is_back_after_a_run_and_after_an_exception(single: LocalRun, root: Path) -> None:
    assert subprocess_task_handler.SubprocessTaskHandler is ORIGINAL
    before = dict(os.environ), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    pipeline = kubeflow.single_pipeline(NOOP, PLACEMENT)
    with pytest.raises(TypeError, match="no_such_argument"):
        run_pipeline(pipeline, {"no_such_argument": 1}, root=root)
    assert subprocess_task_handler.SubprocessTaskHandler is ORIGINAL
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_two_runs_in_one_process_do_not_share_anything(single: LocalRun, pooled: LocalRun) -> None:
    assert single.folder != pooled.folder
    assert len(single.summaries) == 1


def test_a_process_on_standby_serves_the_first_task_of_its_method(root: Path) -> None:
    with Standby("noop", {}) as standby:
        assert standby.take(["some", "other", "command"]) is None
        ended = run_pipeline(kubeflow.single_pipeline(NOOP, PLACEMENT), {"preset": "smoke"}, root=root, standby=standby)
        assert standby.take(standby.command) is None, "the task had a process of its own"
    assert (ended.exit_code, ended.summaries[0]["metrics"]["total"]) == (0, 6.0)


def test_a_process_on_standby_that_nobody_needs_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    with Standby("noop", {}) as standby:
        child = standby._child
    assert child is not None
    assert child.returncode is not None
    assert "Traceback" not in capfd.readouterr().err


def test_kfp_still_dispatches_to_the_handler_that_we_replace() -> None:
    assert task_dispatcher.subprocess_task_handler is subprocess_task_handler
    parameters = list(inspect.signature(ORIGINAL.__init__).parameters)
    assert parameters == ["self", "image", "full_command", "pipeline_root", "runner", "env_vars"]
    for hook in ("run", "validate_image", "validate_not_container_component"):
        assert callable(getattr(ORIGINAL, hook))
    assert "subprocess_task_handler.SubprocessTaskHandler" in inspect.getsource(
        task_dispatcher.run_single_task_implementation
    ), "kfp.local looks the handler up elsewhere: see `_Tasks.installed` in local.py"


def test_kfp_alone_still_refuses_container_components(tmp_path: Path) -> None:
    """When this fails, kfp.local runs them itself, and our handler can go."""
    kfp_local.init(kfp_local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path))
    with pytest.raises(RuntimeError, match="only supports running Lightweight Python Components"):
        kubeflow.single_pipeline(NOOP, PLACEMENT)(steps=1)


@pytest.fixture(scope="module")
def component_file(root: Path) -> Path:
    path = root / "component.yaml"
    kubeflow.compile_component(NOOP, path)
    return path


def test_a_consumers_pipeline_feeds_an_upstream_dataset(root: Path, component_file: Path) -> None:
    fed = run_pipeline(consumer(component_file), {"count": 5}, root=root)
    assert fed.exit_code == 0, fed.log.read_text()
    table = root / "five.csv"
    table.write_text("x\n1\n2\n3\n4\n5\n")
    by_uri = run(root, data_uri=str(table), seed=2)
    for part in ("metrics", "claims", "data", "seed"):
        assert fed.summaries[0][part] == by_uri.summaries[0][part]
    assert fed.summaries[0]["metrics"]["total"] == 15.0


def test_a_consumers_own_component_that_fails_fails_the_run(root: Path, component_file: Path) -> None:
    ended = run_pipeline(consumer(component_file), {"fail": True}, root=root)
    assert (ended.exit_code, ended.summaries) == (1, [])
    assert "numbers" in ended.failure
    assert "asked to fail" in ended.log.read_text()


@pytest.mark.docker
@pytest.mark.parametrize(
    ("image", "said"),
    [
        (
            "kfp-methods/tabular:no-such-tag",
            "the Docker engine has no such image. Build it with `kfp-methods build tabular`",
        ),
        ("no-such-image", "the Docker engine has no such image. Build it with `kfp-methods build GROUP`"),
        ("127.0.0.1:9/tabular:1", "cannot pull it"),
        ("UPPER:1", "repository name must be lowercase"),
    ],
)
def test_an_image_that_is_not_there_is_known_before_anything_starts(tmp_path: Path, image: str, said: str) -> None:
    pipeline = kubeflow.single_pipeline(NOOP, PLACEMENT, image)
    with pytest.raises(InputError) as caught:
        run_pipeline(pipeline, {}, root=tmp_path, runner="docker")
    assert str(caught.value).startswith(f"image={image}: ")
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.docker
def test_a_network_that_is_not_there_is_known_before_anything_starts() -> None:
    with pytest.raises(InputError, match="docker_network=no-such-network: there is no such network"):
        require_images([], "no-such-network")
    for known in ("none", "host", "bridge"):
        require_images([], known)


def test_without_a_docker_engine_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(InputError, match="no Docker engine answers"):
        run_pipeline(kubeflow.single_pipeline(NOOP, PLACEMENT), {}, root=tmp_path, runner="docker")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def database(root: Path) -> str:
    return made_database(root)


@pytest.fixture(scope="module")
def stopped(root: Path, database: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """Runs of the command line that were sent a signal while their tasks worked, by the signal's name."""
    return {
        "SIGTERM": _stop(root / "SIGTERM", signal.SIGTERM, database, replicates=2),
        "SIGINT": _stop(root / "SIGINT", signal.SIGINT, database, replicates=1),
    }


@pytest.mark.slow
def test_a_task_does_not_outlive_a_command_line_that_was_killed(root: Path, database: str) -> None:
    folder = root / "SIGKILL"
    assert _stop(folder, signal.SIGKILL, database, replicates=1).returncode == -signal.SIGKILL
    try:
        wait_until(lambda: bool(list(folder.rglob("summary.json"))))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int((folder / "group").read_text()), signal.SIGKILL)
    [path] = folder.rglob("summary.json")
    summary = json.loads(path.read_text())
    assert summary["exit_code"] == 143
    assert "3 numbers are there." in Path(summary["outputs"]["report"]).read_text()


def _stop(folder: Path, number: signal.Signals, database: str, replicates: int) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": database}
    command = [sys.executable, "-m", "kfp_methods.cli", "run", "noop", "--steps", "100000", "--pause", "0.05"]
    command += ["--replicates", str(replicates), "--experiment", folder.name, "--json", "--output", "runs"]
    log = folder / "log"

    def all_at_work() -> bool:
        started = log.read_text().count("adding: started") == replicates
        runs = replicates + (replicates > 1)  # several have a parent run
        return started and tracked_runs(database, folder.name) == runs

    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        )
        (folder / "group").write_text(str(process.pid))
        wait_until(lambda: all_at_work() or process.poll() is not None)
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, stdout, log.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "word"), [("SIGTERM", 143, "terminated"), ("SIGINT", 130, "interrupted")])
def test_a_signal_reaches_the_tasks(stopped: dict[str, Any], number: str, code: int, word: str) -> None:
    ended = stopped[number]
    assert ended.returncode == code, ended.stderr
    result = json.loads(ended.stdout)
    assert result["exit_code"] == code
    assert result["error"].startswith(f"{word} ({number})")
    summaries = _summaries(ended)
    assert [summary["exit_code"] for summary in summaries] == [143] * (2 if number == "SIGTERM" else 1)
    for summary in summaries:
        assert "3 numbers are there." in Path(summary["outputs"]["report"]).read_text()
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_the_runs_of_stopped_tasks_are_killed(stopped: dict[str, Any], database: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(database)
    for summary in _summaries(stopped["SIGTERM"]):
        assert client.get_run(summary["mlflow"]["run_id"]).info.status == "KILLED"


def _summaries(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    files = Path(json.loads(ended.stdout)["folder"]).rglob("summary.json")
    return [json.loads(path.read_text()) for path in files]


def test_a_task_that_was_killed_is_named_with_its_seed(capfd: pytest.CaptureFixture[str]) -> None:
    """As the system does when memory runs out: the process can say nothing itself."""
    tasks = _Tasks("job", {}, None)
    dies = "import os, signal, sys; sys.stdin.read(); os.kill(os.getpid(), signal.SIGKILL)"
    command = [sys.executable, "-c", dies, "kfp_methods.entrypoint", "noop"]
    message = json.dumps({"inputs": {"parameterValues": {"seed": 1.0}}})
    assert tasks.run(command, message, {}) == -signal.SIGKILL
    [summary] = tasks.killed
    assert (summary["method"], summary["seed"], summary["exit_code"]) == ("noop", 1, 137)
    assert "signal 9 (SIGKILL); where nobody sent it, the machine ran out of memory" in summary["error"]
    assert capfd.readouterr().err.startswith("noop, seed 1: its process was ended by signal 9")
