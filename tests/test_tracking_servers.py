"""Tracking against real MLflow servers, on SQLite and on PostgreSQL, well and ill."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kfp_methods import catalogue
from kfp_methods.tracking import Tracked, jobs
from tests.servers import POSTGRES_BINARIES, FaultyProxy, free_port, mlflow_server, postgres
from tests.tracked_runs import FILES, TOY, curve, outcome, saved_model, tracker

pytestmark = pytest.mark.slow
RUNS, STEPS = 20, 50


@pytest.fixture(scope="module")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("sqlite")) as url:
        yield url


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not POSTGRES_BINARIES.is_dir():
        pytest.skip(f"no PostgreSQL in {POSTGRES_BINARIES}: install the package postgresql-15")
    with postgres() as store, mlflow_server(tmp_path_factory.mktemp("postgres"), store) as url:
        yield url


@pytest.fixture
def proxy(sqlite_server: str) -> Iterator[FaultyProxy]:
    made = FaultyProxy(sqlite_server)
    yield made
    made.stop()


def client_of(url: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=url)


def locks(client: Any) -> list[str]:
    return [m.name for m in client.search_registered_models() if m.name.startswith("kfp-methods-lock-")]


def assert_complete(client: Any, tracked: Tracked, steps: int) -> None:
    """Nothing of the run is missing."""
    run = client.get_run(tracked.run_id)
    assert run.info.status == "FINISHED"
    assert len(run.data.params) == 6
    assert run.data.metrics["auc"] == 0.875
    assert [m.step for m in client.get_metric_history(tracked.run_id, "loss")] == list(range(steps))
    assert {info.path for info in client.list_artifacts(tracked.run_id)} == FILES
    assert len(run.inputs.dataset_inputs) == 1


@pytest.mark.parametrize("server", ["sqlite_server", pytest.param("postgres_server", marks=pytest.mark.postgres)])
def test_twenty_pods_of_one_job_lose_nothing_and_share_one_parent(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(server)
    notes: list[str] = []
    together = threading.Barrier(RUNS)

    def pod(number: int) -> Tracked:
        folder = tmp_path / str(number)
        folder.mkdir()
        environ = {"MLFLOW_TRACKING_URI": url, "KFP_RUN_ID": "job-1", "KFP_POD_NAME": f"pod-{number}"}
        followed = tracker(environ, notes, experiment="together")
        together.wait()
        followed.start()
        points = curve("loss", STEPS)
        for point in points:
            followed.point(point)
        model = saved_model(folder / "m") if number % 4 == 0 else {}
        parameters = {**outcome(folder).parameters, "seed": number}
        return followed.finish(outcome(folder, parameters=parameters, points=points, register_as="shared", **model))

    with ThreadPoolExecutor(RUNS) as pods:
        tracked = list(pods.map(pod, range(RUNS)))

    client = client_of(url)
    assert ([t.error for t in tracked], notes) == ([""] * RUNS, [])
    runs = client.search_runs([tracked[0].experiment_id], max_results=1000)
    [parent] = [run for run in runs if run.data.tags.get(jobs.ROLE) == "job"]
    children = [run for run in runs if run.data.tags.get(jobs.PARENT) == parent.info.run_id]
    assert {run.info.run_id for run in children} == {t.run_id for t in tracked}
    assert {run.data.params["seed"] for run in children} == {str(number) for number in range(RUNS)}
    assert {run.data.tags["kfp.run_id"] for run in runs} == {"job-1"}
    assert len(runs) == RUNS + 1
    assert parent.info.status == "FINISHED"
    for each in tracked:
        assert_complete(client, each, STEPS)
    versions = client.search_model_versions("name = 'shared'")
    assert {v.run_id for v in versions} == {t.run_id for t in tracked[::4]}
    assert sorted(int(v.version) for v in versions) == [1, 2, 3, 4, 5]
    assert locks(client) == []


def test_a_lock_left_by_a_dead_pod_is_passed_by_once(sqlite_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "STALE_SECONDS", 1.0)
    client = client_of(sqlite_server)
    experiment = client.create_experiment("dead holder")
    client.create_registered_model(jobs._lock_name(experiment, "job", 0))
    made: list[str] = []

    def create() -> str:
        run = client.create_run(experiment, tags={jobs.ROLE: "job", jobs.JOB: "job"})
        made.append(run.info.run_id)
        return made[-1]

    with ThreadPoolExecutor(8) as pods:
        parents = list(pods.map(lambda _: jobs.parent_of_job(client, experiment, "job", create), range(8)))

    assert (len(made), set(parents)) == (1, set(made))
    assert locks(client) == []


def test_a_lock_that_is_released_while_the_server_refuses_it_is_tried_again(
    sqlite_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow looks a refused name up for its message, and says that it is not there when it has just gone."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos import databricks_pb2

    client = client_of(sqlite_server)
    experiment = client.create_experiment("released meanwhile")
    create_model, refusals = client.create_registered_model, ["RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"]

    def refuse_first(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise MlflowException("no such model", getattr(databricks_pb2, refusals.pop()))
        return create_model(*arguments, **options)

    monkeypatch.setattr(client, "create_registered_model", refuse_first)
    parent = jobs.parent_of_job(client, experiment, "job", lambda: client.create_run(experiment).info.run_id)

    assert (client.get_run(parent).info.run_id, refusals, locks(client)) == (parent, [], [])


def test_a_holder_that_was_too_slow_steps_back(sqlite_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(jobs, "HOLD_SECONDS", 0.0)
    client = client_of(sqlite_server)
    experiment = client.create_experiment("slow holder")
    made: list[str] = []

    def let_it_be_quick(_: float) -> None:
        monkeypatch.setattr(jobs, "HOLD_SECONDS", 5.0)

    def create() -> str:
        made.append(client.create_run(experiment, tags={jobs.ROLE: "job", jobs.JOB: "j"}).info.run_id)
        return made[-1]

    monkeypatch.setattr(jobs, "time", _Clock(let_it_be_quick))
    assert jobs.parent_of_job(client, experiment, "j", create) == made[0]
    assert len(made) == 1
    assert locks(client) == []  # its own stale lock went too


class _Clock:
    """`time`, with a hook in its `sleep`."""

    def __init__(self, on_sleep: Callable[[float], None]) -> None:
        self._on_sleep = on_sleep

    def sleep(self, seconds: float) -> None:
        self._on_sleep(seconds)
        time.sleep(seconds)

    def monotonic(self) -> float:
        return time.monotonic()


def test_the_run_that_kubeflow_made_is_written_to_and_never_ended(sqlite_server: str, tmp_path: Path) -> None:
    client = client_of(sqlite_server)
    given = client.create_run(client.create_experiment("plugin"), run_name="task")
    client.log_param(given.info.run_id, "flag", "True")  # as the plugin wrote it
    environ = {"MLFLOW_TRACKING_URI": sqlite_server, "MLFLOW_RUN_ID": given.info.run_id, "KFP_RUN_ID": "j",
               "KFP_PIPELINE_NAME": "größe", "KFP_METHODS_IMAGE": "r/i@sha256:1"}  # fmt: skip
    notes: list[str] = []
    failed = tracker(environ, notes).finish(outcome(tmp_path, status="FAILED", error="first attempt", points=[]))
    again = tracker(environ, notes).finish(outcome(tmp_path, points=curve("loss", 3)))

    run = client.get_run(given.info.run_id)
    assert (failed.error, again.error, notes) == ("", "", [])
    assert failed.run_id == again.run_id == given.info.run_id
    assert (run.info.status, run.info.end_time, run.info.run_name) == ("RUNNING", None, "task")
    assert run.data.params["flag"] == "True"
    assert run.data.params["inputs.rate"] == "0.5"
    assert run.data.params["inputs.flag"] == "true"  # MLflow refuses to change the plugin's
    links = {"kfp.pipeline": "größe", "kfp.run_id": "j", "kfp_methods.image": "r/i@sha256:1"}
    assert links.items() <= run.data.tags.items()
    assert again.url == f"{sqlite_server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    assert len(client.search_runs([run.info.experiment_id])) == 1


def test_a_retry_with_other_parameters_is_noted_and_everything_else_arrives(sqlite_server: str, tmp_path: Path) -> None:
    client = client_of(sqlite_server)
    given = client.create_run(client.create_experiment("retry"))
    environ = {"MLFLOW_TRACKING_URI": sqlite_server, "MLFLOW_RUN_ID": given.info.run_id}
    notes: list[str] = []
    tracker(environ, notes).finish(outcome(tmp_path, parameters={"rate": 0.5}))
    second = tracker(environ, notes).finish(outcome(tmp_path, parameters={"rate": 0.25, "new": 1}, metrics={"f": 1.0}))

    run = client.get_run(given.info.run_id)
    assert second.error == ""
    assert len(notes) == 1
    assert "other values already for inputs.rate" in notes[0]
    assert run.data.params == {"inputs.rate": "0.5", "inputs.new": "1"}
    assert run.data.metrics["f"] == 1.0


def test_a_plain_run_on_a_server_has_no_parent(sqlite_server: str, tmp_path: Path) -> None:
    tracked = tracker({"MLFLOW_TRACKING_URI": sqlite_server}, [], experiment="plain").finish(
        outcome(tmp_path, points=curve("loss", 2))
    )
    client = client_of(sqlite_server)
    assert_complete(client, tracked, 2)
    assert len(client.search_runs([tracked.experiment_id])) == 1
    assert jobs.PARENT not in client.get_run(tracked.run_id).data.tags


def test_a_job_is_running_until_its_last_pod_ends(sqlite_server: str, tmp_path: Path) -> None:
    environ = {"MLFLOW_TRACKING_URI": sqlite_server, "KFP_RUN_ID": "two"}
    client = client_of(sqlite_server)
    slow = tracker(environ, [], experiment="last ends")
    slow.start()
    _wait_for(lambda: len(client.search_runs([_experiment(client, "last ends")])) == 2)
    states = []
    for pod in (tracker(environ, [], experiment="last ends"), slow):
        tracked = pod.finish(outcome(tmp_path))
        states.append(client.get_run(jobs.find_parent(client, tracked.experiment_id, "two")).info.status)
    assert states == ["RUNNING", "FINISHED"]


def test_a_failed_pod_fails_the_job_until_its_retry_succeeds(sqlite_server: str, tmp_path: Path) -> None:
    environ = {"MLFLOW_TRACKING_URI": sqlite_server, "KFP_RUN_ID": "again"}
    client = client_of(sqlite_server)
    states = []
    for status in ("FAILED", "FINISHED"):
        tracked = tracker(environ, [], experiment="job ends").finish(outcome(tmp_path, status=status))
        parent = jobs.find_parent(client, tracked.experiment_id, "again")
        states.append(client.get_run(parent).info.status)
    assert states == ["FAILED", "FINISHED"]


def test_a_model_on_a_server_loads_and_predicts(
    sqlite_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import mlflow.pyfunc

    monkeypatch.setattr(catalogue, "load", {"toy": TOY}.__getitem__)
    made = outcome(tmp_path, **saved_model(tmp_path / "m"), register_as="served")
    tracked = tracker({"MLFLOW_TRACKING_URI": sqlite_server}, [], experiment="served").finish(made)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(sqlite_server)
    try:
        for uri in (f"runs:/{tracked.run_id}/model", "models:/served/1"):
            assert list(mlflow.pyfunc.load_model(uri).predict(pd.DataFrame({"x": [2.0]}))["y"]) == [6.0]
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.parametrize("when", ["from the start", "at the end"])
def test_a_server_that_answers_503_for_a_while_gets_everything(
    proxy: FaultyProxy, sqlite_server: str, tmp_path: Path, when: str
) -> None:
    notes: list[str] = []
    followed = tracker({"MLFLOW_TRACKING_URI": proxy.url}, notes, experiment="weak", timeout=40)
    if when == "from the start":
        proxy.fault = "503"
    followed.start()
    points = curve("loss", STEPS)
    for point in points:
        followed.point(point)
    time.sleep(1.5)
    proxy.fault = "503"
    threading.Timer(2.0, setattr, (proxy, "fault", "")).start()
    tracked = followed.finish(outcome(tmp_path, points=points))

    assert proxy.failed > 0
    assert (tracked.error, notes) == ("", [])
    assert_complete(client_of(sqlite_server), tracked, STEPS)


def test_a_server_stopped_half_way_keeps_what_it_had_and_the_rest_is_reported(
    sqlite_server: str, tmp_path: Path
) -> None:
    stopped = FaultyProxy(sqlite_server)
    notes: list[str] = []
    followed = tracker({"MLFLOW_TRACKING_URI": stopped.url}, notes, experiment="stopped", timeout=4)
    followed.start()
    for point in curve("loss", 5):
        followed.point(point)
    client = client_of(sqlite_server)
    _wait_for(lambda: _has_metric(client, "stopped", "loss"))
    stopped.stop()
    began = time.monotonic()
    tracked = followed.finish(outcome(tmp_path, points=curve("loss", 5)))

    assert time.monotonic() - began < 4.5
    assert notes == [tracked.error]
    assert "write parameters, metrics and tags" in tracked.error
    assert "Check that the MLflow server" in tracked.error
    assert len(client.get_metric_history(tracked.run_id, "loss")) == 5


@pytest.mark.parametrize("fault", ["refuses", "hang"])
def test_a_server_never_there_costs_no_more_than_the_timeout(proxy: FaultyProxy, tmp_path: Path, fault: str) -> None:
    proxy.fault = "hang"
    host = proxy.url if fault == "hang" else f"http://127.0.0.1:{free_port()}"
    url = host.replace("://", "://user:pass-word@")
    notes: list[str] = []
    began = time.monotonic()
    tracked = tracker({"MLFLOW_TRACKING_URI": url}, notes, timeout=3).finish(outcome(tmp_path))

    assert time.monotonic() - began < 3.5
    assert (tracked.run_id, notes) == ("", [tracked.error])
    assert host in tracked.error
    assert "\n" not in tracked.error
    assert "pass-word" not in tracked.error


def test_a_server_that_is_not_there_costs_a_local_run_seconds_and_says_so_in_a_line(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    notes: list[str] = []
    began = time.monotonic()
    tracked = tracker({"MLFLOW_TRACKING_URI": url.replace("://", "://me:pass-word@")}, notes).finish(outcome(tmp_path))

    assert time.monotonic() - began < 8
    assert notes == [tracked.error]
    assert tracked.error == (
        f"MLflow at {url} cannot be used, so this run is not tracked: the connection is refused. "
        "Check that the MLflow server at MLFLOW_TRACKING_URI and its artifact store run and can be reached; "
        "the run's own outputs are not affected."
    )


@pytest.mark.parametrize("asked", [{"KFP_POD_NAME": "pod"}, {"KFP_METHODS_TRACKING_SECONDS": "10"}])
def test_a_pod_and_whoever_asks_for_it_wait_for_a_server_that_is_still_to_come(
    tmp_path: Path, asked: dict[str, str]
) -> None:
    environ = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{free_port()}", **asked}
    began = time.monotonic()
    assert tracker(environ, [], timeout=10).finish(outcome(tmp_path)).error
    assert 5.5 < time.monotonic() - began < 10.5


def test_a_server_that_was_away_all_along_is_not_waited_for_again(tmp_path: Path) -> None:
    followed = tracker({"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{free_port()}"}, [], timeout=2.5)
    followed.start()
    time.sleep(5)
    began = time.monotonic()
    assert followed.finish(outcome(tmp_path)).error
    assert time.monotonic() - began < 1.5


def test_without_its_artifact_store_a_run_keeps_everything_else(
    proxy: FaultyProxy, sqlite_server: str, tmp_path: Path
) -> None:
    proxy.fault, proxy.only = "503", "/mlflow-artifacts/"
    notes: list[str] = []
    followed = tracker({"MLFLOW_TRACKING_URI": proxy.url}, notes, experiment="no store", timeout=5)
    tracked = followed.finish(outcome(tmp_path, points=curve("loss", 3), **saved_model(tmp_path / "m")))

    run = client_of(sqlite_server).get_run(tracked.run_id)
    assert "write the files (claims.json, figures" in tracked.error
    assert notes == [tracked.error]
    assert run.info.status == "FINISHED"
    assert (len(run.data.params), run.data.metrics["auc"], len(run.inputs.dataset_inputs)) == (6, 0.875, 1)


def test_a_run_id_that_does_not_exist_is_reported_at_once(sqlite_server: str, tmp_path: Path) -> None:
    environ = {"MLFLOW_TRACKING_URI": sqlite_server, "MLFLOW_RUN_ID": "0" * 32}
    notes: list[str] = []
    began = time.monotonic()
    tracked = tracker(environ, notes, timeout=20).finish(outcome(tmp_path))
    assert time.monotonic() - began < 10
    assert "Check MLFLOW_TRACKING_URI, MLFLOW_RUN_ID" in tracked.error
    assert notes == [tracked.error]


def test_a_deleted_experiment_is_named_with_its_remedy(sqlite_server: str, tmp_path: Path) -> None:
    client = client_of(sqlite_server)
    client.delete_experiment(client.create_experiment("gone"))
    tracked = tracker({"MLFLOW_TRACKING_URI": sqlite_server}, [], experiment="gone").finish(outcome(tmp_path))
    assert "experiment 'gone' was deleted in MLflow: restore it or give another name" in tracked.error


def _experiment(client: Any, name: str) -> str:
    """Its id; "0", the empty default experiment's, until it exists."""
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id) if found else "0"


def _has_metric(client: Any, experiment: str, name: str) -> bool:
    return any(name in run.data.metrics for run in client.search_runs([_experiment(client, experiment)]))


def _wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.1)
