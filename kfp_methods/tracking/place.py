"""Where a run is written: the run Kubeflow's plugin made, one nested under its job's, or a plain one."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_methods.tracking import jobs, stale
from kfp_methods.tracking.server import connect
from kfp_methods.tracking.settings import Settings, git_commit

if TYPE_CHECKING:
    from mlflow import MlflowClient

ATTEMPT = "kfp_methods.attempt"


@dataclass(frozen=True)
class Place:
    """An MLflow run. `ours`: we made it, so we end it; `known`: the parameters it has already (immutable)."""

    run_id: str
    experiment_id: str
    ours: bool
    parent_id: str = ""
    known: Mapping[str, str] = field(default_factory=dict)
    status: str = "RUNNING"


class Opener:
    """Finds or makes the run; may be called again after a failure without making a second one."""

    def __init__(self, settings: Settings, client: MlflowClient, started_ms: int) -> None:
        self._settings, self._client, self._started_ms = settings, client, started_ms
        self._tags = link_tags(settings) | {ATTEMPT: uuid.uuid4().hex}
        self._parent_id = ""
        self._tried = False

    def open(self) -> Place:
        """The place to write to. Raises what MLflow raises."""
        settings, client = self._settings, self._client
        if settings.run_id:
            return self._given_run()
        experiment_id = _experiment(client, settings)
        if settings.job and not self._parent_id:
            self._parent_id = jobs.parent_of_job(
                client, experiment_id, settings.job, lambda: self._create_parent(experiment_id)
            )
        tags = self._tags | ({jobs.PARENT: self._parent_id} if self._parent_id else {})
        run_id = self._created_before(experiment_id) or self._create(experiment_id, tags)
        same_task = {name: tags.get(name, "") for name in (jobs.JOB, stale.TASK)}
        stale.fail_earlier_attempts(client, experiment_id, same_task, run_id)
        if self._parent_id:
            jobs.reopen_parent(client, self._parent_id)
        return Place(run_id, experiment_id, ours=True, parent_id=self._parent_id)

    def _given_run(self) -> Place:
        run = self._client.get_run(self._settings.run_id)
        self._client.log_batch(run.info.run_id, tags=_tag_entities(link_tags(self._settings)))
        return Place(run.info.run_id, run.info.experiment_id, ours=False, known=run.data.params, status=run.info.status)

    def _created_before(self, experiment_id: str) -> str:
        """A request that failed may have been served: its run bears this process's mark."""
        if not self._tried:
            return ""
        found = self._client.search_runs([experiment_id], f"tags.`{ATTEMPT}` = '{self._tags[ATTEMPT]}'")
        return found[0].info.run_id if found else ""

    def _create(self, experiment_id: str, tags: Mapping[str, str]) -> str:
        self._tried = True
        name = self._settings.method
        run = self._client.create_run(experiment_id, start_time=self._started_ms, tags=dict(tags), run_name=name)
        return run.info.run_id

    def _create_parent(self, experiment_id: str) -> str:
        settings = self._settings
        tags = {
            jobs.ROLE: "job",
            jobs.JOB: settings.job,
            "kfp.pipeline": settings.pipeline,
            "kfp.namespace": settings.namespace,
        }
        name = f"{settings.pipeline or 'pipeline'} {settings.job[:8]}"
        run = self._client.create_run(experiment_id, tags={k: v for k, v in tags.items() if v}, run_name=name)
        return run.info.run_id


def link_tags(settings: Settings) -> dict[str, str]:
    """Tags that lead from the run back to the pipeline run, the pod, the image and the source."""
    commit = settings.commit or git_commit()
    tags = {
        "kfp_methods.method": settings.method,
        "kfp_methods.version": settings.version,
        "kfp_methods.image": settings.image,
        "kfp_methods.commit": commit,
        jobs.JOB: settings.job,
        stale.TASK: settings.task,
        "kfp.pipeline": settings.pipeline,
        "kfp.pod": settings.pod,
        "kfp.namespace": settings.namespace,
        "mlflow.source.name": f"kfp-methods {settings.method}",
        "mlflow.source.type": "JOB" if settings.job or settings.run_id else "LOCAL",
        "mlflow.source.git.commit": commit,
    }
    return {name: value for name, value in tags.items() if value}


def open_client(settings: Settings) -> MlflowClient:
    """Connects; a local database is made or migrated by one process at a time.

    MLflow does not guard against two of them: a new database that two processes open at one moment stays broken.

    Raises:
        OSError: the server does not answer, or the local database's folder cannot be written to; MLflow itself
            would try for minutes.
    """
    connect(settings.tracking_uri)
    from mlflow import MlflowClient

    if (folder := settings.local_folder) is None:
        return MlflowClient(tracking_uri=settings.tracking_uri)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "the folder of the MLflow database cannot be written to", str(folder))
    with _alone_in(folder):
        return MlflowClient(tracking_uri=settings.tracking_uri)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds an advisory lock on the folder itself: no file is left, and a process that dies lets go."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# MLflow's pages then show runs with their metrics and models, not traces and prompts.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


def _experiment(client: MlflowClient, settings: Settings) -> str:
    """The experiment's id, made if there is none; another process may make it at the same moment."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(settings.experiment)
    if found is None:
        try:
            return client.create_experiment(
                settings.experiment, artifact_location=settings.artifact_location, tags=_EXPERIMENT_TAGS
            )
        except MlflowException as error:
            found = client.get_experiment_by_name(settings.experiment)
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                raise
    if found.lifecycle_stage != "active":
        raise ValueError(f"experiment {settings.experiment!r} was deleted in MLflow: restore it or give another name")
    return found.experiment_id


def _tag_entities(tags: Mapping[str, str]) -> list:
    from mlflow.entities import RunTag

    return [RunTag(name, value) for name, value in tags.items()]
