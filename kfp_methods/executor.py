"""The executor input and output: how KFP tells a container what it gets, and learns what it made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp_methods import claims
from kfp_methods.contract import ConfusionMatrix, Inputs, Metrics, Outputs, RocCurve
from kfp_methods.pyfunc import MODEL_FILE
from kfp_methods.report import Table
from kfp_methods.version import __version__

_MOUNTS = {"gs://": "/gcs/", "minio://": "/minio/", "s3://": "/s3/"}
_WORKSPACE = "/kfp-workspace/.artifacts"
# What KFP adds to a task's inputs when resources are pipeline parameters; none of it is the method's.
_PLATFORM_INPUTS = (
    "accelerator_type",
    "accelerator_count",
    "cpu_request",
    "memory_request",
    "cpu_limit",
    "memory_limit",
)
_CURVE_POINTS = 100  # the Kubeflow UI draws each point as an element of the page


@dataclass(frozen=True)
class ExecutorInput:
    """The JSON that replaces `{{$}}` in a component's arguments."""

    message: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> ExecutorInput:
        return cls(json.loads(text))

    @property
    def outputs(self) -> Mapping[str, Any]:
        return self.message.get("outputs", {})

    @property
    def output_file(self) -> Path:
        return Path(self.outputs["outputFile"])

    def raw_inputs(self) -> dict[str, Any]:
        """Parameter values and artifacts by field name; absent optional inputs are absent."""
        given = self.message.get("inputs", {})
        values = {
            name: value
            for name, value in given.get("parameterValues", {}).items()
            if value is not None and name not in _PLATFORM_INPUTS and not name.startswith("pipelinechannel--")
        }
        for name, entry in given.get("artifacts", {}).items():
            found = [_input_artifact(name, artifact) for artifact in entry.get("artifacts", [])]
            values[name] = found
        return values

    def raw_inputs_for(self, inputs: type[Inputs]) -> dict[str, Any]:
        """`raw_inputs` with single artifacts out of their lists, as the fields of `inputs` say."""
        kinds = inputs.kinds()
        return {
            name: value[0]
            if name in kinds and kinds[name].is_artifact and not kinds[name].is_list_of_artifacts and value
            else value
            for name, value in self.raw_inputs().items()
        }

    def artifact_path(self, name: str) -> Path:
        """Where the output artifact's content belongs in this container."""
        return local_path(self.outputs["artifacts"][name]["artifacts"][0])

    def parameter_path(self, name: str) -> Path:
        return Path(self.outputs["parameters"][name]["outputFile"])


def local_path(artifact: Mapping[str, Any]) -> Path:
    """Where KFP's launcher mounts an artifact: the rule of `kfp.dsl.Artifact.path`, without importing kfp."""
    uri = artifact["uri"]
    if artifact.get("customPath"):
        return Path(artifact["customPath"])
    path = next((mount + uri.removeprefix(prefix) for prefix, mount in _MOUNTS.items() if uri.startswith(prefix)), uri)
    if uri.startswith("oci://"):
        path = "/oci/" + uri.removeprefix("oci://").replace("/", "_")
    if artifact.get("metadata", {}).get("_kfp_workspace") is True:
        path = f"{_WORKSPACE}/{path.lstrip('/')}"
    return Path(path)


def write_outputs(
    executor: ExecutorInput,
    outputs: Outputs,
    report_html: str,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    method: str,
) -> dict[str, Path]:
    """Writes every output where KFP expects it, then executor_output.json; returns the paths by output name.

    `extra` adds to the metadata of output artifacts, by name; `method` tells `pyfunc` who loads a model.
    """
    paths: dict[str, Path] = {}
    metadata: dict[str, Mapping[str, Any]] = {}
    values: dict[str, Any] = {}
    for name, kind in outputs.kinds().items():
        value = report_html if name == "report" else getattr(outputs, name)
        if not kind.is_artifact:
            values[name] = value
            continue
        path = paths[name] = executor.artifact_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata[name] = {**_write_artifact(path, value, kind.format), **(extra or {}).get(name, {})}
        if kind.kfp_type == "Model":
            about = {"method": method, "version": __version__}
            (path / MODEL_FILE).write_text(json.dumps(about), encoding="utf-8")
    for name, value in values.items():
        path = paths[name] = executor.parameter_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    write_executor_output(executor, values, metadata)
    return paths


