"""One execution of a method: inputs checked, work done, results written, then told to MLflow."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kfp_methods import artifacts, catalogue, page, report
from kfp_methods.checkpoints import FOLDER_VARIABLE, checkpoints_for
from kfp_methods.context import Context
from kfp_methods.errors import ExitCode, InputError, Problem, number_from
from kfp_methods.executor import ExecutorInput, add_metadata, write_outputs, writing
from kfp_methods.partial import partial_report
from kfp_methods.resources import peaks
from kfp_methods.version import __version__

if TYPE_CHECKING:
    from kfp_methods.checkpoints import Checkpoints
    from kfp_methods.contract import Inputs, Method, Outputs
    from kfp_methods.tracking import Outcome, Tracked, Tracker

log = logging.getLogger("kfp_methods")

SUMMARY_FILE = "summary.json"
_STATES = {ExitCode.OK: "FINISHED", ExitCode.TERMINATED: "KILLED"}
_LIBRARIES = ("kfp-methods", "numpy", "pandas", "scipy", "scikit-learn", "torch", "mlflow")
# Neither where a run is written down nor where its files lie changes what it computes; their digests count instead.
_NOT_COMPUTED_WITH = ("experiment", "register_as", "require_tracking", "checkpoints", "device")
_EVICTION_GRACE_SECONDS = 15.0  # Kubernetes kills 30 s after SIGTERM; the outputs must be written within it too


class Task:
    """Holds what is known so far, so that any ending can write and track what there is."""

    def __init__(self, name: str, executor_input: str, scratch: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self.executor = ExecutorInput.parse(executor_input)
        self.environ = environ
        self.context = Context(scratch)
        self.method: Method[Any, Any, Any] | None = None
        self.inputs: Inputs | None = None
        self.outputs: Outputs | None = None
        self.tracker: Tracker | None = None
        self.paths: dict[str, Path] = {}
        self.error = ""
        self.problems: tuple[Problem, ...] = ()

    @property
    def subject(self) -> str:
        """The method whose results these are: of replicates that are joined, theirs."""
        given = self.executor.raw_inputs().get("method") if self.name == catalogue.COLLECT.name else None
        return str(given or self.name)

    def prepare(self) -> None:
        """Loads the method and validates its inputs. Raises InputError."""
        raw = self.executor.raw_inputs()
        self._start_tracking(str(raw.get("experiment") or ""))
        self.method = catalogue.load(self.name)
        self.inputs = self.method.inputs.parse(self.executor.raw_inputs_for(self.method.inputs))
        if self.inputs.require_tracking and self.tracker is None:
            raise InputError(
                Problem("require_tracking", True, "no MLflow server is configured", "Set MLFLOW_TRACKING_URI")
            )
        self.context.wanted_device = self.inputs.device
        self.context.find_checkpoints = self._checkpoints
        log.info("%s: data is %s", self.name, self._data_note())

    def execute(self) -> None:
        """Reads the data, computes, and writes every output. Raises InputError for data that cannot be used."""
        assert self.method is not None and self.inputs is not None  # noqa: S101 (prepare ran)
        data = self.method.read(self.inputs, self.context)
        self.outputs = self.method.compute(self.inputs, data, self.context)
        self._write_outputs()
        if kept := self.context.used_checkpoints:
            kept.remove()

    def _checkpoints(self) -> Checkpoints | None:
        """Those of this very run: the same code, inputs and data."""
        assert self.inputs is not None  # noqa: S101
        root = self.inputs.checkpoints or self.environ.get(FOLDER_VARIABLE, "")
        if not root:
            return None
        given = {name: value for name, value in self.inputs.parameters().items() if name not in _NOT_COMPUTED_WITH}
        folder = catalogue.entry(self.name).folder
        return checkpoints_for(
            self.name,
            root,
            given,
            {name: artifacts.digest(path) for name, path in self.context.fetched.items()},
            [*folder.rglob("*.py"), *folder.parent.glob("*.py"), *Path(__file__).parent.glob("*.py")],
            self.environ,
        )

    def finish(self, code: ExitCode, seconds: float) -> ExitCode:
        """Writes what an interrupted run has, tells MLflow, and leaves a summary beside executor_output.json.

        Returns the exit code: `code`, or FAULT when tracking is required and failed.
        """
        if code == ExitCode.TERMINATED:
            try:
                self._write_what_there_is()
            except InputError as error:
                self.refuse(error)
        tracked = self._track(code)
        if tracked is not None:
            code = self._note_tracking(code, tracked)
        try:
            self._write_summary(code, seconds, tracked)
        except InputError as error:
            self.refuse(error)
            return code or ExitCode.BAD_INPUT
        return code

    def refuse(self, error: InputError) -> None:
        """Keeps for the summary what is wrong, and says it in the log."""
        self.problems += error.problems
        self.error = "\n".join(filter(None, (self.error, str(error))))
        log.error("cannot be done as it was asked:\n%s", error)

    def _note_tracking(self, code: ExitCode, tracked: Tracked) -> ExitCode:
        """What joins replicates learns each one's MLflow run; an error is noted where the metrics are seen."""
        if tracked.run_id:
            self._add_metadata("claims", {"mlflow_run_id": tracked.run_id})
        if not tracked.error:
            return code
        self._add_metadata("metrics", {"tracking_error": tracked.error})
        if code == ExitCode.OK and self.inputs is not None and self.inputs.require_tracking:
            self.error = f"require_tracking=True: {tracked.error}"
            log.error("%s", self.error)
            return ExitCode.FAULT
        return code

    def _add_metadata(self, name: str, extra: Mapping[str, Any]) -> None:
        if name not in self.paths or not self.executor.output_file.exists():
            return
        try:
            add_metadata(self.executor, name, extra)
        except InputError as error:  # a note less, not a result less
            log.warning("%s", error)

    def _start_tracking(self, experiment: str) -> None:
        if not self.environ.get("MLFLOW_TRACKING_URI"):
            log.info("MLFLOW_TRACKING_URI is not set: this run is not tracked")
            return
        from kfp_methods.tracking import Tracker

        self.tracker = Tracker(
            method=self.name,
            experiment=experiment,
            version=__version__,
            subject=self.subject,
            environ=self.environ,
            on_note=log.warning,
            timeout=number_from(self.environ, "KFP_METHODS_TRACKING_SECONDS", 60.0),
        )
        self.context.on_point = self.tracker.point
        self.tracker.start()

    def _report(self, status: Any) -> str:
        assert self.method is not None and self.inputs is not None  # noqa: S101
        content = self.outputs.report if self.outputs else partial_report(self.context.parts, self.context.points)
        help_texts = (
            {name: info.description or "" for name, info in type(self.outputs.metrics).model_fields.items()}
            if self.outputs
            else {}
        )
        subject = catalogue.entry(self.subject)
        return page.render(
            content,
            method=self.subject,
            title=subject.title if self.subject == self.name else f"{subject.title}: replicates joined",
            paper={key: str(value) for key, value in subject.paper.items() if value is not None},
            data=self._data(),
            data_note=self._data_note(),
            claims=self.outputs.claims if self.outputs else (),
            metrics=self.outputs.metrics.model_dump() if self.outputs else {},
            metric_help=help_texts,
            inputs=self._parameters(),
            versions=_versions(),
            status=status,
            warnings=self.context.warnings,
        )

    def _data_note(self) -> str:
        assert self.inputs is not None  # noqa: S101
        if self.inputs.uses_sample:
            sample = catalogue.entry(self.subject).sample_data
            return f"{sample.get('name', 'Nothing')}, licence {sample.get('licence', 'none')}."
        given = [
            f"{name}: {len(value) if kind.is_list_of_artifacts else artifacts.redacted(str(value))}"
            for name, kind in self.inputs.kinds().items()
            if kind.is_artifact and (value := getattr(self.inputs, name))
        ]
        given += [f"{name}: {value}" for name in self.inputs.own_data if (value := getattr(self.inputs, name))]
        return "; ".join(given)

    def _write_outputs(self) -> None:
        assert self.inputs is not None and self.outputs is not None  # noqa: S101
        # What joins replicates reads from their claims whose data it was, and which replicate.
        pod = self.environ.get("KFP_POD_NAME")
        about = {"data": self._data(), "seed": self.inputs.seed, **({"pod": pod} if pod else {})}
        extra = {"claims": about}
        written = write_outputs(self.executor, self.outputs, self._report("complete"), extra, method=self.name)
        self.paths = written.paths
        written.check()

    def _data(self) -> Literal["sample", "user"]:
        return "sample" if self.inputs is None or self.inputs.uses_sample else "user"

    def _write_what_there_is(self) -> None:
        if self.inputs is None:
            return
        if self.outputs is not None:  # the signal came while they were being written
            self._write_outputs()
            return
        path = self.executor.artifact_path("report")
        with writing(path):
            path.write_text(self._report("interrupted"), encoding="utf-8")
        self.paths["report"] = path

    def _track(self, code: ExitCode) -> Tracked | None:
        if self.tracker is None:
            return None
        if code == ExitCode.TERMINATED:
            self.tracker.timeout = min(self.tracker.timeout, _EVICTION_GRACE_SECONDS)
        tracked = self.tracker.finish(self._outcome(code))
        if tracked.url:
            log.info("MLflow run: %s", tracked.shown)
        return tracked

    def _outcome(self, code: ExitCode) -> Outcome:
        from kfp_methods.tracking import Outcome

        made = self.outputs
        parts = list(made.report.parts) if made else self.context.parts
        fields = {name: getattr(made, name) for name in made.kinds()} if made else {}
        tables = {t.name: t for t in [*parts, *fields.values()] if isinstance(t, report.Table)}
        model = next((name for name, kind in (made.kinds() if made else {}).items() if kind.kfp_type == "Model"), None)
        return Outcome(
            status=_STATES.get(code, "FAILED"),  # type: ignore[arg-type]
            parameters=self._parameters(),
            metrics=made.metrics.model_dump() if made else {},
            claims=made.claims if made else (),
            points=self.context.points,
            report=self.paths.get("report"),
            figures=[part for part in parts if isinstance(part, report.Figure)],
            tables=list(tables.values()),
            model=fields.get(model) if model else None,
            model_folder=self.paths.get(model) if model else None,
            register_as=getattr(self.inputs, "register_as", ""),
            datasets=self._datasets(),
            data=self._data(),
            warnings=self.context.warnings,
            error=self.error,
            resources=peaks(),
        )

    def _parameters(self) -> dict[str, Any]:
        """The inputs as given; URIs without the credentials that they may hold."""
        if self.inputs is None:
            return {name: value for name, value in self.executor.raw_inputs().items() if not isinstance(value, list)}
        uris = {kind.parameter_name for kind in self.inputs.kinds().values() if kind.is_artifact}
        given = self.inputs.parameters()
        return {name: artifacts.redacted(value) if name in uris else value for name, value in given.items()}

    def _datasets(self) -> list[Any]:
        from kfp_methods.tracking import DatasetUsed

        used = [
            DatasetUsed(field, self._source(field), artifacts.digest(p)) for field, p in self.context.fetched.items()
        ]
        if not (self.inputs and self.inputs.uses_sample):
            return used
        entry = catalogue.entry(self.name)
        files = [entry.folder / name for name in entry.sample_data.get("files", ())]
        return used + [DatasetUsed("sample", str(entry.sample_data.get("name")), artifacts.digest(p)) for p in files]

    def _source(self, field: str) -> str:
        value = getattr(self.inputs, field, None) or getattr(self.inputs, field.removesuffix("_uri"), None)
        return str(value or field)

    def _write_summary(self, code: ExitCode, seconds: float, tracked: Tracked | None) -> None:
        """What `kfp-methods run` prints; also there after a failure, when KFP has no outputs to show."""
        summary = {
            "method": self.name,
            "exit_code": int(code),
            "seconds": round(seconds, 3),
            "data": self._data(),
            "seed": getattr(self.inputs, "seed", None),
            "headline": self.outputs.report.summary if self.outputs else "",
            "metrics": self.outputs.metrics.model_dump() if self.outputs else {},
            "resources": peaks(),
            "tables": [table.plain() for table in (self.outputs.report.highlights if self.outputs else ())],
            "claims": [_claim_summary(result) for result in (self.outputs.claims if self.outputs else ())],
            "outputs": {name: str(path) for name, path in self.paths.items()},
            "mlflow": None if tracked is None else vars(tracked),
            "warnings": self.context.warnings,
            "error": self.error,
            "problems": [_problem_summary(problem) for problem in self.problems],
        }
        path = self.executor.output_file.parent / SUMMARY_FILE
        with writing(path):
            path.write_text(json.dumps(summary, indent=1, allow_nan=False), encoding="utf-8")


def _claim_summary(result: Any) -> dict[str, Any]:
    return {
        "id": result.claim.id,
        "statement": result.claim.statement,
        "verdict": result.verdict.value,
        "value": result.value,
        "low": result.low,
        "high": result.high,
        "n": result.n,
        "over": result.over,
        "paper": result.claim.paper,
        "note": result.note,
    }


def _problem_summary(problem: Problem) -> dict[str, Any]:
    """JSON values; a value of another type as text."""
    value = problem.value
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return {
        "field": problem.field,
        "value": value if plain else str(value),
        "problem": problem.problem,
        "remedy": problem.remedy,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        found["gpu"] = sys.modules["torch"].cuda.get_device_name()
    if image := os.environ.get("KFP_METHODS_IMAGE"):
        found["image"] = image
    return found
