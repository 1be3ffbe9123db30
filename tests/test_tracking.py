"""Tracking into a local database, and what of an outcome goes where."""

from __future__ import annotations

import importlib.metadata
import json
import math
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kfp_methods import catalogue
from kfp_methods.errors import InputError
from kfp_methods.pyfunc import _load_pyfunc
from kfp_methods.tracking import DatasetUsed, Tracked, jobs, local_tracking_uri, record
from kfp_methods.tracking.patience import GaveUpError, Patience, explain, is_transient, remedy
from kfp_methods.tracking.secrets import Scrubber
from kfp_methods.tracking.server import connect
from kfp_methods.tracking.settings import Settings
from tests.tracked_runs import FILES, TOY, curve, outcome, saved_model, tracker


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One local database: making it takes MLflow seconds."""
    return local_tracking_uri(tmp_path_factory.mktemp("lokal größe"))


@pytest.fixture
def client(database: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=database)


@pytest.fixture
def as_default(database: str) -> Iterator[None]:
    """MLflow's own functions take the process-wide URI."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(database)
    yield
    mlflow.set_tracking_uri(before)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "load", {"toy": TOY}.__getitem__)


def beside(database: str) -> Path:
    return Path(database.removeprefix("sqlite:///")).parent / "artifacts"


def artifacts(client: Any, run_id: str, folder: str = "") -> set[str]:
    return {Path(info.path).name for info in client.list_artifacts(run_id, folder)}


def test_importing_the_tracker_leaves_mlflow_alone() -> None:
    code = "import sys, kfp_methods.tracking; sys.exit('mlflow' in sys.modules or 'pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_local_run_holds_everything_the_outcome_has(database: str, client: Any, tmp_path: Path) -> None:
    notes: list[str] = []
    followed = tracker({"MLFLOW_TRACKING_URI": database}, notes, experiment="alles")
    followed.start()
    points = curve("loss", 1500)
    for point in points[:1000]:
        followed.point(point)
    resources = {"peak_memory_megabytes": 321.5}
    tracked = followed.finish(outcome(tmp_path, points=points, warnings=["few rows"], resources=resources))

    assert (tracked.error, notes) == ("", [])
    assert tracked.url == database
    run = client.get_run(tracked.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.end_time >= run.info.start_time
    assert run.data.params == {"seed": "7", "preset": "smoke", "rate": "0.5", "sizes": "[1, 2]", "flag": "true",
                               "name": "größe 大"}  # fmt: skip
    assert run.data.metrics["auc"] == 0.875
    assert "unmeasured" not in run.data.metrics
    history = client.get_metric_history(tracked.run_id, "loss")
    sent = [(point.step, point.value, point.timestamp_ms) for point in points]
    assert sorted((metric.step, metric.value, metric.timestamp) for metric in history) == sent
    assert run.data.metrics["system/cpu_utilization_percentage"] > 0
    assert run.data.metrics["system/peak_memory_megabytes"] == 321.5
    tags = run.data.tags
    assert (tags["claim.auc-gain"], tags["claim.speed"]) == ("supported", "not measured at this scale")
    assert (tags["kfp_methods.method"], tags["kfp_methods.version"]) == ("toy", "0.1.0")
    assert (tags["kfp_methods.data"], tags["seed"], tags["warnings"]) == ("user", "7", "few rows")
    assert "**supported**: The attack beats its baseline" in tags["mlflow.note.content"]
    assert artifacts(client, tracked.run_id) == FILES
    assert artifacts(client, tracked.run_id, "figures") == {"roc.svg"}
    scores = pd.read_csv(client.download_artifacts(tracked.run_id, "tables/scores.csv"))
    assert scores.to_dict("list") == {"a": [1, 2], "ü": ["x", "y"]}
    assert list(beside(database).rglob(f"{tracked.run_id}/artifacts/report.html"))
    [used] = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.source_type) == ("members_uri", "s3")
    assert json.loads(used.dataset.source) == {"uri": "s3://bucket/members.csv"}
    assert json.loads(used.dataset.profile) == {"num_rows": 100, "sha256": "ab" * 32}
    assert used.dataset.digest == ("ab" * 32)[:36]


