"""The executor input and output: KFP's rules for paths, types and metadata, held against kfp itself."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kfp import dsl
from kfp.local.executor_output_utils import load_executor_output
from pydantic import InstanceOf

from kfp_methods import catalogue
from kfp_methods.claims import Claim, judge, loads
from kfp_methods.contract import (
    Artifact,
    ConfusionMatrix,
    FittedModel,
    Inputs,
    Metrics,
    Model,
    Outputs,
    RocCurve,
    artifact,
    output,
    parameter,
)
from kfp_methods.errors import InputError
from kfp_methods.executor import ExecutorInput, add_metadata, local_path, write_outputs
from kfp_methods.report import Report, Table
from tests.conftest import executor_input

NOOP = catalogue.load("noop")


def message(parameters: dict[str, Any], artifacts: dict[str, Any] | None = None) -> ExecutorInput:
    text = json.dumps(executor_input("noop", Path("/nowhere"), parameters, artifacts))
    return ExecutorInput.parse(text)


def inputs_of(parameters: dict[str, Any], artifacts: dict[str, Any] | None = None) -> Any:
    return NOOP.inputs.parse(message(parameters, artifacts).raw_inputs_for(NOOP.inputs))


@pytest.mark.parametrize(
    "uri",
    [
        "gs://bucket/a/b.csv",
        "minio://mlpipeline/v2/artifacts/x",
        "s3://bucket/key with spaces/ü.csv",
        "oci://registry.example/team/model:v1",
        "/tmp/local/file",
    ],
)
def test_an_artifact_lies_where_kfp_says(uri: str) -> None:
    assert str(local_path({"uri": uri})) == dsl.Artifact(uri=uri).path


@pytest.mark.parametrize("uri", ["gs://bucket/a", "minio://b/c", "/tmp/local/file"])
def test_an_artifact_of_the_workspace_lies_where_kfp_says(uri: str) -> None:
    metadata = {"_kfp_workspace": True}
    assert str(local_path({"uri": uri, "metadata": metadata})) == dsl.Artifact(uri=uri, metadata=metadata).path


def test_a_custom_path_wins_as_it_does_in_kfp() -> None:
    theirs = dsl.Artifact(uri="s3://bucket/key")
    theirs.custom_path = "/mnt/elsewhere"
    assert str(local_path({"uri": "s3://bucket/key", "customPath": "/mnt/elsewhere"})) == theirs.path


def test_parameters_keep_their_types() -> None:
    given = {
        "steps": 7,
        "pause": 0,
        "require_tracking": True,
        "weights": [1, 2.5],
        "labels": {"a": "b"},
        "scale": "2.5",
    }
    inputs = inputs_of(given)
    found = (inputs.steps, inputs.pause, inputs.require_tracking, inputs.weights, inputs.labels, inputs.scale)
    assert found == (7, 0.0, True, [1.0, 2.5], {"a": "b"}, 2.5)
    assert [type(value) for value in found] == [int, float, bool, list, dict, float]


@pytest.mark.parametrize("seed", [3, 3.0, "3"])
def test_a_seed_is_a_whole_number_however_a_loop_types_it(seed: object) -> None:
    inputs = inputs_of({"seed": seed})
    assert inputs.seed == 3
    assert type(inputs.seed) is int


def test_absent_optional_inputs_take_their_defaults() -> None:
    assert ExecutorInput.parse('{"inputs": {}}').raw_inputs() == {}
    assert ExecutorInput.parse("{}").raw_inputs() == {}
    assert inputs_of({}) == NOOP.inputs.parse({})
    assert inputs_of({"steps": None}, {"data": {"artifacts": []}}) == NOOP.inputs.parse({})


def test_what_kfp_adds_for_resources_is_not_the_methods() -> None:
    added = {
        "accelerator_count": "1", "accelerator_type": "nvidia.com/gpu", "cpu_request": "2", "memory_request": "8Gi",
        "pipelinechannel--gpus": 1, "pipelinechannel--seeds-loop-item": "4",
    }  # fmt: skip
    assert inputs_of({"steps": 3, **added}).steps == 3


def test_any_other_unknown_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"step=3: there is no such input. Did you mean steps\?"):
        inputs_of({"step": 3, "accelerator_count": "1"})


def test_an_upstream_artifact_becomes_the_field_with_path_and_metadata() -> None:
    upstream = {"name": "x", "uri": "s3://bucket/key", "metadata": {"rows": 3}}
    inputs = inputs_of({"data_uri": ""}, {"data": {"artifacts": [upstream]}})
    assert inputs.data.path == Path("/s3/bucket/key")
    assert inputs.data.field == "data"
    assert inputs.data.metadata == {"rows": 3}
    assert not inputs.uses_sample


def test_a_list_of_artifacts_stays_a_list() -> None:
    class Many(Inputs):
        parts: list[Artifact] = artifact("Parts.")

    two = {"parts": {"artifacts": [{"uri": "/a"}, {"uri": "/b"}]}}
    inputs = Many.parse(message({}, two).raw_inputs_for(Many))
    assert [part.path for part in inputs.parts] == [Path("/a"), Path("/b")]


class OwnMetrics(Metrics):
    auc: float
    count: int
    unknown: float | None = None


class OwnModel:
    def save(self, folder: Path) -> None:
        (folder / "weights.json").write_text("[1.0]")

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame

    def example(self) -> pd.DataFrame:
        return pd.DataFrame({"x": [1.0]})


class OwnOutputs(Outputs):
    metrics: InstanceOf[OwnMetrics] = output("Metrics.")
    scores: InstanceOf[Table] = output("Scores.")
    packed: InstanceOf[Table] = output("Scores again.", format="parquet")
    roc: RocCurve = output("ROC.")
    confusion: ConfusionMatrix = output("Confusions.")
    model: InstanceOf[FittedModel] = output("Model.")
    best: str = output("Name.")
    rate: float = output("Rate.")
    sizes: list[int] = output("Sizes.")
    extra: dict[str, float] = output("Extra.")
    done: bool = output("Done.")


CLAIM = Claim("gain", "It gains", "0.1", "difference", "greater", 0.0)
ROC = RocCurve((0.0, 0.5, 1.0), (0.0, 0.75, 1.0), (1.0, 0.5, 0.0))
CONFUSION = ConfusionMatrix(("cat", "dog"), ((3, 1), (0, 4)))


def own_outputs(**changes: Any) -> OwnOutputs:
    table = Table("scores", "Scores", pd.DataFrame({"ü": [1.5, 2.5], "b": ["x,y", 'q"']}))
    given: dict[str, Any] = {
        "report": Report("Fine.", ()), "metrics": OwnMetrics(auc=0.75, count=4),
        "claims": [judge(CLAIM, [0.1, 0.2, 0.15])],
        "scores": table, "packed": table, "roc": ROC, "confusion": CONFUSION, "model": OwnModel(),
        "best": 'a "name"\nin two lines', "rate": 0.5, "sizes": [1, 2], "extra": {"a": 1.0}, "done": True,
    }  # fmt: skip
    return OwnOutputs(**{**given, **changes})


def destination(folder: Path) -> ExecutorInput:
    kinds = OwnOutputs.kinds().values()
    declared = {
        k.name: {
            "artifacts": [
                {"name": k.name, "uri": str(folder / k.name), "metadata": {"given": "before"},
                 "type": {"schemaTitle": f"system.{k.kfp_type}", "schemaVersion": "0.0.1"}}
            ]
        }
        for k in kinds if k.is_artifact
    }  # fmt: skip
    parameters = {k.name: {"outputFile": str(folder / "parameters" / k.name)} for k in kinds if not k.is_artifact}
    outputs = {
        "artifacts": declared,
        "parameters": parameters,
        "outputFile": str(folder / "deep" / "executor_output.json"),
    }
    return ExecutorInput({"inputs": {}, "outputs": outputs})


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a whole set of outputs, and executor_output.json."""
    executor = destination(tmp_path)
    write_outputs(executor, own_outputs(), "<html>ü</html>", {"claims": {"data": "user"}}, method="noop").check()
    return tmp_path, json.loads(executor.output_file.read_text())


