"""The life of a pipeline on a KFP server, and every way in which the server can refuse.

Without postponed annotations, which kfp's decorators cannot read.
"""

import copy
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kfp
import kfp_server_api
import pytest
import yaml
from kfp import compiler, dsl
from urllib3.exceptions import InsecureRequestWarning

from kfp_methods.cluster import Cluster, ClusterError, Connection, RunStatus, UploadedVersion, connection
from kfp_methods.cluster.cron import kfp_cron
from kfp_methods.errors import InputError
from tests.fake_kfp import FakeKfp, Fault, Stage, parse

TOKEN = "eyJhbGciOi.c2VjcmV0.c2ln"
NO_PAUSES = (0.0, 0.0, 0.0)


@pytest.fixture
def server() -> Iterator[FakeKfp]:
    with FakeKfp() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, home or pod of this machine reaches a test."""
    for name in ("ENDPOINT", "NAMESPACE", "TOKEN", "TOKEN_FILE", "CA", "UI"):
        monkeypatch.delenv(f"KFP_{name}", raising=False)
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / ".config/kfp").mkdir(parents=True)
    (home / ".config/kfp/context.json").write_text('{"namespace": "of-another-project"}')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(connection, "IN_CLUSTER_TOKEN", tmp_path / "no-pod")
    monkeypatch.setattr(connection, "IN_CLUSTER_NAMESPACE", tmp_path / "no-pod")


@pytest.fixture
def cluster(server: FakeKfp) -> Cluster:
    return cluster_of(server)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("package") / "pipeline.yaml", image="python:3.11")


def cluster_of(server: FakeKfp, **settings: Any) -> Cluster:
    return Cluster(Connection(**{"endpoint": server.url, "timeout": 5.0, **settings}), retry_pauses=NO_PAUSES)


def compiled(path: Path, image: str) -> Path:
    """A pipeline with one task outside and one inside a ParallelFor; `rounds` has no default."""

    @dsl.container_component
    def train(rounds: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=image, command=["echo"], args=[rounds])

    @dsl.pipeline(name="training")
    def training(rounds: int, label: str = "a") -> None:
        train(rounds=rounds)
        with dsl.ParallelFor([1, 2]):
            train(rounds=rounds)

    compiler.Compiler().compile(training, str(path))
    return path


def submitted(cluster: Cluster, package: Path) -> str:
    return cluster.submit(package, name="a run", experiment="trials", arguments={"rounds": 3}).run_id


# ---- the whole life


def test_a_pipeline_is_uploaded_run_and_followed_to_success(
    cluster: Cluster, server: FakeKfp, package: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    version = cluster.upload(package, name="training", description="trains")
    run = cluster.submit(version, name="first", experiment="trials", arguments={"rounds": 3, "label": None})
    heard: list[RunStatus] = []
    end = cluster.follow(run.run_id, on_change=heard.append, poll=0.0)

    assert end.succeeded
    assert [status.state for status in heard] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert [(task.name, task.state) for task in end.tasks] == [("train", "SUCCEEDED")]
    assert heard[1].tasks[0].end is None
    assert run.run_url == f"{server.url}/#/runs/details/{run.run_id}" == end.url
    assert run.experiment_url == f"{server.url}/#/experiments/details/{run.experiment_id}"
    assert version.url == f"{server.url}/#/pipelines/details/{version.pipeline_id}/version/{version.version_id}"
    assert server.runs[0].runtime_config.parameters == {"rounds": 3}
    assert server.runs[0].pipeline_version_reference.pipeline_version_id == version.version_id
    assert server.runs[0].service_account is None
    assert capfd.readouterr() == ("", "")


def test_a_failed_run_says_which_task_and_why(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    server.stages = [
        Stage("RUNNING", {"train": "RUNNING"}),
        Stage("FAILED", {"load": "SUCCEEDED", "train": "FAILED"}),
    ]
    end = cluster.follow(submitted(cluster, package), poll=0.0)
    assert (end.state, end.finished, end.succeeded) == ("FAILED", True, False)
    assert [(task.name, task.error) for task in end.tasks if task.name in ("load", "train")] == [
        ("load", None),
        ("train", "exit code 1"),
    ]
    assert end.error is not None
    assert "train: exit code 1" in end.error


def test_the_servers_own_error_of_a_run_comes_first(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    server.stages = [Stage("FAILED", {"train": "FAILED"}, error="quota exceeded")]
    assert cluster.status(submitted(cluster, package)).error == "quota exceeded"


@pytest.mark.parametrize("state", ["CANCELED", "SKIPPED"])
def test_following_ends_in_every_terminal_state(cluster: Cluster, server: FakeKfp, package: Path, state: str) -> None:
    server.stages = [Stage("CANCELING"), Stage(state)]
    assert cluster.follow(submitted(cluster, package), poll=0.0).state == state


def test_a_failed_driver_is_shown_though_drivers_are_not(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    server.stages = [Stage("FAILED", {"train-driver": "FAILED"})]
    assert "train-driver" in [task.name for task in cluster.status(submitted(cluster, package)).tasks]


# ---- uploading


def test_the_same_content_is_uploaded_once_and_new_content_is_a_new_version(
    cluster: Cluster, server: FakeKfp, package: Path, tmp_path: Path
) -> None:
    first = cluster.upload(package, name="training")
    again = cluster.upload(package, name="training")
    changed = cluster.upload(compiled(tmp_path / "other.yaml", image="python:3.12"), name="training")

    assert (first.created, again.created, changed.created) == (True, False, True)
    assert again.version_id == first.version_id != changed.version_id
    assert first.pipeline_id == again.pipeline_id == changed.pipeline_id
    assert len(server.pipelines) == 1
    assert server.count("POST .*/upload_version") == 2
    assert server.versions[0].pipeline_spec == yaml.safe_load(package.read_text())


def test_uploads_at_the_same_moment_end_in_one_pipeline_and_one_version(server: FakeKfp, package: Path) -> None:
    barrier = threading.Barrier(6)

    def upload(_: int) -> UploadedVersion:
        barrier.wait()
        return cluster_of(server).upload(package, name="training")

    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(upload, range(6)))
    assert len({version.version_id for version in versions}) == 1
    assert sum(version.created for version in versions) == 1
    assert (len(server.pipelines), len(server.versions)) == (1, 1)


def test_what_somebody_else_made_between_looking_and_making_is_used(
    cluster: Cluster, server: FakeKfp, package: Path
) -> None:
    first = cluster.upload(package, name="training")
    run = cluster.submit(first, name="first", experiment="trials", arguments={"rounds": 1})
    nothing = {"status": 200, "body": b"{}"}
    server.faults = [
        Fault(r"GET .*/pipelines\?", **nothing),  # type: ignore[arg-type]
        Fault("GET .*/versions", **nothing),  # type: ignore[arg-type]
        Fault("GET .*/experiments", **nothing),  # type: ignore[arg-type]
    ]
    again = cluster.upload(package, name="training")
    second = cluster.submit(again, name="second", experiment="trials", arguments={"rounds": 1})
    assert (again.version_id, again.created) == (first.version_id, False)
    assert second.experiment_id == run.experiment_id
    assert (len(server.pipelines), len(server.versions), len(server.experiments)) == (1, 1, 1)


def test_an_upload_that_the_server_took_before_it_failed_is_found_again(
    cluster: Cluster, server: FakeKfp, package: Path
) -> None:
    server.faults = [Fault("upload_version", status=502, passes=True)]
    assert cluster.upload(package, name="training").version_id == server.versions[0].pipeline_version_id


@pytest.mark.parametrize("name", ["a+b", "50%", 'quoted "x"', "größe é", "a&b=c", "x/y"])
def test_names_with_odd_characters_are_found_again(cluster: Cluster, server: FakeKfp, package: Path, name: str) -> None:
    assert cluster.upload(package, name=name).created
    assert not cluster.upload(package, name=name).created
    assert cluster.submit(package, name=name, experiment=name, arguments={"rounds": 1}).run_id
    assert [run.name for run in cluster.runs(name)] == [name]


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("absent.yaml", None, "cannot be read"),
        ("pipeline.zip", b"PK", "is not a YAML file"),
        ("notes.yaml", b"a: 1", "is not a compiled pipeline"),
        ("broken.yaml", b"a: [", "is not a compiled pipeline"),
        ("empty.yaml", b"", "is not a compiled pipeline"),
    ],
)
def test_a_package_that_is_none_is_refused_before_anything_is_sent(
    cluster: Cluster, server: FakeKfp, tmp_path: Path, file: str, content: bytes | None, problem: str
) -> None:
    path = tmp_path / file
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"package=.*{problem}"):
        cluster.submit(path, name="run", experiment="trials", arguments={})
    assert server.seen == []


# ---- submitting


def test_caching_is_set_in_every_task_even_inside_a_loop(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    version = cluster.upload(package, name="training")
    for pipeline in (package, version):
        cluster.submit(pipeline, name="n", experiment="e", arguments={"rounds": 1}, enable_caching=False)
        spec = server.runs[-1].pipeline_spec
        dags = [spec["root"], *spec["components"].values()]
        tasks = [task for dag in dags if "dag" in dag for task in dag["dag"]["tasks"].values()]
        assert len(tasks) == 3
        assert all(task["cachingOptions"]["enableCache"] is False for task in tasks)


def test_the_service_account_is_sent(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    cluster.submit(package, name="n", experiment="e", arguments={"rounds": 1}, service_account="default-editor")
    assert server.runs[0].service_account == "default-editor"


def test_arguments_that_are_not_json_are_all_named_and_nothing_is_sent(
    cluster: Cluster, server: FakeKfp, package: Path
) -> None:
    with pytest.raises(InputError) as caught:
        cluster.submit(package, name="n", experiment="e", arguments={"rounds": float("nan"), "label": {1, 2}, "x": 1})
    assert [problem.field for problem in caught.value.problems] == ["rounds", "label"]
    assert server.seen == []


def test_the_servers_word_on_an_unknown_argument_is_passed_on(cluster: Cluster, package: Path) -> None:
    with pytest.raises(ClusterError, match=r"400: .*unrecognized input parameter: speed") as caught:
        cluster.submit(package, name="n", experiment="e", arguments={"rounds": 1, "speed": 2})
    assert caught.value.status == 400


def test_runs_are_listed_newest_first_over_several_pages(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    server.max_page_size = 2
    for number in range(5):
        experiment = "odd" if number % 2 else "even"
        cluster.submit(package, name=str(number), experiment=experiment, arguments={"rounds": 1})
    assert [run.name for run in cluster.runs()] == ["4", "3", "2", "1", "0"]
    assert [run.name for run in cluster.runs(limit=3)] == ["4", "3", "2"]
    assert [run.name for run in cluster.runs("odd")] == ["3", "1"]
    for limit in (0, -1):
        with pytest.raises(InputError, match=f"limit={limit}: is not positive"):
            cluster.runs(limit=limit)
    with pytest.raises(ClusterError, match="no experiment nowhere"):
        cluster.runs("nowhere")


# ---- following


def test_following_survives_an_outage(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    run_id = submitted(cluster, package)
    attempts = 1 + len(NO_PAUSES)
    outage = [
        Fault("GET .*/runs/", status=503, times=2 * attempts),
        Fault("GET .*/runs/", drop=True, times=2 * attempts),
    ]

    def fail(status: RunStatus) -> None:
        if status.state == "PENDING":
            server.faults = outage

    assert cluster.follow(run_id, on_change=fail, poll=0.001).succeeded
    assert [fault.times for fault in outage] == [0, 0]
    assert server.count("GET .*/runs/") == 4 * attempts + 3


def test_following_gives_up_when_the_server_stays_away(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    run_id = submitted(cluster, package)

    def away(_: object) -> None:
        server.faults = [Fault("GET .*/runs/", status=503, times=None)]

    with pytest.raises(ClusterError, match=f"no answer for 0.1 s.*The run goes on.*{run_id}") as caught:
        cluster.follow(run_id, on_change=away, poll=0.01, patience=0.1)
    assert caught.value.transient


def test_following_does_not_wait_for_a_run_that_was_deleted(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    run_id = submitted(cluster, package)
    with pytest.raises(ClusterError) as caught:
        cluster.follow(run_id, on_change=lambda _: server.runs.clear(), poll=0.0)
    assert caught.value.status == 404


def test_an_interrupt_ends_the_following_and_not_the_run(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    run_id = submitted(cluster, package)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    seen = cluster.follow(run_id, on_change=interrupt)
    assert (seen.state, seen.finished) == ("PENDING", False)
    assert server.count("terminate|DELETE") == 0
    assert cluster.follow(run_id, poll=0.0).succeeded


# ---- schedules


@pytest.fixture
def version(cluster: Cluster, package: Path) -> UploadedVersion:
    return cluster.upload(package, name="training")


def scheduled(cluster: Cluster, version: UploadedVersion, **settings: Any) -> Any:
    given = {"name": "nightly", "experiment": "trials", "arguments": {"rounds": 1}, "cron": "0 0 3 * * *"}
    return cluster.schedule(version, **{**given, **settings})


def test_a_schedule_is_made_listed_disabled_and_deleted(
    cluster: Cluster, server: FakeKfp, version: UploadedVersion
) -> None:
    made = scheduled(cluster, version, max_concurrency=2, no_catchup=False)
    assert (made.cron, made.interval_seconds, made.enabled) == ("0 0 3 * * *", None, True)
    assert (made.max_concurrency, made.no_catchup) == (2, False)
    assert made.url == f"{server.url}/#/recurringrun/details/{made.id}"
    assert cluster.schedules() == [made]
    assert server.recurring_runs[0].runtime_config.parameters == {"rounds": 1}

    assert cluster.unschedule("nightly", disable=True) == made
    assert [schedule.enabled for schedule in cluster.schedules()] == [False]
    cluster.unschedule(made.id)
    assert cluster.schedules() == []


def test_a_schedule_can_be_periodic_and_begin_disabled(cluster: Cluster, version: UploadedVersion) -> None:
    made = scheduled(cluster, version, cron=None, every=3600, enabled=False)
    assert (made.cron, made.interval_seconds, made.enabled) == (None, 3600, False)


def test_all_pages_of_schedules_are_read(cluster: Cluster, server: FakeKfp, version: UploadedVersion) -> None:
    server.max_page_size = 3
    for number in range(7):
        scheduled(cluster, version, name=f"s{number}")
    before = server.count("GET .*/recurringruns")
    assert [schedule.name for schedule in cluster.schedules()] == [f"s{number}" for number in reversed(range(7))]
    assert server.count("GET .*/recurringruns") - before == 3


def test_a_name_that_two_schedules_have_is_not_guessed(
    cluster: Cluster, server: FakeKfp, version: UploadedVersion
) -> None:
    ids = {scheduled(cluster, version).id}
    server.recurring_runs.append(copy.copy(server.recurring_runs[0]))  # as the UI lets one make it
    server.recurring_runs[1].recurring_run_id = "made-in-the-ui"
    ids.add("made-in-the-ui")
    with pytest.raises(ClusterError, match="2 schedules are named nightly") as caught:
        cluster.unschedule("nightly")
    assert all(id in str(caught.value) for id in ids)
    with pytest.raises(ClusterError, match=r"no schedule .* weekly\. Give one of nightly"):
        cluster.unschedule("weekly")
    assert len(server.recurring_runs) == 2


def test_a_second_schedule_of_a_name_is_refused_or_takes_the_firsts_place(
    cluster: Cluster, server: FakeKfp, version: UploadedVersion
) -> None:
    first, other = scheduled(cluster, version), scheduled(cluster, version, name="weekly")
    with pytest.raises(InputError, match=rf"schedule_name=nightly: is a schedule already \({first.id}\).*--replace"):
        scheduled(cluster, version)
    second = scheduled(cluster, version, replace=True, cron="0 0 4 * * *")
    assert cluster.schedules() == [second, other]
    assert second.id != first.id


def test_the_earlier_schedule_stays_where_the_new_one_is_refused(
    cluster: Cluster, server: FakeKfp, version: UploadedVersion
) -> None:
    first = scheduled(cluster, version)
    with pytest.raises(ClusterError, match="unrecognized input parameter"):
        scheduled(cluster, version, replace=True, arguments={"rounds": 1, "speed": 2})
    assert cluster.schedules() == [first]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cron": "0 3 * *"}, "cron=0 3 \\* \\*: has 4 fields instead of 6. Give six fields, such as 0 0 3"),
        ({"every": 60}, "excludes every"),
        ({"cron": None}, "cron: is missing"),
        ({"cron": None, "every": 0}, "every=0: is not positive"),
        ({"cron": "0 0 3 30 2 *"}, "never comes"),
        ({"service_account": "Runner"}, "service_account=Runner: is not a name"),
        ({"max_concurrency": 11}, "max_concurrency=11: .* Give 1 to 10"),
        ({"name": " "}, "name= *: is empty"),
        ({"experiment": ""}, "experiment=: is empty"),
    ],
)
def test_a_wrong_schedule_is_refused_before_it_is_sent(
    cluster: Cluster, server: FakeKfp, version: UploadedVersion, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        scheduled(cluster, version, **settings)
    assert server.count("POST .*/recurringruns") == 0


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("0 0 3 * * *", "0 0 3 * * *"),
        ("0 3 * * *", "0 0 3 * * *"),
        ("*/15 * * * *", "0 */15 * * * *"),
        (" 0  30 9,17 ? JAN-jun mon-FRI ", "0 30 9,17 ? JAN-jun mon-FRI"),
        ("0 0-30/10 5/2 1 * 0", "0 0-30/10 5/2 1 * 0"),
        ("@daily", "@daily"),
        ("0 0 0 29 2 *", "0 0 0 29 2 *"),
        ("0 0 0 30 * *", "0 0 0 30 * *"),
        ("0 0 0 31 feb,mar *", "0 0 0 31 feb,mar *"),
        ("0 0 0 30 2 mon", "0 0 0 30 2 mon"),
    ],
)
def test_cron_expressions_are_sent_as_kfp_reads_them(given: str, sent: str) -> None:
    assert kfp_cron(given) == sent


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "has 0 fields"),
        ("60 0 3 * * *", "the second 60 is not within 0-59"),
        ("0 60 3 * * *", "the minute 60 is not within 0-59"),
        ("0 0 24 * * *", "the hour 24 is not within 0-23"),
        ("0 0 3 0 * *", "the day of the month 0 is not within 1-31"),
        ("0 0 3 * 13 *", "the month 13 is not within 1-12"),
        ("0 0 3 * * 7", "the day of the week 7 is not within 0-6"),
        ("0 0 3 * * mo", "is not a number, a range"),
        ("0 0 9-5 * * *", "runs backwards"),
        ("0 */0 * * * *", "has a step"),
        ("0 1,,2 * * * *", "is not a number"),
        ("0 1-2-3 * * * *", "is not a number"),
        ("@every 5m", "has 2 fields"),
        ("0 0 0 30 2 *", "never comes: no month of 2 has a day 30"),
        ("0 0 0 30-31 feb ?", "never comes"),
        ("0 0 0 31 2-6/2,sep,11 *", "never comes"),
        ("0 0 0 30/1 2 */2", "never comes"),
    ],
)
def test_wrong_cron_expressions_name_the_field_and_an_example(given: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"{problem}.*0 0 3 "):
        kfp_cron(given)


# ---- refusals


def refused(cluster: Cluster, **settings: Any) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        cluster.schedules(**settings)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    return caught.value


def test_the_right_token_lets_in_and_is_shown_nowhere() -> None:
    with FakeKfp(token=TOKEN) as server:
        connected = Connection(server.url, token=f" Bearer {TOKEN}\n")
        assert Cluster(connected).schedules() == []
        assert TOKEN not in repr(connected)


def test_a_wrong_token_is_not_quoted_even_where_the_server_does() -> None:
    with FakeKfp(token="another") as server:
        error = refused(cluster_of(server, token=TOKEN))
        assert error.status == 401
        assert "Bearer ***" in str(error)
        assert "perhaps it has expired" in error.remedy
        assert "No token was sent" in refused(cluster_of(server)).remedy
        assert server.count("GET") == 2


def test_a_token_file_is_read_anew_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with FakeKfp(token=TOKEN) as server:
        cluster = cluster_of(server, token_file=file)
        assert cluster.schedules() == []
        server.token = "rotated"
        file.write_text("rotated")
        assert cluster.schedules() == []
        file.unlink()
        assert str(file) in str(refused(cluster))


@pytest.mark.parametrize("token", ["", "two words", "a\nb", "größe"])
def test_what_cannot_be_a_token_is_refused_without_quoting_it(token: str) -> None:
    with pytest.raises(ClusterError, match=r"The token is (empty|a text with)") as caught:
        Connection("https://kfp.example.com", token=token)
    assert not token or token not in str(caught.value)


def test_a_forbidden_namespace_is_named_with_the_verb(server: FakeKfp, package: Path) -> None:
    server.multi_user, server.forbidden_namespaces = True, {"team-a"}
    error = refused(cluster_of(server, namespace="team-a"))
    assert error.status == 403
    assert "refused to list schedules with 403: User is not authorized to list recurringruns" in str(error)
    assert "kubeflow-edit (to look only, kubeflow-view) in the namespace team-a" in error.remedy


def test_a_namespace_that_a_multi_user_server_needs_is_asked_for(server: FakeKfp, package: Path) -> None:
    server.multi_user = True
    error = refused(cluster_of(server))
    assert error.status == 400
    assert "give --namespace or set KFP_NAMESPACE" in error.remedy
    inside = cluster_of(server, namespace="team-b")
    version = inside.upload(package, name="training")
    inside.submit(version, name="n", experiment="e", arguments={"rounds": 1})
    assert scheduled(inside, version) in inside.schedules()
    assert len(inside.runs()) == 1
    assert cluster_of(server, namespace="team-c").schedules() == []


def test_a_namespace_that_a_single_user_server_refuses_is_to_be_left_out(server: FakeKfp, package: Path) -> None:
    with pytest.raises(ClusterError, match="no profiles: give no --namespace, and unset KFP_NAMESPACE") as caught:
        submitted(cluster_of(server, namespace="kubeflow"), package)
    assert caught.value.status == 400


def test_an_unknown_run_and_a_wrong_path_are_told_apart(cluster: Cluster, server: FakeKfp) -> None:
    with pytest.raises(ClusterError, match=r"404: .*run 1234 not found\. Check the id") as caught:
        cluster.status("1234")
    assert caught.value.status == 404
    assert "ends with /pipeline" in refused(cluster_of(server, endpoint=f"{server.url}/wrong")).remedy
    with FakeKfp(prefix="/pipeline") as behind_dashboard:
        assert cluster_of(behind_dashboard).schedules() == []
        pasted = behind_dashboard.url.replace("/pipeline", "/_/pipeline/?ns=team-a#/runs")
        assert Cluster(Connection(pasted)).schedules() == []


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(400, "Correct what the server names"), (409, "try again"), (413, "Make the package smaller")],
)
def test_the_servers_message_is_passed_on_once(
    cluster: Cluster, server: FakeKfp, package: Path, status: int, remedy: str
) -> None:
    body = json.dumps({"error_message": "the\nreason", "error_details": "long"}).encode()
    server.faults = [Fault("upload_version", status=status, body=body, times=None)]
    with pytest.raises(ClusterError, match=f"with {status}: the reason.*{remedy}"):
        cluster.upload(package, name="training")
    assert server.count("upload_version") == 1


def test_an_upload_that_is_denied_with_400_is_told_as_denied(server: FakeKfp, package: Path) -> None:
    body = b'{"error_message": "Authorization Failure: not allowed to create pipelines in namespace team-a"}'
    server.faults = [Fault("upload_version", status=400, body=body)]
    with pytest.raises(ClusterError, match=r"kubeflow-edit .* in the namespace team-a"):
        cluster_of(server, namespace="team-a").upload(package, name="training")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_failure_is_retried(cluster: Cluster, server: FakeKfp, status: int) -> None:
    server.faults = [Fault(status=status, times=len(NO_PAUSES))]
    assert cluster.schedules() == []
    assert server.count("GET") == 1 + len(NO_PAUSES)


def test_a_failure_that_stays_is_told_with_the_number_of_attempts(cluster: Cluster, server: FakeKfp) -> None:
    server.faults = [Fault(times=None)]
    error = refused(cluster)
    assert (error.status, error.transient) == (500, True)
    assert "500: boom (4 attempts)" in str(error)
    assert "kubectl logs -n kubeflow deploy/ml-pipeline" in error.remedy


@pytest.mark.parametrize(
    "fault",
    [{"status": 500}, {"status": 504}, {"drop": True}, {"delay": 0.4}],
    ids=lambda fault: next(iter(fault)),
)
def test_a_run_that_may_have_been_created_is_not_created_again(
    server: FakeKfp, package: Path, fault: dict[str, Any]
) -> None:
    server.faults = [Fault("POST .*/runs", times=None, passes=True, **fault)]
    with pytest.raises(ClusterError, match="Look before you create a run again"):
        submitted(cluster_of(server, timeout=0.2), package)
    assert (server.count("POST .*/runs"), len(server.runs)) == (1, 1)


def test_a_run_that_the_server_did_not_take_is_sent_again(cluster: Cluster, server: FakeKfp, package: Path) -> None:
    server.faults = [Fault("POST .*/runs", status=503, times=2)]
    submitted(cluster, package)
    assert (server.count("POST .*/runs"), len(server.runs)) == (3, 1)


# ---- no answer, or not the API's


def test_a_server_that_is_too_slow(server: FakeKfp) -> None:
    server.faults = [Fault(delay=0.5, times=None)]
    slow = Cluster(Connection(server.url, timeout=0.1), retry_pauses=(0.0,))
    error = refused(slow)
    assert "within 0.1 s (2 attempts). Check the network or VPN, or give more time with --timeout" in str(error)


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = refused(Cluster(Connection(f"http://127.0.0.1:{port}"), retry_pauses=(0.0,)))
    assert "Connection refused (2 attempts)" in error.problem
    assert "port-forward is running" in error.remedy


def test_a_host_that_dns_does_not_know() -> None:
    error = refused(Cluster(Connection("https://kfp.invalid"), retry_pauses=(60.0,)))
    assert "The name kfp.invalid is not known to DNS" in str(error)


def test_a_connection_that_breaks(cluster: Cluster, server: FakeKfp) -> None:
    server.faults = [Fault(drop=True, times=None)]
    assert "broke: " in str(refused(cluster))
    server.faults = [Fault(drop=True, times=1)]
    assert cluster.schedules() == []


LOGIN = b"<!DOCTYPE html><html><title>Log in to Dex</title></html>"


@pytest.mark.parametrize("status", [200, 401, 403])
def test_a_login_page_instead_of_json(cluster: Cluster, server: FakeKfp, status: int) -> None:
    server.faults = [Fault(status=status, body=LOGIN, headers={"Content-Type": "text/html"}, times=None)]
    error = refused(cluster)
    assert "answered a web page instead of JSON" in str(error)
    assert "go round the proxy" in error.remedy
    assert server.count("GET") == 1


def test_a_redirect_to_a_login_is_not_followed_and_its_query_not_shown(cluster: Cluster, server: FakeKfp) -> None:
    location = "https://dex.example.com/auth?state=s3cret"
    server.faults = [Fault(status=302, body=b"", headers={"Location": location}, times=None)]
    error = refused(cluster)
    assert "redirects to https://dex.example.com/auth (to list schedules)" in str(error)
    assert "s3cret" not in str(error)
    assert server.count("") == 1


def test_a_redirect_to_https_says_so(cluster: Cluster, server: FakeKfp) -> None:
    location = server.url.replace("http:", "https:") + "/apis/v2beta1/recurringruns"
    server.faults = [Fault(status=301, body=b"", headers={"Location": location}, times=None)]
    assert refused(cluster).remedy == f"Give the endpoint with https: {server.url.replace('http:', 'https:')}"


@pytest.mark.parametrize("body", [b"ok", b"[]", b"", b"\xff\xfe"])
def test_an_answer_that_is_not_the_apis(cluster: Cluster, server: FakeKfp, body: bytes) -> None:
    server.faults = [Fault(status=200, body=body, times=None)]
    assert "is not JSON" in str(refused(cluster))


def test_an_answer_that_the_client_cannot_read(cluster: Cluster, server: FakeKfp) -> None:
    body = b'{"recurringRuns": [{"created_at": "yesterday-ish"}]}'
    server.faults = [Fault(status=200, body=body, times=None)]
    assert "is not understood" in str(refused(cluster))


def test_an_error_page_in_another_encoding(cluster: Cluster, server: FakeKfp) -> None:
    server.faults = [Fault(status=502, body="Zeitüberschreitung".encode("latin-1"), times=None)]
    assert "with 502: Zeit" in str(refused(cluster))


def authority(folder: Path) -> tuple[Path, Path]:
    """The certificate and key of a server on this machine that vouches for itself."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost"
    files = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request.split(), *files], check=True, capture_output=True)
    return certificate, key


