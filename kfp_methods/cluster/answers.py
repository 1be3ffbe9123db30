"""What a server answered, as plain data.

`link` in the functions below makes the URL of a page of the user interface (Connection.link).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

TERMINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"})

Link = Callable[[str], str]


@dataclass(frozen=True)
class UploadedVersion:
    """A pipeline's version on the server; `created` is False where the same content was there already."""

    pipeline_id: str
    version_id: str
    version_name: str
    created: bool
    url: str


@dataclass(frozen=True)
class Submitted:
    """A run that the server has accepted, with the pages that show it and its experiment."""

    run_id: str
    run_url: str
    experiment_id: str
    experiment_url: str


@dataclass(frozen=True)
class Schedule:
    """A recurring run: `cron` in KFP's six fields, or `interval_seconds`."""

    id: str
    name: str
    cron: str | None
    interval_seconds: int | None
    enabled: bool
    max_concurrency: int
    no_catchup: bool
    experiment_id: str
    created_at: datetime | None
    error: str | None
    url: str


@dataclass(frozen=True)
class TaskState:
    """One task of a run; `state` is KFP's name for it, such as RUNNING."""

    name: str
    state: str
    start: datetime | None
    end: datetime | None
    error: str | None


@dataclass(frozen=True)
class RunSummary:
    """One line in a list of runs."""

    id: str
    name: str
    state: str
    created_at: datetime | None
    finished_at: datetime | None
    experiment_id: str
    url: str


@dataclass(frozen=True)
class RunStatus:
    """A run and its tasks in the order in which they started; KFP's driver pods only where they failed."""

    id: str
    name: str
    state: str
    error: str | None
    tasks: list[TaskState]
    url: str

    @property
    def finished(self) -> bool:
        """Whether the state will not change any more."""
        return self.state in TERMINAL_STATES

    @property
    def succeeded(self) -> bool:
        return self.state == "SUCCEEDED"


def schedule(recurring: Any, link: Link) -> Schedule:
    """From a V2beta1RecurringRun."""
    trigger = recurring.trigger
    cron = trigger.cron_schedule if trigger else None
    period = trigger.periodic_schedule if trigger else None
    return Schedule(
        id=recurring.recurring_run_id,
        name=recurring.display_name,
        cron=cron.cron if cron else None,
        interval_seconds=int(period.interval_second) if period else None,
        enabled=(recurring.status or recurring.mode) in ("ENABLED", "ENABLE"),
        max_concurrency=int(recurring.max_concurrency or 1),
        no_catchup=bool(recurring.no_catchup),
        experiment_id=recurring.experiment_id,
        created_at=_time(recurring.created_at),
        error=recurring.error.message if recurring.error else None,
        url=link(f"recurringrun/details/{recurring.recurring_run_id}"),
    )


def run_summary(run: Any, link: Link) -> RunSummary:
    """From a V2beta1Run."""
    return RunSummary(
        id=run.run_id,
        name=run.display_name,
        state=_state(run.state),
        created_at=_time(run.created_at),
        finished_at=_time(run.finished_at),
        experiment_id=run.experiment_id,
        url=link(f"runs/details/{run.run_id}"),
    )


def run_status(run: Any, link: Link) -> RunStatus:
    """From a V2beta1Run that carries its details."""
    details = run.run_details.task_details if run.run_details else None
    tasks = _tasks(details or [])
    return RunStatus(
        id=run.run_id,
        name=run.display_name,
        state=_state(run.state),
        error=_run_error(run, tasks),
        tasks=tasks,
        url=link(f"runs/details/{run.run_id}"),
    )


def _tasks(details: list[Any]) -> list[TaskState]:
    names = {task.display_name for task in details}
    started = sorted(details, key=_started)
    tasks = [
        TaskState(
            name=task.display_name or task.task_id,
            state=_state(task.state),
            start=_time(task.start_time),
            end=_time(task.end_time),
            error=task.error.message if task.error else None,
        )
        for task in started
    ]
    return [task for task in tasks if task.state == "FAILED" or not _is_bookkeeping(task.name, names)]


def _started(task: Any) -> float:
    """Seconds since 1970; tasks that have not started come last."""
    moment = _time(task.start_time) or _time(task.create_time)
    return moment.timestamp() if moment else float("inf")


def _is_bookkeeping(name: str, names: set[str | None]) -> bool:
    """KFP lists beside a task the pod that prepares it (`x-driver`), the one that runs it, and the DAG."""
    return name in ("root", "executor", "driver") or (
        name.endswith("-driver") and name.removesuffix("-driver") in names | {"root"}
    )


def _state(state: str | None) -> str:
    return "PENDING" if state in (None, "RUNTIME_STATE_UNSPECIFIED") else str(state)


def _time(moment: datetime | None) -> datetime | None:
    """KFP writes the years 1 and 1970 for a time that is not known yet."""
    return moment if moment is not None and moment.year > 1970 else None


def _run_error(run: Any, tasks: list[TaskState]) -> str | None:
    """The run's own error, else the last in its history, else which tasks failed."""
    errors = [run.error, *(entry.error for entry in reversed(run.state_history or []))]
    if message := next((error.message for error in errors if error and error.message), None):
        return str(message)
    failed = [f"{task.name}: {task.error}" if task.error else task.name for task in tasks if task.state == "FAILED"]
    return f"failed tasks: {', '.join(failed)}" if failed and run.state == "FAILED" else None
