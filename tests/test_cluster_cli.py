"""`submit`, `schedule` and their kin as a user calls them, against a server in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_kfp import FakeKfp, Fault, Stage

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKfp]:
    for name in ("NAMESPACE", "TOKEN", "TOKEN_FILE", "CA", "UI"):
        monkeypatch.delenv(f"KFP_{name}", raising=False)
    monkeypatch.setenv("KFP_METHODS_REGISTRY", "registry.example.com")
    with FakeKfp() as fake:
        monkeypatch.setenv("KFP_ENDPOINT", fake.url)
        yield fake


def test_submit_sends_the_arguments_and_the_resources(call: Call, server: FakeKfp) -> None:
    code, out, err = call(
        "submit", "noop", "--steps", "3", "--seed", "5", "--replicates", "2", "--gpus", "1", "--memory", "2Gi",
        "--service-account", "runner", "--run-name", "mine", "--data-uri", "s3://bucket/a.csv",
    )  # fmt: skip
    assert (code, err) == (0, "")
    [run] = server.runs
    assert run.run_id in out
    assert (run.display_name, run.service_account) == ("mine", "runner")
    given = run.runtime_config.parameters
    assert (given["seeds"], given["steps"], given["data_uri"]) == ([5, 6], 3, "s3://bucket/a.csv")
    assert (given["gpus"], given["memory"]) == (1, "2Gi")


def test_a_mounted_volume_makes_its_paths_reachable(call: Call, server: FakeKfp) -> None:
    data = ("submit", "noop", "--data-uri", "/data/a.csv", "--checkpoints", "/scratch/noop")
    code, _, err = call(*data)
    assert code == 2
    assert "data_uri=/data/a.csv: is a path on this machine" in err
    assert "checkpoints=/scratch/noop: is on no volume" in err
    assert call(*data, "--volume", "team-data:/data", "--volume", "scratch:/scratch/")[0] == 0
    spec = server.versions[0].pipeline_spec["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    mounts = [(each["constant"], each["mountPath"]) for each in spec["exec-noop"]["pvcMount"]]
    assert mounts == [("team-data", "/data"), ("scratch", "/scratch")]


def test_submit_follows_to_the_runs_outcome(call: Call, server: FakeKfp) -> None:
    server.stages = [Stage("FAILED", {"noop": "FAILED"})]
    code, out, _ = call("submit", "noop", "--follow")
    assert code == 1
    assert "noop                     FAILED  exit code 1" in out


@pytest.mark.parametrize("command", [["submit", "noop"], ["schedule", "noop", "--every", "3600"]], ids=lambda c: c[0])
@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        (["--data-uri", "a.csv"], ["data_uri=a.csv: is a path on this machine", "Upload it"]),
        (["--cpu", "two", "--memory", "8GB"], ["cpu=two: is not a Kubernetes quantity", "memory=8GB: is not"]),
        (["--gpu-type", "gpu"], ["gpu_type=gpu: is not the name of a Kubernetes resource"]),
        (["--gpus", "-1"], ["-1 is not in the range"]),
        (["--service-account", "A B"], ["service_account=A B: is not a name"]),
        (["--shared-memory", "much"], ["shared_memory=much: is not a Kubernetes quantity"]),
        (["--toleration", "gpu"], ["toleration=gpu"]),
        (["--volume", "data"], ["volume=data: is not CLAIM:/PATH"]),
        (["--volume", "Data:/data"], ["volume=Data:/data: is not CLAIM:/PATH"]),
        (["--volume", "data:/a/../b"], ["volume=data:/a/../b: is not CLAIM:/PATH"]),
        (["--checkpoints", "/tmp/x"], ["checkpoints=/tmp/x: is on no volume"]),
        (["--time-limit", "1"], ["1 is not in the range"]),
        (["--ca", "no.pem"], ["The CA file no.pem cannot be read"]),
        (["--token-file", "no.txt"], ["The token file no.txt cannot be read"]),
        (["--namespace", "Team"], ["is not a name that Kubernetes allows"]),
        (["--endpoint", "ftp://x"], ["not a URL of a server"]),
    ],
    ids=" ".join,
)
def test_what_cannot_be_run_is_refused_before_anything_is_sent(
    call: Call, server: FakeKfp, command: list[str], flags: list[str], messages: list[str]
) -> None:
    code, _, err = call(*command, *flags)
    assert code == 2
    assert all(message in err for message in messages), err
    assert "Traceback" not in err
    assert server.seen == []


def test_a_missing_endpoint_is_told_in_one_line(call: Call, server: FakeKfp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KFP_ENDPOINT")
    for command in (["submit", "noop"], ["runs"], ["schedules"], ["status", "1"], ["unschedule", "x"]):
        code, out, err = call(*command)
        assert (code, out) == (2, "")
        assert err.startswith("No Kubeflow Pipelines endpoint was given")
        assert len(err.splitlines()) == 1


def test_an_unknown_run_and_a_server_that_is_unwell_differ_in_the_exit_code(call: Call, server: FakeKfp) -> None:
    code, out, err = call("status", "1234")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "run 1234 not found" in err
    server.faults = [Fault(drop=True, times=None)]
    assert call("status", "1234")[0] == 1


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_runs_refuses_a_limit_that_is_none(call: Call, server: FakeKfp, limit: str) -> None:
    code, _, err = call("runs", "--limit", limit)
    assert code == 2
    assert "--limit" in err
    assert server.seen == []


def test_names_in_tables_are_shown_as_they_are_and_never_obeyed(call: Call, server: FakeKfp) -> None:
    names = ["a [red]b[/red]", "[/]", "x\x1b[31my"]
    for name in names:
        call("submit", "noop", "--run-name", name)
        call("schedule", "noop", "--every", "60", "--schedule-name", name)
    for command in ("runs", "schedules"):
        code, out, _ = call(command)
        assert code == 0
        assert names[0] in out
        assert names[1] in out
        assert "\x1b" not in out
    assert all(run.run_id in call("runs")[1] for run in server.runs)


def test_a_schedule_is_not_made_twice_by_mistake(call: Call, server: FakeKfp) -> None:
    nightly = ("schedule", "noop", "--cron", "0 0 3 * * *")
    assert "Times:      0 0 3 * * *" in call(*nightly)[1]
    uploads = server.count("upload_version")
    code, _, err = call(*nightly, "--memory", "2Gi")
    assert code == 2
    assert err.startswith("schedule_name=noop: is a schedule already")
    assert len(server.recurring_runs) == 1
    assert call(*nightly, "--time-limit", "600")[0] == 2
    assert server.count("upload_version") == uploads
    assert call(*nightly, "--replace")[0] == 0
    assert len(server.recurring_runs) == 1
    assert "every 60 s" in call("schedule", "noop", "--every", "60", "--replace")[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "cron: is missing, and so is every"),
        (["--cron", "0 0 3 * * *", "--every", "60"], "excludes every"),
        (["--every", "0"], "--every"),
        (["--cron", "0 0 3 30 2 *"], "never comes"),
    ],
)
def test_wrong_times_name_the_flag(call: Call, server: FakeKfp, flags: list[str], message: str) -> None:
    code, _, err = call("schedule", "noop", *flags)
    assert code == 2
    assert message in err
    assert "interval_seconds" not in err
    assert server.seen == []


@pytest.mark.parametrize("command", [["submit", "noop"], ["schedule", "noop", "--every", "60"], ["compile", "noop"]])
def test_an_image_that_no_node_can_pull_is_warned_of(
    call: Call, server: FakeKfp, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    assert call(*command)[2] == ""
    code, _, err = call(*command, "--image", "own:1", *(["--replace"] if "schedule" in command else []))
    assert code == 0
    assert err.startswith("warning: the image own:1 names no registry")
    assert "KFP_METHODS_REGISTRY" in err


def test_compile_makes_the_folder_it_writes_to(call: Call, server: FakeKfp, tmp_path: Path) -> None:
    assert call("compile", "noop", "-o", "a/b/noop.yaml")[:2] == (0, "a/b/noop.yaml\n")
    assert (tmp_path / "a/b/noop.yaml").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["noop", "--namespace", "team-a"], "namespace=team-a: has an effect only on Kubernetes resources"),
        (["noop", "--namespace", "Team", "--kubernetes-manifest"], "namespace=Team: is not a name"),
        (["noop", "-o", "noop.json"], "output=noop.json: is not a YAML file's name"),
        (["noop", "-o", "file/noop.yaml"], "output=file/noop.yaml: cannot be written"),
        (["--all", "file"], "--all"),
        (["--all", "x", "-o", "a.yaml"], "--all writes many"),
        (["noop", "--shared-memory", "8GB"], "shared_memory=8GB"),
    ],
)
def test_compile_refuses_what_it_cannot_do(
    call: Call, server: FakeKfp, tmp_path: Path, flags: list[str], message: str
) -> None:
    (tmp_path / "file").touch()
    code, out, err = call("compile", *flags)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
