"""`kfp-methods submit`, `schedule` and their kin: a method on a Kubeflow server."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from kfp_methods.cli.flags import FILE_OPTION, REPLICATES_OPTION, MethodGroup, seeds
from kfp_methods.cli.kubeflow import PLACEMENT_OPTIONS, placement_from
from kfp_methods.errors import ExitCode

if TYPE_CHECKING:
    from kfp_methods.cluster import Cluster, RunStatus, UploadedVersion
    from kfp_methods.contract import Inputs, Method

_CONNECTION_OPTIONS: list[click.Parameter] = [
    click.Option(["--endpoint"], envvar="KFP_ENDPOINT", show_envvar=True, help="URL of Kubeflow Pipelines."),
    click.Option(
        ["--namespace"], envvar="KFP_NAMESPACE", show_envvar=True, help="Your profile's namespace, if it has profiles."
    ),
    click.Option(
        ["--token-file"], type=click.Path(path_type=Path), help="File with a bearer token (or set KFP_TOKEN)."
    ),
    click.Option(
        ["--ca"], type=click.Path(path_type=Path), help="PEM file of the authority that signed its certificate."
    ),
    click.Option(
        ["--timeout"],
        type=click.FloatRange(min=0.1),
        default=30,
        show_default=True,
        help="Seconds to wait for an answer.",
    ),
]
_RUN_OPTIONS: list[click.Parameter] = [
    *_CONNECTION_OPTIONS,
    FILE_OPTION,
    REPLICATES_OPTION,
    click.Option(["--gpus"], type=click.IntRange(0, 64), default=0, show_default=True, help="GPUs of each pod."),
    click.Option(
        ["--gpu-type"], default="nvidia.com/gpu", show_default=True, help="Kubernetes resource name of the GPU."
    ),
    click.Option(["--cpu"], help="CPU request of each pod.  [default: the method's]"),
    click.Option(["--memory"], help="Memory request of each pod.  [default: the method's]"),
    click.Option(["--image"], help="Image of the pods.  [default: the group's]"),
    click.Option(["--service-account"], help="Kubernetes service account of the pods."),
    *PLACEMENT_OPTIONS,
]


def _submit(method: Method[Any, Any, Any], inputs: Inputs, settings: dict[str, Any]) -> None:
    arguments = _arguments(method, inputs, settings)
    cluster = _cluster(settings)
    version = _upload(cluster, method, settings)
    run = cluster.submit(
        version,
        name=settings["run_name"] or method.name,
        experiment=inputs.experiment or method.name,
        arguments=arguments,
        service_account=settings["service_account"],
    )
    click.echo(f"Run:        {run.run_url}\nExperiment: {run.experiment_url}\nRun id:     {run.run_id}")
    if settings["follow"]:
        sys.exit(_follow(cluster, run.run_id))


def _schedule(method: Method[Any, Any, Any], inputs: Inputs, settings: dict[str, Any]) -> None:
    from kfp_methods.cluster import package

    arguments = _arguments(method, inputs, settings)
    package.trigger(settings["cron"], settings["every"])
    cluster = _cluster(settings)
    version = _upload(cluster, method, settings)
    made = cluster.schedule(
        version,
        name=settings["schedule_name"] or method.name,
        experiment=inputs.experiment or method.name,
        arguments=arguments,
        cron=settings["cron"],
        interval_seconds=settings["every"],
        service_account=settings["service_account"],
    )
    click.echo(
        f"Schedule:   {made.url}\nTimes:      {made.cron or f'every {made.interval_seconds} s'}\nId:         {made.id}"
    )


def _schedules(**settings: Any) -> None:
    """The schedules on a Kubeflow server."""
    table = Table("id", "name", "times", "state")
    for found in _cluster(settings).schedules():
        table.add_row(
            found.id, found.name, found.cron or f"every {found.interval_seconds} s", "on" if found.enabled else "off"
        )
    Console().print(table)


def _unschedule(schedule: str, disable: bool, **settings: Any) -> None:
    """Deletes a SCHEDULE, given by id or name; its runs stay."""
    removed = _cluster(settings).unschedule(schedule, disable=disable)
    click.echo(f"{'disabled' if disable else 'deleted'}: {removed.name} ({removed.id})")


def _runs(experiment: str | None, limit: int, **settings: Any) -> None:
    """The latest runs on a Kubeflow server."""
    table = Table("id", "name", "state", "started")
    for found in _cluster(settings).runs(experiment, limit):
        started = f"{found.created_at:%Y-%m-%d %H:%M}" if found.created_at else ""
        table.add_row(found.id, found.name, found.state, started)
    Console().print(table)


def _status(run: str, follow: bool, **settings: Any) -> None:
    """The state of a RUN (its id) and of its tasks."""
    cluster = _cluster(settings)
    if follow:
        sys.exit(_follow(cluster, run))
    status = cluster.status(run)
    _print_status(status)
    click.echo(status.url)


def _cluster(settings: dict[str, Any]) -> Cluster:
    from kfp_methods.cluster import Cluster, Connection

    names = ("endpoint", "namespace", "token_file", "ca", "timeout")
    return Cluster(Connection.from_environment(**{name: settings[name] for name in names}))


def _upload(cluster: Cluster, method: Method[Any, Any, Any], settings: dict[str, Any]) -> UploadedVersion:
    from kfp_methods import kubeflow

    pipeline = kubeflow.replicated_pipeline(method, placement_from(settings), settings["image"])
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"{method.name}.yaml"
        kubeflow.compile_pipeline(pipeline, package)
        version = cluster.upload(package, name=method.name, description=pipeline.description or "")
    click.echo(f"Pipeline:   {version.url} ({'uploaded' if version.created else 'already there'})")
    return version


def _arguments(method: Method[Any, Any, Any], inputs: Inputs, settings: dict[str, Any]) -> dict[str, Any]:
    arguments = inputs.parameters()
    seed = arguments.pop("seed")
    resources = {name: settings[name] for name in ("gpus", "gpu_type", "cpu", "memory") if settings[name] is not None}
    return {"seeds": seeds(seed, settings["replicates"]), **arguments, **resources}


def _follow(cluster: Cluster, run_id: str) -> int:
    status = cluster.follow(run_id, on_change=_print_status)
    if not status.finished:
        click.echo(f"not followed any more; the run goes on: {status.url}", err=True)
        return int(ExitCode.TERMINATED)
    click.echo(f"{status.state}: {status.url}")
    return 0 if status.succeeded else 1


def _print_status(status: RunStatus) -> None:
    click.echo(f"{status.name}: {status.state}{f' ({status.error})' if status.error else ''}")
    for task in status.tasks:
        click.echo(f"  {task.name:<24} {task.state}{f'  {task.error}' if task.error else ''}")


def _reported(function: Callable[..., None]) -> Callable[..., None]:
    """Turns a refusal by the server into one line and exit code 1."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from kfp_methods.cluster import ClusterError

        try:
            function(*args, **kwargs)
        except ClusterError as error:
            click.echo(str(error), err=True)
            sys.exit(ExitCode.FAULT)

    return wrapped