def metadata_of(written: tuple[Path, dict[str, Any]], name: str) -> dict[str, Any]:
    found = written[1]["artifacts"][name]["artifacts"]
    assert len(found) == 1
    return found[0]["metadata"]


def test_every_artifact_is_listed_for_kfp_and_lies_where_it_was_declared(written: tuple[Path, dict[str, Any]]) -> None:
    folder, message = written
    artifacts = {kind.name for kind in OwnOutputs.kinds().values() if kind.is_artifact}
    assert set(message["artifacts"]) == artifacts
    assert all((folder / name).exists() for name in artifacts)
    entry = message["artifacts"]["roc"]["artifacts"][0]
    assert entry["uri"] == str(folder / "roc")
    assert entry["type"]["schemaTitle"] == "system.ClassificationMetrics"
    assert all(metadata_of(written, name)["given"] == "before" for name in artifacts)


def test_kfp_reads_our_executor_output(written: tuple[Path, dict[str, Any]]) -> None:
    parsed = load_executor_output(str(written[0] / "deep" / "executor_output.json"))
    assert set(parsed.artifacts) == set(written[1]["artifacts"])
    assert parsed.parameter_values["sizes"].list_value.values[1].number_value == 2
    assert parsed.artifacts["metrics"].artifacts[0].metadata["auc"] == 0.75


