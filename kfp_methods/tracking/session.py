"""One open MLflow run: its curves while the method runs, everything else once it has ended."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kfp_methods.tracking import jobs, models, record, system
from kfp_methods.tracking.outcome import Outcome
from kfp_methods.tracking.patience import GaveUpError, Patience, is_transient
from kfp_methods.tracking.place import Opener, Place, open_client
from kfp_methods.tracking.settings import Settings, quieten_mlflow

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    from kfp_methods.context import CurvePoint

T = TypeVar("T")
GIVEN_RUN_PREFIX = "inputs."
_PER_BATCH = {"metrics": 1000, "params": 100, "tags": 100}  # MLflow's limits


class Session:
    """Writes one run; used by the tracker's thread alone."""

    def __init__(
        self, settings: Settings, client: MlflowClient, place: Place, patience: Patience, scrub: record.Scrub
    ) -> None:
        self._settings, self._client, self.place = settings, client, place
        self._patience, self._scrub = patience, scrub
        self._pending: list[Metric] = []
        self._received: Counter[str] = Counter()
        self._sampler: system.Sampler | None = None
        self.notes: list[str] = []
        self.failures: list[GaveUpError] = []
        try:
            resume = not place.ours
            self._sampler = system.Sampler(place.run_id, settings.tracking_uri, resume)
        except Exception as error:  # a monitor's fault must not cost the run
            self.notes.append(f"system metrics are not recorded: {error}")

    @classmethod
    def open(cls, settings: Settings, patience: Patience, scrub: record.Scrub, started_ms: int) -> Session:
        """Imports MLflow and finds or makes the run. Raises GaveUpError."""
        quieten_mlflow()
        client = patience.attempt("open MLflow", lambda: open_client(settings))
        opener = Opener(settings, client, started_ms)
        return cls(settings, client, patience.attempt("open the run", opener.open), patience, scrub)

    def warm_up(self) -> None:
        """Does, while the method runs, what saving a model needs: the import, and MLflow's look at all packages."""
        with contextlib.suppress(Exception):  # only a head start
            importlib.import_module("mlflow.pyfunc")
            importlib.import_module("mlflow.utils.requirements_utils").warn_dependency_requirement_mismatches(
                ["mlflow"]
            )

    def add(self, points: Sequence[CurvePoint]) -> None:
        """Takes points to be sent by the next `flush`."""
        self._received.update(point.name for point in points)
        self._pending += record.curve_metrics(points)

    def flush(self, last: bool = False) -> bool:
        """Sends what is pending, once and without repetition; what fails stays pending. True when all was sent."""
        if self._sampler is not None:
            self._pending += self._sampler.take(last)
        while self._pending:
            batch = self._pending[: _PER_BATCH["metrics"]]
            try:
                self._client.log_batch(self.place.run_id, metrics=batch)
            except Exception as error:
                if is_transient(error):
                    return False
                self.failures.append(GaveUpError("write curves", error))
            del self._pending[: len(batch)]
        return True

    def record(self, outcome: Outcome) -> None:
        """Writes everything the run leaves, each part whether or not another failed."""
        ended_ms = time.time_ns() // 1_000_000
        self._try(lambda: self._record_values(outcome, ended_ms))
        self._try(lambda: self._record_curves(outcome))
        if outcome.datasets:
            inputs = record.dataset_inputs(outcome.datasets, outcome.data, self._scrub)
            self._send("write the datasets", lambda: self._client.log_inputs(self.place.run_id, inputs))
        with tempfile.TemporaryDirectory(prefix="mlflow-", ignore_cleanup_errors=True) as folder:
            self._try(lambda: self._record_files(outcome, Path(folder, "files")))
            self._try(lambda: self._record_model(outcome, Path(folder), ended_ms))

    def close(self, outcome: Outcome, ended_ms: int) -> None:
        """Ends the run if it is ours, and the job's run if it was the last to end."""
        if not self.place.ours:
            return
        run, parent = self.place.run_id, self.place.parent_id
        self._send("end the run", lambda: self._client.set_terminated(run, outcome.status, ended_ms))
        if parent:
            self._send("end the job's run", lambda: jobs.close_parent(self._client, self.place.experiment_id, parent))

    def _record_values(self, outcome: Outcome, now_ms: int) -> None:
        from mlflow.entities import Param, RunTag

        params = record.parameters(outcome, self._scrub)
        if not self.place.ours:
            # KFP's plugin logs the task's inputs too, as JSON, once the container has ended. MLflow never changes a
            # parameter and refuses the whole batch, KFP's metrics with it, so ours keep out of its names.
            params = {f"{GIVEN_RUN_PREFIX}{name}": value for name, value in params.items()}
        if changed := record.changed_parameters(params, self.place.known):
            self.notes.append(
                f"the run had other values already for {', '.join(changed)}, and MLflow does not change parameters: "
                f"this attempt's are in {record.INPUTS_FILE}"
            )
        if bad := record.not_finite(outcome):
            self.notes.append(f"NaN or infinite values are left out of MLflow: {', '.join(bad)}")
        new = [Param(name, value) for name, value in params.items() if name not in self.place.known]
        tags = [RunTag(name, value) for name, value in record.tags(outcome, self._scrub).items()]
        taken = {f"system/{name}": size for name, size in outcome.resources.items()}
        values = record.metrics({**outcome.metrics, **taken}, now_ms)
        self._log(params=new, metrics=values, tags=tags)

    def _log(self, **entities: Any) -> None:
        """In as few requests as MLflow's limits allow; kinds one by one when it rejects the whole."""
        log = self._client.log_batch
        if all(len(found) <= _PER_BATCH[kind] for kind, found in entities.items()):
            try:
                self._patience.attempt("write parameters, metrics and tags", lambda: log(self.place.run_id, **entities))
            except GaveUpError as given_up:
                if is_transient(given_up.cause):
                    raise
            else:
                return
        for kind, found in entities.items():
            for part in _parts(found, _PER_BATCH[kind]):
                self._send(f"write {kind}", lambda k=kind, p=part: log(self.place.run_id, **{k: p}))  # type: ignore[misc]

    def _record_curves(self, outcome: Outcome) -> None:
        """The pending points, and those of the outcome that were never handed to `add`."""
        seen: Counter[str] = Counter()
        missing = []
        for point in outcome.points:
            seen[point.name] += 1
            if seen[point.name] > self._received[point.name]:
                missing.append(point)
        self.add(missing)
        if self._sampler is not None:
            self._pending += self._sampler.take(last=True)
        for part in _parts(self._pending, _PER_BATCH["metrics"]):
            self._send("write curves", lambda p=part: self._client.log_batch(self.place.run_id, metrics=p))  # type: ignore[misc]

    def _record_files(self, outcome: Outcome, folder: Path) -> None:
        folder.mkdir()
        record.write_files(outcome, folder, self._scrub)
        what = f"write the files ({', '.join(sorted(path.name for path in folder.iterdir()))})"
        self._patience.attempt(what, lambda: self._client.log_artifacts(self.place.run_id, str(folder)))

    def _record_model(self, outcome: Outcome, work: Path, now_ms: int) -> None:
        if outcome.model is None or outcome.model_folder is None:
            return
        made = (self._client, self._patience, self._settings, self.place)
        logged = models.log_model(*made, outcome.model, outcome.model_folder, work)
        if scores := record.metrics(outcome.metrics, now_ms, logged.model_id):
            self._send("write the model's metrics", lambda: self._client.log_batch(self.place.run_id, scores))
        if outcome.register_as:
            models.register(*made, logged, outcome.register_as)

    def _send(self, what: str, do: Callable[[], object]) -> None:
        self._try(lambda: self._patience.attempt(what, do))

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except GaveUpError as given_up:
            self.failures.append(given_up)
        except Exception as error:  # for example a model whose `predict` fails on its own example
            self.failures.append(GaveUpError("record the run", error))


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
