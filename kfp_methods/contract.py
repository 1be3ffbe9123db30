"""A method's interface, written once: `Inputs`, `Outputs` and `Method`.

The command line, the Kubeflow component, the container, the report and the catalogue all read it from here.
A method's `component.py` imports this module (and `claims`, `report`, `artifacts`, `errors`) and nothing else of the
platform;
heavy libraries are imported inside its functions, so that reading an interface stays quick.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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


def parameter(default: Any, description: str, *, form: str = "", **constraints: Any) -> Any:
    """A parameter field: its default, what it means (shown by the Kubeflow UI), and pydantic's constraints.

    `form` says in words what a `pattern` asks, for errors: "a name without / and :". The constraints of a list's
    entries belong to its type, `list[Annotated[float, Field(gt=0)]]`, so that help and errors tell them.
    """
    extra: JsonDict | None = {"form": form} if form else None
    return Field(default, description=description, json_schema_extra=extra, **constraints)


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

    # Parameters that name data of the user's which is no artifact, such as a simulator's environment.
    own_data: ClassVar[tuple[str, ...]] = ()

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
        "",
        "MLflow experiment that receives the run; empty: MLFLOW_EXPERIMENT_NAME, else the method's name.",
        max_length=200,
    )
    require_tracking: bool = parameter(False, "Fail the run when MLflow cannot be written to, instead of noting it.")
    checkpoints: str = parameter(
        "",
        "Folder that keeps long work's progress, so that a run that was killed goes on; empty: none.",
        max_length=4096,
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Validates parameter values and artifacts by name.

        Raises:
            InputError: one problem for each wrong field, all of them at once.
        """
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            raise InputError(problems_from_pydantic(error, cls.kinds())) from None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, raw: Any) -> Any:
        """Names artifacts given by URI, and fills in what the preset chooses.

        What is None is not given, and so is an empty text where text is no value: a client that cannot leave a
        parameter out sends one of the two.
        """
        if not isinstance(raw, Mapping):
            return raw
        values = {name: value for name, value in raw.items() if value is not None}
        for name, kind in cls.kinds().items():
            if kind.is_artifact:
                _take_artifact(values, name, kind)
                continue
            if name in values and values[name] == "" and not kind.takes_text:
                del values[name]
            if name in values:
                values[name] = _without_flags(values[name]) if kind.holds_numbers else values[name]
            elif kind.presets:
                preset = str(values.get("preset"))
                values[name] = kind.presets[preset if preset in get_args(Preset) else "sample"]
        return values

    @classmethod
    def kinds(cls) -> dict[str, InputKind]:
        """How each field travels: a KFP parameter of which type, or which artifact.

        The method's own fields come first, then those of each class that it derives from.
        """
        lineage = [base for base in cls.__mro__ if issubclass(base, Inputs)]

        def distance(name: str) -> int:
            return sum(name in base.model_fields for base in lineage)

        order = sorted(cls.model_fields.items(), key=lambda item: distance(item[0]))
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

    @contextmanager
    def named_in_errors(self, fetched: Mapping[str, Path]) -> Iterator[None]:
        """Within it, an InputError names for each field what the user gave, not what a method made of it.

        An artifact's value is its URI without credentials, with the place of the file inside where it is a
        folder; `fetched` tells where the artifacts of which fields lie.
        """
        try:
            yield
        except InputError as error:
            raise InputError([self._named(problem, fetched) for problem in error.problems]) from None

    def _named(self, problem: Problem, fetched: Mapping[str, Path]) -> Problem:
        kind = next((k for k in self.kinds().values() if problem.field in (k.name, k.parameter_name)), None)
        value = getattr(self, kind.name) if kind else None
        if kind is None or kind.is_list_of_artifacts or value in (None, ""):
            return problem
        if not kind.is_artifact:
            return problem if problem.value is not None else replace(problem, value=value)
        from kfp_methods.artifacts import redacted

        name, place = redacted(str(value)), fetched.get(value.field)
        if place is not None and isinstance(problem.value, str) and place in Path(problem.value).parents:
            name = os.path.join(name, Path(problem.value).relative_to(place))
        return replace(problem, value=name)

    @property
    def uses_sample(self) -> bool:
        """Whether no data of the user's was given, so that the method's embedded sample is used."""
        artifacts = [name for name, kind in self.kinds().items() if kind.is_artifact]
        return not any(getattr(self, name) for name in [*artifacts, *self.own_data])


class ModelInputs(Inputs):
    """Adds `register_as` for methods that make a model."""

    register_as: str = parameter(
        "",
        "Name under which MLflow's registry keeps the model; empty: not registered.",
        pattern=r"^[^/:]*$",
        form="a name of at most 200 characters without / and :",
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

    def read(self, inputs: InputsT, context: Context) -> DataT:
        """Checks the device, then reads and checks the user's data.

        Raises:
            InputError: there is no such device, or data cannot be used; its problems name what the user gave.
        """
        if inputs.device == "cuda":
            _ = context.device  # raises where there is none, before an hour's download
        with inputs.named_in_errors(context.fetched):
            return self.load(inputs, context)

    def compute(self, inputs: InputsT, data: DataT, context: Context) -> OutputsT:
        """Does the work on what `read` returned.

        Raises:
            InputError: the computation shows that an input cannot be used.
        """
        with inputs.named_in_errors(context.fetched):
            return self.run(inputs, data, context)

    @cached_property
    def makes_model(self) -> bool:
        return any(kind.kfp_type == "Model" for kind in self.outputs.kinds().values())


def _take_artifact(values: dict[str, Any], name: str, kind: InputKind) -> None:
    """Replaces `<name>` / `<name>_uri` in `values` by one artifact, or by nothing when neither was given.

    When both were, both stay, and validation refuses the second.
    """
    given, by_uri = values.pop(name, ""), False
    if given in ("", []):
        given, by_uri = values.pop(kind.parameter_name, ""), True
    elif values.get(kind.parameter_name) == "":
        del values[kind.parameter_name]
    if isinstance(given, list) and not by_uri:
        values[name] = given
    elif isinstance(given, Mapping) and not by_uri:
        values[name] = {"field": name, **given}
    elif given != "":
        values[name] = {"field": kind.parameter_name, "uri": _as_uri(given) if isinstance(given, str) else given}


def _as_uri(text: str) -> str:
    """The URI as given; a path with bytes that are no text as file://, which JSON, KFP and MLflow can carry."""
    text = text.strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        return text if "://" in text else Path(os.path.expanduser(text)).absolute().as_uri()
    return text


def _without_flags(value: Any) -> Any:
    """Booleans as the words true and false, for pydantic would read 1 and 0 from them."""
    if isinstance(value, list):
        return [_without_flags(entry) for entry in value]
    return str(value).lower() if isinstance(value, bool) else value


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
