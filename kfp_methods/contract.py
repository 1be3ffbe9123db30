"""A method's interface, written once: `Inputs`, `Outputs` and `Method`.

The command line, the Kubeflow component, the container, the report and the catalogue all read it from here.
A method's `component.py` imports this module (and `claims`, `report`, `artifacts`) and nothing else of the platform;
heavy libraries are imported inside its functions, so that reading an interface stays quick.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, get_args, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, model_validator
from pydantic.config import JsonDict

from kfp_methods.claims import Claim, ClaimResult
from kfp_methods.errors import InputError, Problem
from kfp_methods.fields import InputKind, OutputKind, input_kind, output_kind, preset_values
from kfp_methods.remedies import problems_from_pydantic
from kfp_methods.report import Report, Table

if TYPE_CHECKING:
    import pandas

    from kfp_methods.context import Context

Preset = Literal["smoke", "sample", "gpu"]


class Artifact(BaseModel):
    """An input that is a file or folder: an upstream task's artifact, or whatever a URI points at."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kfp_type: ClassVar[str] = "Artifact"

    field: str = ""
    uri: str = ""
    path: Path | None = None
    metadata: dict[str, Any] = {}

    def __str__(self) -> str:
        return self.uri or str(self.path or "")


class Dataset(Artifact):
    """A table, an array set or another collection of records."""

    kfp_type: ClassVar[str] = "Dataset"


class Model(Artifact):
    """A trained model: safetensors, a Hugging Face folder or ONNX."""

    kfp_type: ClassVar[str] = "Model"


def parameter(default: Any, description: str, **constraints: Any) -> Any:
    """A parameter field: its default, what it means (shown by the Kubeflow UI), and pydantic's constraints."""
    return Field(default, description=description, **constraints)


def by_preset(description: str, *, smoke: Any, sample: Any, gpu: Any, **constraints: Any) -> Any:
    """A parameter whose default depends on `preset`; its type is the plain one, never None after validation."""
    extra: JsonDict = {"presets": {"smoke": smoke, "sample": sample, "gpu": gpu}}
    return Field(sample, description=description, json_schema_extra=extra, **constraints)


def artifact(description: str) -> Any:
    """An optional input artifact; on a command line and in the Kubeflow UI it is given as `<name>_uri`."""
    return Field(None, description=description)


def output(description: str, *, format: Literal["csv", "parquet"] = "csv") -> Any:
    """An output field; `format` is that of a table's file."""
    return Field(description=description, json_schema_extra={"format": format})


def metric(description: str, *, optional: bool = False) -> Any:
    """A scalar result; an optional one is None where the run cannot measure it.

    A number of seconds, or a ratio of such, differs from run to run: its name ends in `seconds` or `time_ratio`.
    """
    return Field(None if optional else ..., description=description)


class Inputs(BaseModel):
    """What every method accepts; a method adds its own fields. Violations raise `InputError` through `parse`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    preset: Preset = parameter(
        "sample",
        "Size of the run where a field says 'chosen by preset': smoke (seconds), "
        "sample (about a minute on 2 CPU cores), gpu (one large GPU).",
    )
    seed: int = parameter(
        0, "Seed of every random number; same seed, same inputs, same CPU result.", ge=0, le=2**31 - 1
    )
    device: Literal["auto", "cpu", "cuda"] = parameter("auto", "Where to compute; auto takes CUDA where there is one.")
    experiment: str = parameter(
        "", "MLflow experiment that receives the run; empty: the method's name.", max_length=200
    )
    require_tracking: bool = parameter(False, "Fail the run when MLflow cannot be written to, instead of noting it.")

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Validates parameter values and artifacts by name.

        Raises:
            InputError: one problem for each wrong field, all of them at once.
        """
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            known = [kind.parameter_name for kind in cls.kinds().values()]
            raise InputError(problems_from_pydantic(error, known)) from None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, raw: Any) -> Any:
        """Names artifacts given by URI and fills in what the preset chooses."""
        if not isinstance(raw, Mapping):
            return raw
        values = {name: value for name, value in raw.items() if value is not None}
        for name, kind in cls.kinds().items():
            if kind.is_artifact:
                _take_artifact(values, name, kind)
            elif kind.presets and values.get(name, "") == "":
                preset = str(values.get("preset"))
                values[name] = kind.presets[preset if preset in get_args(Preset) else "sample"]
        return values

    @classmethod
    def kinds(cls) -> dict[str, InputKind]:
        """How each field travels: a KFP parameter of which type, or which artifact; the method's own fields first."""
        order = sorted(cls.model_fields.items(), key=lambda item: item[0] in Inputs.model_fields)
        return {name: input_kind(name, info, Artifact) for name, info in order}

    def parameters(self) -> dict[str, Any]:
        """Plain JSON values of the KFP parameters' types, by name (artifacts as `<name>_uri`), defaults included.

        What KFP carries as text, such as a number or a word, is text; what is None is absent.
        """
        values: dict[str, Any] = {}
        for name, kind in self.kinds().items():
            value = getattr(self, name)
            if kind.is_artifact and not kind.is_list_of_artifacts:
                values[kind.parameter_name] = value.uri if value else ""
            elif not kind.is_artifact and value is not None:
                as_text = kind.kfp_type == "str" and not isinstance(value, str)
                values[name] = json.dumps(value) if as_text else value
        return json.loads(json.dumps(values))

    @property
    def uses_sample(self) -> bool:
        """Whether no data of the user's was given, so that the method's embedded sample is used."""
        return not any(getattr(self, name) for name, kind in self.kinds().items() if kind.is_artifact)


