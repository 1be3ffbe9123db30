"""One parent run for each pipeline run, made exactly once by whichever of its pods comes first.

MLflow gives runs no unique key, and the pods' clocks differ, so electing the oldest of several parents is unsound: a
pod may already have nested its run under another. The server does keep the names of registered models unique, in
every database it supports, so a registered model named for the job serves as a lock: creating it is taking the lock.
Its holder looks again for the parent, makes it if there is none, and deletes the lock.

A holder that dies leaves the lock. Whoever has waited `STALE_SECONDS` of its own clock for one lock goes for the next
*generation* of it, a new name, so that of all who lost patience exactly one wins too; deleting the old lock to retake
it would let two in. A holder that was slow itself steps back: it makes no parent later than `HOLD_SECONDS` after it
took the lock, and one request (at most `MLFLOW_HTTP_REQUEST_TIMEOUT`, 15 s) fits into the rest.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kfp_methods.tracking.stale import TASK

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

JOB, ROLE, INPUTS = "kfp.run_id", "kfp_methods.role", "kfp_methods.inputs"
PARENT = "mlflow.parentRunId"
STALE_SECONDS, HOLD_SECONDS = 22.0, 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 2.0
_LOCK_PREFIX = "kfp-methods-lock-"


def parent_of_job(client: MlflowClient, experiment_id: str, job: str, create: Callable[[], str]) -> str:
    """The id of the job's parent run in that experiment; `create` makes it when it is this pod's turn."""
    generation, waiting_since, pause = 0, time.monotonic(), _FIRST_PAUSE
    while True:
        if found := find_parent(client, experiment_id, job):
            return found
        taken_at = time.monotonic()
        if _take(client, lock := _lock_name(experiment_id, job, generation)):
            if parent := _make_under_lock(client, experiment_id, job, create, taken_at):
                _release(client, *(_lock_name(experiment_id, job, g) for g in range(generation)), lock)
                return parent
        elif time.monotonic() - waiting_since > STALE_SECONDS:
            generation, waiting_since = generation + 1, time.monotonic()
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (spreads the pods out)
        pause = min(2 * pause, _LONGEST_PAUSE)


def find_parent(client: MlflowClient, experiment_id: str, job: str) -> str:
    """The id of the job's parent run, or "" while there is none."""
    wanted = f"tags.`{JOB}` = '{job}' AND tags.`{ROLE}` = 'job'"
    return min((run.info.run_id for run in client.search_runs([experiment_id], wanted)), default="")


def reopen_parent(client: MlflowClient, parent_id: str) -> None:
    """A pod starts: the job is running (again)."""
    client.update_run(parent_id, status="RUNNING")


def close_parent(client: MlflowClient, experiment_id: str, parent_id: str) -> None:
    """Ends the job's run unless one of its pods' runs is still going.

    Pods finish independently, so each first ends its own run and then reads all of them: whoever is last to end
    its own sees all the others ended, whatever the clocks say. A pod that vanished without a word leaves its run,
    and so the job's, RUNNING, which is what is known of it.
    """
    of_the_job = f"tags.`{PARENT}` = '{parent_id}'"
    if client.search_runs([experiment_id], f"{of_the_job} AND attributes.status = 'RUNNING'", max_results=1):
        return  # all but the last pod of a large job stop here, without reading every run
    client.set_terminated(parent_id, job_status(_search(client, experiment_id, of_the_job)))


def job_status(runs: Iterator[Run]) -> str:
    """FINISHED, FAILED or KILLED, of runs that have ended.

    A retried pod has a run for each attempt, all of one task: one that succeeded makes up for the others. Where the
    task is not known, equal inputs stand for it; a run whose pod was killed does not have even these.
    """
    attempts: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        tags = run.data.tags
        attempts[tags.get(TASK) or tags.get(INPUTS, run.info.run_id)].add(run.info.status)
    lost = [states for states in attempts.values() if "FINISHED" not in states]
    if any("FAILED" in states for states in lost):
        return "FAILED"
    return "KILLED" if lost else "FINISHED"


def _search(client: MlflowClient, experiment_id: str, wanted: str) -> Iterator[Run]:
    page = None
    while page is None or page.token:
        token = page.token if page is not None else None
        page = client.search_runs([experiment_id], wanted, page_token=token)
        yield from page


def _make_under_lock(
    client: MlflowClient, experiment_id: str, job: str, create: Callable[[], str], taken_at: float
) -> str:
    """The parent, or "" when this holder was too slow: it then leaves the lock to go stale, as after any failure."""
    if found := find_parent(client, experiment_id, job):
        return found
    return create() if time.monotonic() - taken_at < HOLD_SECONDS else ""


def _lock_name(experiment_id: str, job: str, generation: int) -> str:
    return f"{_LOCK_PREFIX}{hashlib.sha256(f'{experiment_id}/{job}'.encode()).hexdigest()[:24]}-{generation}"


def _take(client: MlflowClient, lock: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(lock, description="A lock that kfp-methods holds for a moment; not a model.")
    except MlflowException as error:
        # "does not exist": the server met the name, looked it up for its message, and its holder had let go of it.
        if error.error_code in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            return False
        raise
    return True


def _release(client: MlflowClient, *locks: str) -> None:
    """Only once the parent exists: whoever takes the lock afterwards finds it."""
    from mlflow.exceptions import MlflowException

    for lock in locks:
        try:
            client.delete_registered_model(lock)
        except MlflowException:
            continue  # gone already, or left behind for an administrator: the parent is found before any lock is tried
