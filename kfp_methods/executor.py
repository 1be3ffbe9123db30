"""The executor input and output: how KFP tells a container what it gets, and learns what it made."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_methods import claims
from kfp_methods.contract import ConfusionMatrix, Inputs, Metrics, Outputs, RocCurve
from kfp_methods.errors import InputError, Problem
from kfp_methods.pyfunc import MODEL_FILE
from kfp_methods.report import Table, legible
from kfp_methods.version import __version__

if TYPE_CHECKING:
    import pandas

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
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITABLE = (
    *_FULL,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.EIO,
)
_ROOM = "Give a folder that can be written and has room"
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


@dataclass
class Written:
    """What of a run's outputs reached its place: `paths` by output name, and why others did not."""

    paths: dict[str, Path] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)

    def check(self) -> None:
        """Raises InputError naming each path that cannot be written; a fault of ours comes first."""
        faults = [failure for failure in self.failures if not isinstance(failure, InputError)]
        if faults:
            raise faults[0]
        problems = [p for failure in self.failures if isinstance(failure, InputError) for p in failure.problems]
        if problems:
            raise InputError(problems)


def write_outputs(
    executor: ExecutorInput,
    outputs: Outputs,
    report_html: str,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    method: str,
) -> Written:
    """Writes every output where KFP expects it, then executor_output.json.

    An output that cannot be written costs no other one: the rest is written and listed, and `Written.check` raises.
    `extra` adds to the metadata of output artifacts, by name; `method` tells `pyfunc` who loads a model.
    """
    written = Written()
    metadata: dict[str, Mapping[str, Any]] = {}
    values: dict[str, Any] = {}
    for name, kind in outputs.kinds().items():
        value = report_html if name == "report" else getattr(outputs, name)
        path = executor.artifact_path(name) if kind.is_artifact else executor.parameter_path(name)
        try:
            with writing(path):
                if kind.is_artifact:
                    about = _write_artifact(path, value, kind.format, method)
                    metadata[name] = {**about, **(extra or {}).get(name, {})}
                else:
                    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
                    path.write_text(legible(text), encoding="utf-8")
                    values[name] = value
        except Exception as error:  # `check` raises it, once the other outputs are safe
            written.failures.append(error)
        else:
            written.paths[name] = path
    try:
        write_executor_output(executor, values, metadata)
    except InputError as error:
        written.failures.append(error)
    return written


@contextlib.contextmanager
def writing(path: Path, final: Path | None = None) -> Iterator[None]:
    """Makes the folder of `path`; whatever fails while it is being written, no half of it stays.

    final: what it will be called, where that is another name.
    Raises InputError when the place is full, read-only or taken, which is nothing that we can mend.
    """
    was_folder = path.is_dir()  # one that was there before is not ours to remove
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except Exception as error:
        if not was_folder:
            _remove(path)
        if reason := cannot_write(error):
            raise InputError(Problem("output", str(final or path), f"cannot be written ({reason})", _ROOM)) from None
        raise


def cannot_write(error: BaseException) -> str:
    """The system's reason when the place, not the program, is why something could not be written; else ""."""
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return os.strerror(error.errno)
    return disk_is_full(error)


def disk_is_full(error: BaseException) -> str:
    """The system's reason when there was no room (or no right) for more bytes; else "".

    Libraries in other languages keep the system's words where they lose its number.
    """
    if isinstance(error, OSError) and error.errno in _FULL:
        return os.strerror(error.errno)
    return next((os.strerror(number) for number in _FULL if os.strerror(number) in str(error)), "")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_executor_output(
    executor: ExecutorInput, values: Mapping[str, Any], metadata: Mapping[str, Mapping[str, Any]]
) -> None:
    """KFP drops an output artifact that this file does not list, so it lists all that were written.

    Raises InputError when the file cannot be written; the one before then stays.
    """
    artifacts = {}
    for name, extra in metadata.items():
        declared = executor.outputs["artifacts"][name]["artifacts"][0]
        artifacts[name] = {"artifacts": [{**declared, "metadata": {**declared.get("metadata", {}), **extra}}]}
    _replace(executor.output_file, {"parameterValues": dict(values), "artifacts": artifacts})


def add_metadata(executor: ExecutorInput, name: str, extra: Mapping[str, Any]) -> None:
    """Adds to an output artifact's metadata after the outputs were written.

    Raises InputError when executor_output.json cannot be written; it then stays as it was.
    """
    message = json.loads(executor.output_file.read_text(encoding="utf-8"))
    message["artifacts"][name]["artifacts"][0]["metadata"].update(extra)
    _replace(executor.output_file, message)


def _replace(path: Path, message: Mapping[str, Any]) -> None:
    """Writes JSON as a whole or not at all; text that JSON's readers refuse is made legible."""
    unfinished = path.with_name(f"{path.name}.new")
    with writing(unfinished, path):
        text = json.dumps(message, allow_nan=False, ensure_ascii=False)
        unfinished.write_text(legible(text), encoding="utf-8")
        unfinished.replace(path)


def _write_artifact(path: Path, value: Any, table_format: str, method: str) -> dict[str, Any]:
    """Writes one artifact's content and returns the metadata that the Kubeflow UI shows with it."""
    if isinstance(value, str):
        path.write_text(legible(value), encoding="utf-8")
        return {}
    if isinstance(value, Metrics):
        measured = {name: number for name, number in value.model_dump().items() if number is not None}
        path.write_text(json.dumps(value.model_dump(), indent=1, allow_nan=False), encoding="utf-8")
        return measured
    if isinstance(value, list):
        path.write_text(legible(claims.dumps(value)), encoding="utf-8")
        return {result.claim.id: result.verdict.value for result in value}
    if isinstance(value, Table):
        return _write_table(path, value, table_format)
    if isinstance(value, RocCurve | ConfusionMatrix):
        content = _classification_metrics(value)
        path.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        return content
    path.mkdir(parents=True, exist_ok=True)
    value.save(path)
    (path / MODEL_FILE).write_text(json.dumps({"method": method, "version": __version__}), encoding="utf-8")
    return {"framework": "kfp-methods"}


def _write_table(path: Path, table: Table, table_format: str) -> dict[str, Any]:
    frame = table.columns
    if table_format == "parquet":
        _write_parquet(path, frame)
    else:
        frame.to_csv(path, index=False, lineterminator="\n", errors="backslashreplace")
    return {"format": table_format, "rows": len(frame), "columns": [str(name) for name in frame.columns]}


def _write_parquet(path: Path, frame: pandas.DataFrame) -> None:
    try:
        frame.to_parquet(path, index=False)
    except UnicodeEncodeError:  # names of files that are not UTF-8
        clean = frame.map(lambda value: legible(value) if isinstance(value, str) else value)
        clean.to_parquet(path, index=False)


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