class ModelInputs(Inputs):
    """Adds `register_as` for methods that make a model."""

    register_as: str = parameter(
        "",
        "Name under which MLflow's registry keeps the model; empty: not registered.",
        pattern=r"^[^/:]*$",
        max_length=200,
    )


class Metrics(BaseModel):
    """A method's scalar results; None where the run could not measure one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@runtime_checkable
class FittedModel(Protocol):
    """A model that a method makes: saved without pickle, served by MLflow's pyfunc flavour."""

    def save(self, folder: Path) -> None:
        """Writes safetensors and JSON files into an existing, empty folder."""

    def predict(self, frame: pandas.DataFrame) -> pandas.DataFrame:
        """One output row for each input row."""

    def example(self) -> pandas.DataFrame:
        """A few input rows that `predict` accepts; MLflow shows them and derives the signature."""


@dataclass(frozen=True)
class RocCurve:
    """Points of a receiver operating characteristic, thresholds falling; all three of one length."""

    false_positive_rate: tuple[float, ...]
    true_positive_rate: tuple[float, ...]
    threshold: tuple[float, ...]


@dataclass(frozen=True)
class ConfusionMatrix:
    """Counts by true category (rows) and predicted category (columns)."""

    categories: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]


class Outputs(BaseModel):
    """What every method returns; a method adds tables, models, curves and plain values."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())

    report: InstanceOf[Report] = output("One self-contained HTML page: verdicts, figures, tables, inputs.")
    metrics: InstanceOf[Metrics] = output("Scalar results.")
    claims: list[InstanceOf[ClaimResult]] = output("The paper's claims with the verdicts this run measured (JSON).")

    @classmethod
    def kinds(cls) -> dict[str, OutputKind]:
        """How each field leaves the container: a KFP parameter, or which artifact."""
        return {name: output_kind(name, info, _OUTPUT_TYPES) for name, info in cls.model_fields.items()}


_OUTPUT_TYPES: dict[type, str] = {
    Report: "HTML",
    Metrics: "Metrics",
    ClaimResult: "Artifact",
    Table: "Dataset",
    FittedModel: "Model",
    RocCurve: "ClassificationMetrics",
    ConfusionMatrix: "ClassificationMetrics",
}

InputsT = TypeVar("InputsT", bound=Inputs)
DataT = TypeVar("DataT")
OutputsT = TypeVar("OutputsT", bound=Outputs)


@dataclass(frozen=True)
class Resources:
    """What a pod asks Kubernetes for, unless the pipeline's parameters say otherwise."""

    cpu: str = "2"
    memory: str = "8Gi"
    timeout_seconds: int = 6 * 3600


@dataclass(frozen=True)
class Method(Generic[InputsT, DataT, OutputsT]):
    """A method: its interface and the two functions that do the work.

    `load(inputs, context)` reads and checks the user's data and raises `InputError`; `run(inputs, data, context)`
    computes. They are apart so that inputs can be checked without running.
    """

    name: str
    inputs: type[InputsT]
    outputs: type[OutputsT]
    load: Callable[[InputsT, Context], DataT]
    run: Callable[[InputsT, DataT, Context], OutputsT]
    claims: tuple[Claim, ...] = ()
    load_model: Callable[[Path], FittedModel] | None = None
    resources: Resources = field(default_factory=Resources)

    @cached_property
    def makes_model(self) -> bool:
        return any(kind.kfp_type == "Model" for kind in self.outputs.kinds().values())


def _take_artifact(values: dict[str, Any], name: str, kind: InputKind) -> None:
    """Replaces `<name>` / `<name>_uri` in `values` by one artifact, or by nothing when neither was given."""
    uri = values.pop(kind.parameter_name, "")
    given = values.get(name)
    if given in (None, "", []):
        values.pop(name, None)
    elif uri:
        raise InputError(
            Problem(
                kind.parameter_name, uri, f"{name} is already connected to an upstream artifact", "Give one of the two"
            )
        )
    if isinstance(given, str) and given:
        uri = given
    if uri:
        values[name] = {"field": kind.parameter_name, "uri": uri.strip() if isinstance(uri, str) else uri}
    elif isinstance(values.get(name), Mapping):
        values[name] = {"field": name, **values[name]}


__all__ = [
    "Artifact",
    "ConfusionMatrix",
    "Dataset",
    "FittedModel",
    "Inputs",
    "Method",
    "Metrics",
    "Model",
    "ModelInputs",
    "Outputs",
    "Preset",
    "Resources",
    "RocCurve",
    "artifact",
    "by_preset",
    "metric",
    "output",
    "parameter",
    "preset_values",
]