@pytest.mark.slow
def test_the_claims_are_a_table_that_mlflow_loads(database: str, client: Any, tmp_path: Path, as_default: None) -> None:
    tracked = tracker({"MLFLOW_TRACKING_URI": database}, [], experiment="claims").finish(outcome(tmp_path))

    frame = client.load_table(tracked.experiment_id, "claims.json", run_ids=[tracked.run_id])

    assert list(frame["claim"]) == ["auc-gain", "speed"]
    assert list(frame["verdict"]) == ["supported", "not measured at this scale"]


@pytest.mark.slow
def test_a_model_is_registered_and_predicts_when_loaded(
    database: str, client: Any, tmp_path: Path, toy: None, request: pytest.FixtureRequest
) -> None:
    import mlflow.pyfunc

    made = outcome(tmp_path, **saved_model(tmp_path / "m"), register_as="Skala")
    tracked = tracker({"MLFLOW_TRACKING_URI": database}, [], experiment="models").finish(made)
    assert tracked.error == ""

    request.getfixturevalue("as_default")  # only now: logging must not depend on it
    frame = pd.DataFrame({"x": [2.0, 5.0]})
    for uri in (f"runs:/{tracked.run_id}/model", "models:/Skala/1"):
        assert list(mlflow.pyfunc.load_model(uri).predict(frame)["y"]) == [6.0, 15.0]
    [output] = client.get_run(tracked.run_id).outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert (logged.name, str(logged.status), logged.source_run_id) == ("model", "READY", tracked.run_id)
    assert [(m.key, m.value) for m in logged.metrics] == [("auc", 0.875)]
    files = {path.name for path in beside(database).rglob(f"{output.model_id}/**/*") if path.is_file()}
    assert {"MLmodel", "input_example.json", "requirements.txt", "method.json", "scale.json"} <= files
    assert not any(name.endswith((".pkl", ".pickle")) for name in files)
    [written] = beside(database).rglob(f"{output.model_id}/**/MLmodel")
    mlflow_model = mlflow.models.Model.load(str(written))
    assert mlflow_model.signature.inputs.input_names() == ["x"]
    assert mlflow_model.flavors["python_function"]["loader_module"] == "kfp_methods.pyfunc"


@pytest.mark.slow
@pytest.mark.parametrize("status", ["FAILED", "KILLED"])
def test_an_unfinished_run_says_why(database: str, client: Any, tmp_path: Path, status: str) -> None:
    error = "data_uri=x.csv: no column y. Give one."
    made = outcome(tmp_path, status=status, error=error, report=None, figures=[], tables=[], claims=[])
    tracked = tracker({"MLFLOW_TRACKING_URI": database}, [], experiment="ends").finish(made)

    run = client.get_run(tracked.run_id)
    assert (run.info.status, run.data.tags["error"]) == (status, error)
    assert artifacts(client, tracked.run_id) == {"error.txt", "inputs.json"}


@pytest.mark.slow
def test_what_mlflow_cannot_take_is_noted_and_costs_nothing_else(database: str, client: Any, tmp_path: Path) -> None:
    notes: list[str] = []
    made = outcome(
        tmp_path,
        parameters={"long": "ä" * 10_000},
        metrics={"good": 1.0, "nan": math.nan, "inf": math.inf, "loss (train)": 2.0},
        points=curve("c", 2) + [p.__class__("c", math.nan, 9, 1) for p in curve("c", 1)],
    )
    tracked = tracker({"MLFLOW_TRACKING_URI": database}, notes, experiment="odd").finish(made)

    run = client.get_run(tracked.run_id)
    assert tracked.error == ""
    assert notes == ["MLflow: NaN or infinite values are left out of MLflow: nan, inf, c"]
    assert {"good", "loss _train_", "c"} <= set(run.data.metrics)
    assert len(client.get_metric_history(tracked.run_id, "c")) == 2
    assert run.data.params["long"] == "ä" * 5999 + "…"
    whole = json.loads(Path(client.download_artifacts(tracked.run_id, "inputs.json")).read_text("utf-8"))
    assert whole == {"long": "ä" * 10_000}