def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    certificate, key = authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with FakeKfp(tls=tls) as server:
        error = refused(cluster_of(server))
        assert "certificate verify failed" in error.problem
        assert "--ca or KFP_CA" in error.remedy
        assert cluster_of(server, ca=certificate).schedules() == []
        with pytest.warns(InsecureRequestWarning):
            assert cluster_of(server, verify=False).schedules() == []
        plain = cluster_of(server, endpoint=server.url.replace("https", "http"))
        assert "whether the endpoint speaks http or https" in refused(plain).remedy
    with FakeKfp() as server:
        wrong = refused(cluster_of(server, endpoint=server.url.replace("http", "https")))
        assert "the scheme should not be http" in wrong.remedy


# ---- where the server is


def test_the_environment_is_read_and_arguments_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ca = authority(tmp_path)[0]
    settings = {"ENDPOINT": "kfp.example.com/pipeline/", "NAMESPACE": "team-a", "TOKEN": TOKEN, "CA": str(ca)}
    for name, value in settings.items():
        monkeypatch.setenv(f"KFP_{name}", value)
    assert Connection.from_environment() == Connection(
        "https://kfp.example.com/pipeline", namespace="team-a", token=TOKEN, ca=ca
    )
    given = Connection.from_environment(endpoint="localhost:8080", namespace="team-b", token="t", timeout=3)
    assert (given.endpoint, given.namespace, given.token) == ("http://localhost:8080", "team-b", "t")
    assert Connection.from_environment(token_file=tmp_path / "t").token is None


