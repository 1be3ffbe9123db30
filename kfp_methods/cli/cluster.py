"""`kfp-methods submit`, `schedule` and their kin: a method on a Kubeflow server."""

from __future__ import annotations

import functools
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_methods.cli.flags import FILE_OPTION, REPLICATES_OPTION, MethodGroup, seeds
from kfp_methods.cli.kubeflow import PLACEMENT_OPTIONS, check_image, placement_from
from kfp_methods.cli.text import cell, console, print_table, printable
from kfp_methods.errors import ExitCode

if TYPE_CHECKING:
    from kfp_methods.cluster import Cluster, RunStatus, Schedule, UploadedVersion
    from kfp_methods.contract import Inputs
    from kfp_methods.kubeflow import AnyMethod

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
    click.Option(["--cpu"], help="CPU request of each pod, such as 2 or 500m.  [default: the method's]"),
    click.Option(["--memory"], help="Memory of each pod, request and limit, such as 8Gi.  [default: the method's]"),
    click.Option(["--image"], help="Image of the pods.  [default: the group's]"),
    click.Option(["--service-account"], help="Kubernetes service account of the pods."),
    *PLACEMENT_OPTIONS,
]


def _submit(method: AnyMethod, inputs: Inputs, settings: dict[str, Any]) -> None:
    arguments = _arguments(method, inputs, settings)
    cluster = _cluster(settings)
    run = cluster.submit(**_job(cluster, method, inputs, arguments, settings, settings["run_name"]))
    click.echo(f"Run:        {run.run_url}\nExperiment: {run.experiment_url}\nRun id:     {run.run_id}")
    if settings["follow"]:
        sys.exit(_follow(cluster, run.run_id))


def _schedule(method: AnyMethod, inputs: Inputs, settings: dict[str, Any]) -> None:
    from kfp_methods.cluster import package

    arguments = _arguments(method, inputs, settings)
    times = {"cron": settings["cron"], "every": settings["every"]}
    package.trigger(**times)
    cluster = _cluster(settings)
    name = settings["schedule_name"] or method.name
    if not settings["replace"]:
        cluster.require_free_schedule_name(name)
    job = _job(cluster, method, inputs, arguments, settings, name)
    made = cluster.schedule(**job, **times, replace=settings["replace"])
    click.echo(f"Schedule:   {made.url}\nTimes:      {_times(made)}\nId:         {made.id}")


def _job(
    cluster: Cluster,
    method: AnyMethod,
    inputs: Inputs,
    arguments: dict[str, Any],
    settings: dict[str, Any],
    name: str | None,
) -> dict[str, Any]:
    """What a run and a schedule have in common: the pipeline, uploaded where it is not there yet, and what it gets."""
    return {
        "pipeline": _upload(cluster, method, settings),
        "name": name or method.name,
        "experiment": inputs.experiment or method.name,
        "arguments": arguments,
        "service_account": settings["service_account"],
    }


def _schedules(**settings: Any) -> None:
    """The schedules on a Kubeflow server."""
    found = _cluster(settings).schedules()
    rows = [(each.id, each.name, _times(each), "on" if each.enabled else "off") for each in found]
    _print_table(("id", "name", "times", "state"), rows)


def _unschedule(schedule: str, disable: bool, **settings: Any) -> None:
    """Deletes a SCHEDULE, given by id or name; its runs stay."""
    removed = _cluster(settings).unschedule(schedule, disable=disable)
    click.echo(f"{'disabled' if disable else 'deleted'}: {removed.name} ({removed.id})")


def _runs(experiment: str | None, limit: int, **settings: Any) -> None:
    """The latest runs on a Kubeflow server."""
    found = _cluster(settings).runs(experiment, limit)
    started = [f"{each.created_at:%Y-%m-%d %H:%M}" if each.created_at else "" for each in found]
    rows = [(each.id, each.name, each.state, start) for each, start in zip(found, started, strict=True)]
    _print_table(("id", "name", "state", "started"), rows)


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


def _upload(cluster: Cluster, method: AnyMethod, settings: dict[str, Any]) -> UploadedVersion:
    from kfp_methods import kubeflow

    check_image(settings["image"] or kubeflow.default_image(method))
    pipeline = kubeflow.replicated_pipeline(method, placement_from(settings), settings["image"])
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"{method.name}.yaml"
        kubeflow.compile_pipeline(pipeline, package)
        version = cluster.upload(package, name=method.name, description=pipeline.description or "")
    click.echo(f"Pipeline:   {version.url} ({'uploaded' if version.created else 'already there'})")
    return version


def _arguments(method: AnyMethod, inputs: Inputs, settings: dict[str, Any]) -> dict[str, Any]:
    """The pipeline's arguments. Raises InputError for what no pod could use, all of it at once."""
    from kfp_methods.cluster import checks

    arguments = inputs.parameters()
    fields = [kind.parameter_name for kind in method.inputs.kinds().values() if kind.is_artifact]
    resources = {name: settings[name] for name in ("gpus", "gpu_type", "cpu", "memory") if settings[name] is not None}
    mounts = placement_from(settings).volumes.values()
    checks.check(
        checks.uri_problems({field: arguments.get(field, "") for field in fields}, mounts),
        checks.folder_problems({"checkpoints": arguments.get("checkpoints", "")}, mounts),
        checks.resource_problems(**resources),
        checks.name_problems(service_account=settings["service_account"]),
    )
    seed = arguments.pop("seed")
    return {"seeds": seeds(seed, settings["replicates"]), **arguments, **resources}


def _follow(cluster: Cluster, run_id: str) -> int:
    status = cluster.follow(run_id, on_change=_print_status)
    if not status.finished:
        click.echo(f"not followed any more; the run goes on: {status.url}", err=True)
        return 128 + signal.SIGINT
    click.echo(f"{status.state}: {status.url}")
    return 0 if status.succeeded else 1


def _print_status(status: RunStatus) -> None:
    click.echo(_line(f"{status.name}: {status.state}{f' ({status.error})' if status.error else ''}"))
    for task in status.tasks:
        click.echo(_line(f"  {task.name:<24} {task.state}{f'  {task.error}' if task.error else ''}"))


def _line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_table(console(), columns, [[cell(entry) for entry in row] for row in rows])


def _times(schedule: Schedule) -> str:
    return schedule.cron or f"every {schedule.interval_seconds} s"


def _reported(function: Callable[..., None]) -> Callable[..., None]:
    """Turns a refusal into one line: exit code 2 where the user can correct it, 1 where the server is unwell."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from kfp_methods.cluster import ClusterError

        try:
            function(*args, **kwargs)
        except ClusterError as error:
            click.echo(str(error), err=True)
            sys.exit(ExitCode.FAULT if error.transient else ExitCode.BAD_INPUT)

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
    click.Option(["--replace"], is_flag=True, help="Delete schedules of that name once the new one is there."),
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
        click.Option(
            ["--limit"], type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first."
        ),
    ),
    "status": _command(
        "status",
        _status,
        click.Argument(["run"]),
        click.Option(["--follow"], is_flag=True, help="Until the run has ended."),
    ),
}
