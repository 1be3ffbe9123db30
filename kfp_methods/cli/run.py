"""`kfp-methods run` and `check`: a method on this machine."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_methods.cli.flags import FILE_OPTION, REPLICATES_OPTION, RUNS_FOLDER, MethodGroup, seeds
from kfp_methods.errors import InputError, Problem
from kfp_methods.standby import Standby

if TYPE_CHECKING:
    from kfp_methods.contract import Inputs, Method
    from kfp_methods.local import LocalRun

_SUFFIXES = {"HTML": ".html", "Metrics": ".json", "ClassificationMetrics": ".json", "Artifact": ".json"}


def _run(method: Method[Any, Any, Any], inputs: Inputs, settings: dict[str, Any]) -> None:
    from kfp_methods.cli import summary

    started = time.monotonic()
    environment = _tracking(_made(settings["output"]))
    standby = click.get_current_context().find_object(Standby)
    ended = _run_pipeline(method, inputs, settings, environment, standby)
    result = summary.of(method, inputs, ended, time.monotonic() - started, _link_outputs(method, ended))
    if settings["json"]:
        click.echo(json.dumps(result, indent=1, allow_nan=False))
    else:
        summary.show(result, ended)
    gc.freeze()  # the interpreter ends without looking through kfp's objects once more
    sys.exit(ended.exit_code)


def _run_pipeline(
    method: Method[Any, Any, Any],
    inputs: Inputs,
    settings: dict[str, Any],
    environment: dict[str, str],
    standby: Standby | None,
) -> LocalRun:
    from kfp_methods import kubeflow, local

    root: Path = settings["output"]
    docker = settings["runner"] == "docker"
    arguments = _with_local_files(method, inputs, root.resolve() if docker else None)
    placement = kubeflow.Placement(retries=0)
    replicates: int = settings["replicates"]
    if replicates == 1:
        pipeline = kubeflow.single_pipeline(method, placement, settings["image"])
    else:
        pipeline = kubeflow.replicated_pipeline(method, placement, settings["image"])
        seed = arguments.pop("seed")
        arguments["seeds"] = seeds(seed, replicates)
    return local.run_pipeline(
        pipeline,
        arguments,
        root=root,
        runner=settings["runner"],
        network=settings["docker_network"],
        environment=environment,
        verbose=settings["verbose"],
        standby=standby,
    )


def _check(method: Method[Any, Any, Any], inputs: Inputs, settings: dict[str, Any]) -> None:
    from kfp_methods.context import Context

    with tempfile.TemporaryDirectory() as scratch:
        method.load(inputs, Context(Path(scratch), inputs.device))
    click.echo(f"{method.name}: the inputs are valid ({'embedded sample' if inputs.uses_sample else 'your data'})")


def _tracking(root: Path) -> dict[str, str]:
    import os

    from kfp_methods.tracking import local_tracking_uri

    if os.environ.get("MLFLOW_TRACKING_URI"):
        return {}
    return {"MLFLOW_TRACKING_URI": local_tracking_uri(root.resolve())}


def _with_local_files(method: Method[Any, Any, Any], inputs: Inputs, mounted: Path | None) -> dict[str, Any]:
    """The pipeline's arguments: local paths absolute, and copied below `mounted` where a container sees only that."""
    arguments = inputs.parameters()
    for kind in method.inputs.kinds().values():
        uri = arguments.get(kind.parameter_name) if kind.is_artifact else None
        if not uri or "://" in uri or uri.startswith(("runs:/", "models:/")):
            continue
        path = Path(uri).expanduser().absolute()
        arguments[kind.parameter_name] = str(path if mounted is None else _copy(path, mounted, kind.parameter_name))
    return arguments


def _copy(path: Path, mounted: Path, field: str) -> Path:
    if not path.exists():
        raise InputError(Problem(field, str(path), "there is no such file", "Give the path of an existing file"))
    target = Path(tempfile.mkdtemp(prefix="inputs-", dir=mounted)) / path.name
    return Path(shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target))


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem, remedy = f"cannot be made ({error.strerror})", "Give a folder that you may write to"
        raise InputError(Problem("output", str(folder), problem, remedy)) from None
    return folder


def _link_outputs(method: Method[Any, Any, Any], ended: LocalRun) -> dict[str, str]:
    """Links the last task's outputs into the run's folder under names that other programs know."""
    from kfp_methods import catalogue

    if not ended.summaries:
        return {}
    last = ended.summaries[-1]
    kinds = (method if last["method"] == method.name else catalogue.load(last["method"])).outputs.kinds()
    named = {}
    for name, path in last["outputs"].items():
        kind = kinds[name]
        suffix = f".{kind.format}" if kind.kfp_type == "Dataset" else _SUFFIXES.get(kind.kfp_type, "")
        link = ended.folder / f"{name}{suffix}"
        if kind.is_artifact:
            link.symlink_to(Path(path).relative_to(ended.folder))
            named[name] = str(link)
        else:
            named[name] = path
    return named


_RUN_OPTIONS: list[click.Parameter] = [
    FILE_OPTION,
    REPLICATES_OPTION,
    click.Option(
        ["--runner"],
        type=click.Choice(["subprocess", "docker"]),
        default="subprocess",
        show_default=True,
        help="In this Python environment, or in the method's image.",
    ),
    click.Option(["--image"], help="Image for --runner docker.  [default: the group's]"),
    click.Option(
        ["--docker-network"],
        default="none",
        show_default=True,
        help="Network of --runner docker, such as host for an MLflow server on this machine.",
    ),
    click.Option(
        ["--output"],
        type=click.Path(path_type=Path, file_okay=False),
        default=RUNS_FOLDER,
        show_default=True,
        help="Folder for outputs and the local MLflow database.",
    ),
    click.Option(["--json"], is_flag=True, help="One machine-readable summary on standard output."),
    click.Option(["--verbose"], is_flag=True, help="Show kfp.local's own log too."),
]


COMMANDS = {
    "run": MethodGroup(
        "run", _run, _RUN_OPTIONS, "Runs a method on this machine; without data of yours, on its embedded sample."
    ),
    "check": MethodGroup(
        "check", _check, [FILE_OPTION], "Validates a method's inputs, data included, without running it."
    ),
}