def test_a_pods_token_goes_to_the_in_cluster_service_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text("team-a\n")
    monkeypatch.setattr(connection, "IN_CLUSTER_TOKEN", tmp_path / "token")
    monkeypatch.setattr(connection, "IN_CLUSTER_NAMESPACE", tmp_path / "namespace")
    inside = Connection.from_environment()
    assert (inside.endpoint, inside.namespace) == ("http://ml-pipeline.kubeflow:8888", "team-a")
    assert inside.bearer() == TOKEN
    assert Connection.from_environment(endpoint="https://elsewhere.example.com").bearer() is None


def test_no_endpoint_says_how_to_give_one() -> None:
    with pytest.raises(ClusterError, match=r"No Kubeflow Pipelines endpoint was given\. Give --endpoint"):
        Connection.from_environment()


@pytest.mark.parametrize("endpoint", ["", "ftp://kfp", "https://", "http://kfp:port", "http://[::1"])
def test_an_endpoint_that_is_no_url(endpoint: str) -> None:
    with pytest.raises(ClusterError, match="not a URL of a server"):
        Connection(endpoint)


def test_a_password_in_the_endpoint_is_refused_and_not_shown() -> None:
    with pytest.raises(ClusterError, match="holds a user name or password") as caught:
        Connection("https://me:hunter2@kfp.example.com")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ca": Path("/no/such.pem")}, r"CA file /no/such.pem cannot be read \(No such file"),
        ({"ca": Path("/")}, r"CA file / cannot be read \(Is a directory"),
        ({"ca": Path(__file__)}, "is not a PEM certificate"),
        ({"timeout": 0.0}, "is not positive"),
        ({"timeout": float("inf")}, "is not positive"),
        ({"timeout": float("nan")}, "is not positive"),
        ({"namespace": "Team A"}, "not a name that Kubernetes allows"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ClusterError, match=message) as caught:
        Connection("https://kfp.example.com", **settings)
    assert not caught.value.transient


def test_links_go_to_the_user_interface_where_it_is_elsewhere() -> None:
    inside = Connection("http://ml-pipeline.kubeflow:8888", ui="https://kfp.example.com/_/pipeline/")
    assert inside.link("runs/details/1") == "https://kfp.example.com/pipeline/#/runs/details/1"


def test_importing_the_module_imports_neither_kfp_nor_its_client() -> None:
    code = "import sys, kfp_methods.cluster; sys.exit(any(m in sys.modules for m in ('kfp', 'kfp_server_api')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- the server of these tests


def test_the_fake_serves_kfps_own_client(
    server: FakeKfp, package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", "/no/such/file")
    with pytest.warns(FutureWarning):
        client = kfp.Client(host=server.url)
    pipeline = client.upload_pipeline(str(package), pipeline_name="theirs")
    assert client.get_pipeline_id("theirs") == pipeline.pipeline_id
    experiment = client.create_experiment("theirs")
    assert client.create_experiment("theirs").experiment_id == experiment.experiment_id
    run = client.run_pipeline(experiment.experiment_id, "n", pipeline_package_path=str(package), params={"rounds": 1})
    assert client.wait_for_run_completion(run.run_id, timeout=5, sleep_duration=0).state == "SUCCEEDED"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"display_name": "n", "colour": "red"}, 'unknown field "colour"'),
        ({"display_name": 3}, "invalid value for str field body.display_name"),
        ({"state": "WAITING"}, "invalid value for enum field body.state"),
        ({"runtime_config": {"params": {}}}, 'unknown field "params" in body.runtime_config'),
    ],
)
def test_the_fake_refuses_what_the_api_does_not_define(server: FakeKfp, document: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        parse("V2beta1Run", document)
    assert isinstance(parse("V2beta1Run", {"display_name": "n"}), kfp_server_api.V2beta1Run)