def test_output_parameters_reach_their_files_and_the_executor_output(written: tuple[Path, dict[str, Any]]) -> None:
    folder, message = written
    expected = {"best": 'a "name"\nin two lines', "rate": 0.5, "sizes": [1, 2], "extra": {"a": 1.0}, "done": True}
    assert message["parameterValues"] == expected
    texts = {path.name: path.read_text() for path in (folder / "parameters").iterdir()}
    assert texts.pop("best") == expected["best"]
    assert {name: json.loads(text) for name, text in texts.items()} == {
        k: v for k, v in expected.items() if k != "best"
    }


def test_scalar_metrics_are_metadata_and_what_was_not_measured_is_not(written: tuple[Path, dict[str, Any]]) -> None:
    assert metadata_of(written, "metrics") == {"given": "before", "auc": 0.75, "count": 4}
    assert json.loads((written[0] / "metrics").read_text()) == {"auc": 0.75, "count": 4, "unknown": None}


def test_claims_carry_their_verdicts(written: tuple[Path, dict[str, Any]]) -> None:
    assert metadata_of(written, "claims") == {"given": "before", "gain": "supported", "data": "user"}


def test_tables_are_written_in_their_format(written: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = written
    frame = own_outputs().scores.frame
    pd.testing.assert_frame_equal(pd.read_csv(folder / "scores"), frame)
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "packed"), frame)
    assert metadata_of(written, "packed") == {"given": "before", "format": "parquet", "rows": 2, "columns": ["ü", "b"]}


def test_a_model_is_a_folder(written: tuple[Path, dict[str, Any]]) -> None:
    assert json.loads((written[0] / "model" / "weights.json").read_text()) == [1.0]
    assert OwnOutputs.kinds()["model"].kfp_type == Model.kfp_type


def test_a_roc_curve_is_what_kfp_logs(written: tuple[Path, dict[str, Any]]) -> None:
    theirs = dsl.ClassificationMetrics(uri="/x")
    theirs.log_roc_curve(list(ROC.false_positive_rate), list(ROC.true_positive_rate), list(ROC.threshold))
    assert metadata_of(written, "roc") == {"given": "before", **theirs.metadata}


def test_a_confusion_matrix_is_what_kfp_logs(written: tuple[Path, dict[str, Any]]) -> None:
    theirs = dsl.ClassificationMetrics(uri="/x")
    theirs.log_confusion_matrix(list(CONFUSION.categories), [list(row) for row in CONFUSION.rows])
    assert metadata_of(written, "confusion") == {"given": "before", **theirs.metadata}