def _command(name: str, function: Callable[..., None], *parameters: click.Parameter) -> click.Command:
    return click.Command(
        name, callback=_reported(function), help=function.__doc__, params=[*parameters, *_CONNECTION_OPTIONS]
    )


_SUBMIT_OPTIONS: list[click.Parameter] = [
    *_RUN_OPTIONS,
    click.Option(["--run-name"], help="Name of the run.  [default: the method's]"),
    click.Option(["--follow"], is_flag=True, help="Show the tasks' states until the end; exit with the run's outcome."),
]
_SCHEDULE_OPTIONS: list[click.Parameter] = [
    *_RUN_OPTIONS,
    click.Option(["--cron"], help="Six fields, seconds first, such as '0 0 3 * * *' for 3 o'clock every night."),
    click.Option(["--every"], type=click.IntRange(min=1), help="Seconds between starts, instead of --cron."),
    click.Option(["--schedule-name"], help="Name of the schedule.  [default: the method's]"),
]

COMMANDS = {
    "submit": MethodGroup("submit", _reported(_submit), _SUBMIT_OPTIONS, "Starts a run on a Kubeflow server."),
    "schedule": MethodGroup(
        "schedule", _reported(_schedule), _SCHEDULE_OPTIONS, "Starts runs at the times of a cron expression."
    ),
    "schedules": _command("schedules", _schedules),
    "unschedule": _command(
        "unschedule",
        _unschedule,
        click.Argument(["schedule"]),
        click.Option(["--disable"], is_flag=True, help="Stop it, but keep it."),
    ),
    "runs": _command(
        "runs",
        _runs,
        click.Option(["--experiment"], help="Only runs of this experiment."),
        click.Option(["--limit"], default=20, show_default=True),
    ),
    "status": _command(
        "status",
        _status,
        click.Argument(["run"]),
        click.Option(["--follow"], is_flag=True, help="Until the run has ended."),
    ),
}