@pytest.mark.slow
def test_a_model_that_fails_on_its_own_example_costs_only_the_model(database: str, client: Any, tmp_path: Path) -> None:
    class Broken:
        def example(self) -> pd.DataFrame:
            raise ArithmeticError("no example")

    notes: list[str] = []
    made = outcome(tmp_path, **{**saved_model(tmp_path / "m"), "model": Broken()})
    tracked = tracker({"MLFLOW_TRACKING_URI": database}, notes, experiment="broken").finish(made)

    run = client.get_run(tracked.run_id)
    assert "no example" in tracked.error
    assert notes == [tracked.error]
    assert (run.info.status, run.data.metrics["auc"]) == ("FINISHED", 0.875)
    [logged] = client.search_logged_models([tracked.experiment_id])
    assert str(logged.status) == "FAILED"


@pytest.mark.slow
def test_no_credential_reaches_mlflow(database: str, client: Any, tmp_path: Path) -> None:
    secret = "hunter2secret"
    made = outcome(
        tmp_path,
        parameters={"data_uri": f"https://me:{secret}@host/x.csv?X-Amz-Signature={secret}&part=1"},
        datasets=[DatasetUsed("data_uri", f"https://me:{secret}@host/x.csv", "0" * 64)],
        error=f"cannot read https://me:{secret}@host/x.csv with token {secret}",
        status="FAILED",
    )
    environ = {"MLFLOW_TRACKING_URI": database, "AWS_SECRET_ACCESS_KEY": secret}
    tracked = tracker(environ, [], experiment="secrets").finish(made)

    run = client.get_run(tracked.run_id)
    texts = [str(run.to_dictionary()), Path(client.download_artifacts(tracked.run_id, "inputs.json")).read_text()]
    texts += [Path(client.download_artifacts(tracked.run_id, "error.txt")).read_text()]
    assert run.data.params["data_uri"] == "https://host/x.csv?X-Amz-Signature=***&part=1"
    assert not any(secret in text for text in texts)


@pytest.mark.slow
def test_tracking_prints_nothing(tmp_path: Path, database: str) -> None:
    code = f"""
from pathlib import Path
from tests.tracked_runs import outcome, saved_model, tracker
folder = Path({str(tmp_path)!r})
made = outcome(folder, **saved_model(folder / "m"), register_as="quiet")
tracked = tracker({{"MLFLOW_TRACKING_URI": {database!r}}}, []).finish(made)
assert tracked.run_id and not tracked.error, tracked
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_processes_that_share_a_new_database_all_arrive(tmp_path: Path) -> None:
    uri = local_tracking_uri(tmp_path / "new")
    code = f"""