@pytest.mark.parametrize("n", [1, 99, 100, 101, 5_000])
def test_a_long_curve_is_thinned_but_keeps_its_ends(tmp_path: Path, n: int) -> None:
    executor = destination(tmp_path)
    rates = tuple(i / n for i in range(n))
    write_outputs(executor, own_outputs(roc=RocCurve(rates, rates, rates)), "", method="noop").check()
    points = json.loads((tmp_path / "roc").read_text())["confidenceMetrics"]
    assert len(points) == min(n, len(points)) <= 101
    assert (points[0]["recall"], points[-1]["recall"]) == (rates[0], rates[-1])
    assert len(points) > 50 or len(points) == n


def test_a_curve_of_unequal_lengths_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shorter"):
        write_outputs(
            destination(tmp_path), own_outputs(roc=RocCurve((0.0, 1.0), (0.0,), (0.0, 1.0))), "", method="noop"
        ).check()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_json_cannot_say_is_never_written_and_costs_no_other_output(tmp_path: Path, value: float) -> None:
    executor = destination(tmp_path)
    written = write_outputs(executor, own_outputs(rate=value), "", method="noop")
    with pytest.raises(ValueError, match="JSON compliant"):
        written.check()
    assert set(written.paths) == set(OwnOutputs.kinds()) - {"rate"}
    assert not (tmp_path / "parameters" / "rate").exists()
    message = json.loads(executor.output_file.read_text(), parse_constant=pytest.fail)
    assert set(message["artifacts"]) == {name for name, kind in OwnOutputs.kinds().items() if kind.is_artifact}
    assert "rate" not in message["parameterValues"]


@pytest.mark.parametrize("name", ["report", "packed", "model"])
def test_an_output_whose_place_is_taken_is_named_and_the_others_are_there(tmp_path: Path, name: str) -> None:
    executor = destination(tmp_path)
    if name == "model":  # a folder is to be there
        (tmp_path / name).write_text("mine")
    else:
        (tmp_path / name).mkdir()
    written = write_outputs(executor, own_outputs(), "<html>", method="noop")
    with pytest.raises(InputError) as caught:
        written.check()
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("output", str(tmp_path / name))
    assert str(problem).startswith("output=")
    assert "cannot be written (" in str(problem)
    listed = set(json.loads(executor.output_file.read_text())["artifacts"])
    assert listed == {n for n, kind in OwnOutputs.kinds().items() if kind.is_artifact} - {name}
    assert set(written.paths) == set(OwnOutputs.kinds()) - {name}


def test_a_folder_that_was_there_before_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine.txt").write_text("mine")
    write_outputs(destination(tmp_path), own_outputs(), "<html>", method="noop")
    assert (tmp_path / "report" / "mine.txt").read_text() == "mine"


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Files may grow to so many bytes only: what a full disk looks like, without one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


class LargeModel(OwnModel):
    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        super().save(folder)
        save_file({"w": np.zeros(100_000)}, folder / "model.safetensors")


def test_outputs_without_room_are_named_and_no_half_of_them_stays(
    tmp_path: Path, small_files: Callable[[int], None]
) -> None:
    executor = destination(tmp_path)
    large = pd.DataFrame({"x": np.random.default_rng(0).random(50_000)})
    table = Table("scores", "Scores", large)
    small_files(100_000)
    written = write_outputs(
        executor, own_outputs(scores=table, packed=table, model=LargeModel()), "x" * 200_000, method="noop"
    )
    with pytest.raises(InputError) as caught:
        written.check()
    failed = {"report", "scores", "packed", "model"}
    assert {Path(str(problem.value)).name for problem in caught.value.problems} == failed
    assert all("cannot be written (File too large)" in str(problem) for problem in caught.value.problems)
    assert not any((tmp_path / name).exists() for name in failed)
    message = json.loads(executor.output_file.read_text())
    assert set(message["artifacts"]) == {"metrics", "claims", "roc", "confusion"}
    assert message["parameterValues"]["rate"] == 0.5
    assert set(written.paths) == set(OwnOutputs.kinds()) - failed


