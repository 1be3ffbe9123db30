"""Runs whose pod was killed are ended by the next attempt, and no others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kfp_methods.tracking import jobs, local_tracking_uri, stale
from tests.tracked_runs import outcome, tracker


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=local_tracking_uri(tmp_path_factory.mktemp("stale")))


@pytest.fixture
def experiment(client: Any, tmp_path: Path) -> str:
    return client.create_experiment(tmp_path.name)


NODE = "noop-replicates-x7k2p.root.for-loop-1.iteration-item(0:0).noop.executor"


def tags(job: str = "job", node: str = f"{NODE}(0)") -> dict[str, str]:
    return {jobs.JOB: job, stale.TASK: stale.task_of(node)}


def status(client: Any, run_id: str) -> str:
    return client.get_run(run_id).info.status


def test_attempts_are_one_task_and_iterations_are_not() -> None:
    assert stale.task_of(f"{NODE}(0)") == stale.task_of(f"{NODE}(1)") == NODE
    assert stale.task_of(f"{NODE}(2).impl") == f"{NODE}.impl"
    other = NODE.replace("(0:0)", "(1:1)")
    assert stale.task_of(f"{other}(0)") == other != NODE
    assert stale.task_of("") == ""
    assert "'" not in stale.task_of("a(0:{'x': 1})")


def test_a_retry_ends_the_run_that_a_killed_pod_left(client: Any, experiment: str) -> None:
    def start(**given: str) -> str:
        return client.create_run(experiment, tags=tags(**given)).info.run_id

    killed, ended = start(), start()
    client.set_terminated(ended, "KILLED")
    others = [start(job="another"), start(node=f"{NODE.replace('(0:0)', '(1:1)')}(0)")]
    own = start(node=f"{NODE}(1)")

    assert stale.fail_earlier_attempts(client, experiment, tags(node=f"{NODE}(1)"), own) == [killed]
    assert status(client, killed) == "FAILED"
    assert own in client.get_run(killed).data.tags["error"]
    assert "FAILED" in client.get_run(killed).data.tags["mlflow.note.content"]
    assert client.get_run(killed).info.end_time
    assert [status(client, run) for run in (ended, own, *others)] == ["KILLED", "RUNNING", "RUNNING", "RUNNING"]
    assert stale.fail_earlier_attempts(client, experiment, tags(), own) == []


@pytest.mark.parametrize("same", [{}, tags(job=""), tags(node="")])
def test_without_a_task_nothing_is_touched(client: Any, experiment: str, same: dict[str, str]) -> None:
    given = {name: value for name, value in same.items() if value}
    runs = [client.create_run(experiment, tags=given).info.run_id for _ in range(2)]
    assert stale.fail_earlier_attempts(client, experiment, same, runs[1]) == []
    assert [status(client, run) for run in runs] == ["RUNNING", "RUNNING"]


def test_a_killed_attempt_is_made_up_for_by_the_next(client: Any, tmp_path: Path) -> None:
    environ = {"MLFLOW_TRACKING_URI": client.tracking_uri, "KFP_RUN_ID": "retried"}
    experiment = client.create_experiment("retried", artifact_location=(tmp_path / "kept").as_uri())
    killed = tracker({**environ, "KFP_NODE_NAME": f"{NODE}(0)"}, [], experiment="retried")
    killed.start()  # and never finishes
    while not (runs := client.search_runs([experiment], f"tags.`{stale.TASK}` = '{NODE}'")):
        time.sleep(0.1)
    retry = tracker({**environ, "KFP_NODE_NAME": f"{NODE}(1)"}, [], experiment="retried")
    ended = retry.finish(outcome(tmp_path))
    assert ended.error == ""
    assert status(client, runs[0].info.run_id) == "FAILED"
    assert status(client, ended.run_id) == "FINISHED"
    assert status(client, jobs.find_parent(client, experiment, "retried")) == "FINISHED"