def write_executor_output(
    executor: ExecutorInput, values: Mapping[str, Any], metadata: Mapping[str, Mapping[str, Any]]
) -> None:
    """KFP drops an output artifact that this file does not list, so it lists all that were written."""
    artifacts = {}
    for name, extra in metadata.items():
        declared = executor.outputs["artifacts"][name]["artifacts"][0]
        artifacts[name] = {"artifacts": [{**declared, "metadata": {**declared.get("metadata", {}), **extra}}]}
    executor.output_file.parent.mkdir(parents=True, exist_ok=True)
    message = {"parameterValues": dict(values), "artifacts": artifacts}
    executor.output_file.write_text(json.dumps(message, allow_nan=False), encoding="utf-8")


def add_metadata(executor: ExecutorInput, name: str, extra: Mapping[str, Any]) -> None:
    """Adds to an output artifact's metadata after the outputs were written."""
    message = json.loads(executor.output_file.read_text(encoding="utf-8"))
    message["artifacts"][name]["artifacts"][0]["metadata"].update(extra)
    executor.output_file.write_text(json.dumps(message, allow_nan=False), encoding="utf-8")


def _write_artifact(path: Path, value: Any, table_format: str) -> dict[str, Any]:
    """Writes one artifact's content and returns the metadata that the Kubeflow UI shows with it."""
    if isinstance(value, str):
        path.write_text(value, encoding="utf-8")
        return {}
    if isinstance(value, Metrics):
        measured = {name: number for name, number in value.model_dump().items() if number is not None}
        path.write_text(json.dumps(value.model_dump(), indent=1), encoding="utf-8")
        return measured
    if isinstance(value, list):
        path.write_text(claims.dumps(value), encoding="utf-8")
        return {result.claim.id: result.verdict.value for result in value}
    if isinstance(value, Table):
        return _write_table(path, value, table_format)
    if isinstance(value, RocCurve | ConfusionMatrix):
        content = _classification_metrics(value)
        path.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        return content
    path.mkdir(parents=True, exist_ok=True)
    value.save(path)
    return {"framework": "kfp-methods"}


def _write_table(path: Path, table: Table, table_format: str) -> dict[str, Any]:
    if table_format == "parquet":
        table.frame.to_parquet(path, index=False)
    else:
        table.frame.to_csv(path, index=False, lineterminator="\n")
    return {"format": table_format, "rows": len(table.frame), "columns": [str(name) for name in table.frame.columns]}


def _classification_metrics(value: RocCurve | ConfusionMatrix) -> dict[str, Any]:
    """The metadata of system.ClassificationMetrics, which the Kubeflow UI draws."""
    if isinstance(value, ConfusionMatrix):
        return {
            "confusionMatrix": {
                "annotationSpecs": [{"displayName": name} for name in value.categories],
                "rows": [{"row": list(row)} for row in value.rows],
            }
        }
    # scikit-learn's first threshold is infinite, and JSON has no word for that.
    finite = [threshold for threshold in value.threshold if math.isfinite(threshold)] or [0.0]
    least, greatest = min(finite), max(finite)
    thresholds = [min(max(threshold, least), greatest) for threshold in value.threshold]
    points = list(zip(value.false_positive_rate, value.true_positive_rate, thresholds, strict=True))
    step = max(1, -(-len(points) // _CURVE_POINTS))
    kept = [*points[:-1:step], points[-1]] if points else []
    return {
        "confidenceMetrics": [
            {"falsePositiveRate": fpr, "recall": tpr, "confidenceThreshold": threshold} for fpr, tpr, threshold in kept
        ]
    }


def _input_artifact(name: str, artifact: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "field": name,
        "uri": artifact["uri"],
        "path": local_path(artifact),
        "metadata": artifact.get("metadata", {}),
    }