from pathlib import Path
from tests.tracked_runs import outcome, tracker
folder = Path({str(tmp_path)!r})
environ = {{"MLFLOW_TRACKING_URI": {uri!r}, "KFP_RUN_ID": "replicates"}}
tracked = tracker(environ, [], experiment="new").finish(outcome(folder))
assert tracked.run_id and not tracked.error, tracked
"""
    together = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait() for process in together] == [0, 0, 0]

    from mlflow import MlflowClient

    fresh = MlflowClient(tracking_uri=uri)
    [experiment] = fresh.search_experiments(filter_string="name = 'new'")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    runs = fresh.search_runs([experiment.experiment_id])
    [parent] = [run for run in runs if run.data.tags.get(jobs.ROLE) == "job"]
    assert [run.data.tags[jobs.PARENT] for run in runs if run is not parent] == [parent.info.run_id] * 3
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_a_database_in_a_folder_that_cannot_be_made_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notes: list[str] = []
    began = time.monotonic()
    tracked = tracker({"MLFLOW_TRACKING_URI": local_tracking_uri(tmp_path / "file" / "in")}, notes).finish(
        outcome(tmp_path)
    )
    assert time.monotonic() - began < 10
    assert tracked.run_id == ""
    assert "may write to" in tracked.error
    assert notes == [tracked.error]


def test_a_note_taker_that_fails_does_not_fail_the_run(tmp_path: Path) -> None:
    def broken(text: str) -> None:
        raise OSError(text)

    (tmp_path / "file").write_text("")
    followed = tracker({"MLFLOW_TRACKING_URI": local_tracking_uri(tmp_path / "file" / "in")}, [])
    followed._on_note = broken
    assert followed.finish(outcome(tmp_path)).error


def test_a_changed_parameter_is_told_from_another_writing_of_the_same() -> None:
    wanted = {"a": "true", "b": "1.0", "c": "[1, 2]", "d": "x"}
    assert record.changed_parameters(wanted, {"a": "True", "b": "1", "c": "[1,2]", "d": "y", "e": "z"}) == ["d"]


@pytest.mark.parametrize(
    ("uri", "data", "expected"),
    [
        ("https://h/x.csv", "user", ("http", {"url": "https://h/x.csv"})),
        ("gs://b/x", "user", ("gs", {"uri": "gs://b/x"})),
        ("/data/x.csv", "user", ("local", {"uri": "/data/x.csv"})),
        ("digits", "sample", ("package", {"name": "digits"})),
    ],
)
def test_a_dataset_source_has_mlflows_type(uri: str, data: str, expected: tuple[str, dict[str, str]]) -> None:
    assert record.dataset_source(uri, data) == expected


def test_the_scrubber_takes_the_servers_password_out() -> None:
    scrub = Scrubber({"MLFLOW_TRACKING_URI": "http://u:p%40ssword@h", "MLFLOW_TRACKING_TOKEN": "tok-12345"})
    assert scrub("http://u:p%40ssword@h/api failed; p@ssword tok-12345 kept") == "http://h/api failed; *** *** kept"


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([("a", "FINISHED"), ("b", "FINISHED")], "FINISHED"),
        ([("a", "FAILED"), ("a", "FINISHED"), ("b", "KILLED"), ("b", "FINISHED")], "FINISHED"),
        ([("a", "FAILED"), ("b", "FINISHED")], "FAILED"),
        ([("a", "KILLED"), ("b", "FINISHED")], "KILLED"),
    ],
)
def test_a_job_ends_as_its_pods_did_and_a_retry_makes_up_for_a_failure(
    attempts: list[tuple[str, str]], expected: str
) -> None:
    runs = [
        SimpleNamespace(
            info=SimpleNamespace(run_id=str(i), status=status), data=SimpleNamespace(tags={jobs.INPUTS: inputs})
        )
        for i, (inputs, status) in enumerate(attempts)
    ]
    assert jobs.job_status(iter(runs)) == expected  # type: ignore[arg-type]


def test_patience_repeats_what_may_pass_and_nothing_else() -> None:
    failures: list[Exception] = [ConnectionError("refused"), TimeoutError()]

    def flaky() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert Patience().attempt("try", flaky) == "done"
    failures = [ConnectionError("never reached"), FileNotFoundError(2, "gone")]
    with pytest.raises(GaveUpError, match="gone"):
        Patience().attempt("try", flaky)
    assert len(failures) == 1


def test_patience_ends_in_time_even_when_a_call_hangs() -> None:
    patience = Patience()
    patience.end_by(time.monotonic() + 0.5, 0.5)
    began = time.monotonic()
    with pytest.raises(GaveUpError, match="could not answer"):
        patience.attempt("could not answer", lambda: time.sleep(30))
    with pytest.raises(GaveUpError):
        patience.attempt("nor this", lambda: time.sleep(30))
    assert time.monotonic() - began < 4


def test_transient_failures_are_those_of_a_server_or_a_network() -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.protos import databricks_pb2 as codes

    assert is_transient(MlflowException("busy", codes.TEMPORARILY_UNAVAILABLE))
    assert is_transient(ConnectionRefusedError())
    assert is_transient(MlflowException("UNIQUE constraint failed: datasets.name", codes.BAD_REQUEST))
    assert not is_transient(MlflowException("who", codes.UNAUTHENTICATED))
    assert not is_transient(MlflowException("bad", codes.INVALID_PARAMETER_VALUE))
    assert not is_transient(KeyError("x"))


def test_a_job_id_cannot_break_out_of_a_search_filter() -> None:
    environ = {"MLFLOW_TRACKING_URI": "http://h", "KFP_RUN_ID": "a' OR '1'='1"}
    assert Settings.read(method="m", version="1", experiment="", environ=environ).job == "a__OR__1___1"


@pytest.mark.parametrize("text", [None, "not json", '{"method": 1, "version": "x"}', "[]"])
def test_a_folder_that_names_no_method_is_not_loaded(tmp_path: Path, text: str | None, toy: None) -> None:
    if text is not None:
        (tmp_path / "method.json").write_text(text)
    with pytest.raises((ValueError, KeyError)):
        _load_pyfunc(str(tmp_path))


def test_the_image_names_itself_and_its_commit_in_the_variables_that_are_read() -> None:
    dockerfile = (Path(__file__).parents[1] / "Dockerfile").read_text(encoding="utf-8")
    variables = {"KFP_METHODS_IMAGE": "image", "KFP_METHODS_REVISION": "commit"}
    environ = dict.fromkeys(variables, "told")
    settings = Settings.read(method="m", version="1", experiment="", environ=environ)
    for variable, field in variables.items():
        assert f"{variable}=" in dockerfile
        assert getattr(settings, field) == "told"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("foo:bar", "MLflow knows no foo:. Give http(s)://HOST:PORT"),
        ("htp://h:5000", "Did you mean http://h:5000?"),
        ("postgres://h/db", "Did you mean postgresql://h/db?"),
        ("localhost:5000", "Write http://localhost:5000."),
        ("10.0.0.1:5000", "Write http://10.0.0.1:5000."),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://h:port", "is not a well-formed URI"),
        ("http://[::1", "is not a well-formed URI"),
        ("http://a b", "names no host"),
        ("sqlite://mlflow.db", "names no database file"),
        ("./mlruns", "is a folder"),
        ("file:///mlruns", "is a folder"),
        ("ftp://me:hunter2@h", "MLFLOW_TRACKING_URI=ftp://h: "),
    ],
)
def test_a_tracking_uri_that_mlflow_cannot_use_is_named_with_its_remedy(uri: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        tracker({"MLFLOW_TRACKING_URI": uri}, [])
    assert str(caught.value).startswith("MLFLOW_TRACKING_URI=")
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["http://h", "https://u:p@h:5000/mlflow", "sqlite:////m.db", "postgresql+psycopg2://h/db", "mysql://h/d",
     "databricks", "databricks://profile", "uc:http://h", "file-plugin:/x"],
)  # fmt: skip
def test_a_tracking_uri_that_mlflow_may_use_is_left_to_it(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = SimpleNamespace(name="file-plugin")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [plugin] * (group == "mlflow.tracking_store"))
    assert tracker({"MLFLOW_TRACKING_URI": uri}, [])._settings.tracking_uri == uri


def test_plain_folders_are_used_where_mlflow_was_told_to() -> None:
    assert tracker({"MLFLOW_TRACKING_URI": "./mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}, [])


@pytest.mark.parametrize(
    ("experiment", "environ", "subject", "expected"),
    [
        ("asked", {"MLFLOW_EXPERIMENT_NAME": "environment"}, "bmia", "asked"),
        ("", {"MLFLOW_EXPERIMENT_NAME": "environment"}, "bmia", "environment"),
        ("", {}, "bmia", "bmia"),
        ("", {}, "", "collect"),
    ],
)
def test_the_experiment_is_the_users_then_the_environments_then_the_methods(
    experiment: str, environ: dict[str, str], subject: str, expected: str
) -> None:
    read = Settings.read(method="collect", version="1", experiment=experiment, environ=environ, subject=subject)
    assert read.experiment == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/", "the connection is refused"),
        ("http://no-such-host.invalid/", "its host is not found"),
    ],
)
def test_a_failed_request_is_explained_in_plain_words(url: str, words: str) -> None:
    from mlflow.utils.rest_utils import MlflowHostCreds, http_request

    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever the libraries make of it)
        http_request(MlflowHostCreds(url), "/x", "GET", max_retries=0, timeout=5)
    assert explain(caught.value) == words


def test_an_untrusted_certificate_is_explained_with_its_remedy() -> None:
    wrapped = RuntimeError("Max retries exceeded", ssl.SSLCertVerificationError(1, "self-signed"))
    assert explain(wrapped) == "its certificate is not trusted"
    assert "MLFLOW_TRACKING_SERVER_CERT_PATH" in remedy(wrapped)


def test_a_server_behind_a_proxy_is_not_tried_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    away = "http://127.0.0.1:9"
    with pytest.raises(ConnectionRefusedError):
        connect(away)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    connect(away)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(ConnectionRefusedError):
        connect(away)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/#/experiments/1/runs/r", "https://h/#/experiments/1/runs/r"),
        ("sqlite:////my runs/mlflow.db", "r; open it with: kfp-methods ui --output '/my runs'"),
        ("postgresql://h/db", "r in postgresql://h/db"),
    ],
)
def test_a_tracked_run_is_shown_by_what_opens_it(url: str, shown: str) -> None:
    assert Tracked("r", "1", url, "").shown == shown