def test_metadata_without_room_leave_the_list_of_outputs_as_it_was(
    tmp_path: Path, small_files: Callable[[int], None]
) -> None:
    executor = destination(tmp_path)
    write_outputs(executor, own_outputs(), "", method="noop").check()
    before = executor.output_file.read_bytes()
    small_files(len(before))
    with pytest.raises(InputError, match=r"executor_output\.json: cannot be written"):
        add_metadata(executor, "metrics", {"tracking_error": "x" * 100})
    assert executor.output_file.read_bytes() == before
    assert [path.name for path in executor.output_file.parent.iterdir()] == [executor.output_file.name]


def test_text_that_is_no_utf_8_is_written_legibly(tmp_path: Path) -> None:
    odd = "caf\udce9"
    executor = destination(tmp_path)
    frame = pd.DataFrame({"file": pd.Series([odd], dtype=object)})
    table = Table("scores", "Scores", frame)
    outputs = own_outputs(
        scores=table, packed=table, best=odd, extra={odd: 1.0}, claims=[judge(CLAIM, [1.0], note=odd)]
    )
    write_outputs(executor, outputs, odd, {"claims": {"file": odd}}, method="noop").check()
    clean = "caf\N{REPLACEMENT CHARACTER}"
    assert (tmp_path / "report").read_text() == (tmp_path / "parameters" / "best").read_text() == clean
    assert (tmp_path / "scores").read_text() == "file\ncaf\\udce9\n"
    assert pd.read_parquet(tmp_path / "packed")["file"].tolist() == [clean]
    assert loads((tmp_path / "claims").read_text())[0].note.startswith(clean)
    assert load_executor_output(str(executor.output_file)).artifacts["claims"].artifacts[0].metadata["file"] == clean


def test_a_tables_named_index_is_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", "b"], name="record"))
    table = Table("scores", "Scores", frame)
    write_outputs(destination(tmp_path), own_outputs(scores=table, packed=table), "", method="noop").check()
    assert (tmp_path / "scores").read_text() == "record,x\na,1\nb,2\n"
    assert list(pd.read_parquet(tmp_path / "packed").columns) == ["record", "x"]


def test_metadata_can_be_added_afterwards(tmp_path: Path) -> None:
    executor = destination(tmp_path)
    write_outputs(executor, own_outputs(), "", method="noop")
    add_metadata(executor, "metrics", {"tracking_error": "MLflow is away"})
    message = json.loads(executor.output_file.read_text())
    assert message["artifacts"]["metrics"]["artifacts"][0]["metadata"]["tracking_error"] == "MLflow is away"
    assert message["artifacts"]["metrics"]["artifacts"][0]["metadata"]["auc"] == 0.75
    assert message["parameterValues"]["done"] is True


def test_infinite_thresholds_of_a_roc_curve_become_finite(tmp_path: Path) -> None:
    """scikit-learn's `roc_curve` starts at an infinite threshold, which JSON has no word for."""
    executor = destination(tmp_path)
    curve = RocCurve((0.0, 0.5, 1.0), (0.0, 0.75, 1.0), (math.inf, 0.5, -math.inf))
    write_outputs(executor, own_outputs(roc=curve), "", method="noop").check()
    points = json.loads((tmp_path / "roc").read_text(), parse_constant=pytest.fail)["confidenceMetrics"]
    assert [point["confidenceThreshold"] for point in points] == [0.5, 0.5, 0.5]


class Refused(Inputs):
    size: int = parameter(1, "Size.")


def test_raw_inputs_are_checked_by_the_contract() -> None:
    with pytest.raises(InputError, match="size=big: is not a whole number"):
        Refused.parse(message({"size": "big"}).raw_inputs_for(Refused))
