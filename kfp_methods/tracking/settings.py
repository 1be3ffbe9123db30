"""Which MLflow, which run: read from the environment that Kubeflow, an administrator or the user sets."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kfp_methods.tracking import stale
from kfp_methods.tracking.server import VARIABLE, check_uri

_SQLITE = "sqlite:///"
_DATABASE, _ARTIFACTS = "mlflow.db", "artifacts"

# MLflow reads these from the process's environment. One request is short and not repeated by MLflow, because the
# tracker repeats it itself and knows until when; a value that the administrator set stays.
_QUIET_AND_BOUNDED = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_UV_AUTO_DETECT": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


@dataclass(frozen=True)
class Settings:
    """Everything about the run that is known before it starts.

    run_id: the run that Kubeflow's MLflow plugin made for this task, or "".
    job: Kubeflow's id of the pipeline run that this task belongs to, or "".
    task: the task within it, the same for each attempt at it, or "".
    patient: a server that has not answered yet is waited for as long as one that has: in a pod, or by request.
    """

    method: str
    version: str
    experiment: str
    tracking_uri: str
    run_id: str
    job: str
    task: str
    pipeline: str
    pod: str
    namespace: str
    image: str
    commit: str
    workspace: str
    patient: bool

    @classmethod
    def read(
        cls, *, method: str, version: str, experiment: str, environ: Mapping[str, str], subject: str = ""
    ) -> Settings:
        """Without MLFLOW_TRACKING_URI, MLflow is a database in the working directory.

        experiment: what the user asked for; else MLFLOW_EXPERIMENT_NAME counts, then `subject`, the method whose
            results these are, then `method`.

        Raises:
            InputError: MLflow cannot use the tracking URI.
        """
        tracking_uri = environ.get(VARIABLE, "") or local_tracking_uri(Path.cwd())
        check_uri(tracking_uri, environ)
        return cls(
            method=method,
            version=version,
            experiment=experiment or environ.get("MLFLOW_EXPERIMENT_NAME", "") or subject or method,
            tracking_uri=tracking_uri,
            run_id=environ.get("MLFLOW_RUN_ID", ""),
            job=re.sub(r"[^\w.\-]", "_", environ.get("KFP_RUN_ID", ""))[:200],
            task=stale.task_of(environ.get(stale.NODE_VARIABLE, "")),
            pipeline=environ.get("KFP_PIPELINE_NAME", ""),
            pod=environ.get("KFP_POD_NAME", ""),
            namespace=environ.get("KFP_NAMESPACE", ""),
            image=environ.get("KFP_METHODS_IMAGE", ""),
            commit=environ.get("KFP_METHODS_REVISION", ""),
            workspace=environ.get("MLFLOW_WORKSPACE", ""),
            patient=any(environ.get(name) for name in ("KFP_POD_NAME", "KFP_METHODS_TRACKING_SECONDS")),
        )

    @property
    def local_folder(self) -> Path | None:
        """The folder of a local SQLite database, None for any other MLflow."""
        if not self.tracking_uri.startswith(_SQLITE):
            return None
        return Path(self.tracking_uri.removeprefix(_SQLITE)).absolute().parent

    @property
    def artifact_location(self) -> str | None:
        """Where a new experiment keeps its files: beside a local database, else where the server says."""
        folder = self.local_folder
        return (folder / _ARTIFACTS).as_uri() if folder else None

    def run_url(self, experiment_id: str, run_id: str) -> str:
        """The run's page on a server, else the database's URI."""
        if not self.tracking_uri.startswith(("http://", "https://")):
            return self.tracking_uri
        workspace = f"?workspace={quote(self.workspace, safe='')}" if self.workspace else ""
        return f"{self.tracking_uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}{workspace}"


def local_tracking_uri(folder: Path) -> str:
    """The URI of the database `mlflow.db` in `folder`; experiments made there keep their files beside it."""
    return f"{_SQLITE}{Path(folder).absolute() / _DATABASE}"


def quieten_mlflow() -> None:
    """To be called before MLflow's import: short requests, no telemetry, and nothing written to stdout."""
    for name, value in _QUIET_AND_BOUNDED.items():
        os.environ.setdefault(name, value)
    # Not a preference: standard output carries the command line's JSON.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    for name in ("alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)


def git_commit() -> str:
    """The commit of the checkout that this package runs from, or ""."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return ""
    from mlflow.utils.git_utils import get_git_commit

    return get_git_commit(str(checkout)) or ""
