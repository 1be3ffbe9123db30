"""`kfp-methods run` and `check`: a method on this machine."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from kfp_methods.checkpoints import FOLDER_VARIABLE
from kfp_methods.cli.document import document, json_option
from kfp_methods.cli.flags import FILE_OPTION, REPLICATES_OPTION, RUNS_FOLDER, MethodGroup, seeds, was_given
from kfp_methods.cli.places import writing_to
from kfp_methods.errors import InputError, Problem
from kfp_methods.standby import Standby

if TYPE_CHECKING:
    from kfp_methods.contract import Inputs, Method
    from kfp_methods.local import LocalRun

_DOCKER_ONLY = ("image", "docker_network")
_IN_MLFLOW = ("runs:/", "models:/")


def _run(method: Method[Any, Any, Any], inputs: Inputs, settings: dict[str, Any]) -> None:
    from kfp_methods.cli import summary
    from kfp_methods.cli.outputs import linked

    started = time.monotonic()
    _refuse_unused(settings)
    root: Path = settings["output"]
    environment = _tracking(inputs, root) | _progress(settings, root)
    standby = click.get_current_context().find_object(Standby)
    with writing_to("output", root):
        root.mkdir(parents=True, exist_ok=True)
        ended = _run_pipeline(method, inputs, settings, environment, standby)
        outputs = linked(method, ended, replicated=settings["replicates"] > 1)
    result = summary.of(method, inputs, ended, time.monotonic() - started, outputs)
    if settings["as_json"]:
        click.echo(document(**result))
    else:
        summary.show(result, ended, logged=settings["runner"] == "subprocess")
    gc.freeze()  # the interpreter ends without looking through kfp's objects once more
    sys.exit(ended.exit_code)


def _progress(settings: dict[str, Any], root: Path) -> dict[str, str]:
    """A run that was interrupted goes on where it was when it is started again; a container's user owns no folder."""
    given = os.environ.get(FOLDER_VARIABLE) or settings["runner"] == "docker"
    return {} if given else {FOLDER_VARIABLE: str(root.resolve() / "checkpoints")}


def _refuse_unused(settings: dict[str, Any]) -> None:
    """Flags that would have no effect are a misunderstanding."""
    if settings["runner"] != "docker" and (unused := [name for name in _DOCKER_ONLY if was_given(name)]):
        problem, remedy = "has no effect without --runner docker", "Add --runner docker, or leave it out"
        raise InputError(Problem(name, settings[name], problem, remedy) for name in unused)
    if settings["replicates"] == 1 and was_given("replicates"):
        click.echo("replicates=1: this is one plain run; from 2 on the claims are pooled", err=True)


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

    environment = _tracking(inputs, settings["output"])
    in_mlflow = any(_names_mlflow(uri) for uri in _uris(inputs).values())
    if was_given("output") and not (in_mlflow and environment):
        why = "MLFLOW_TRACKING_URI is set" if in_mlflow else "no input is in MLflow, and nothing is written"
        click.echo(f"--output: not used, for {why}", err=True)
    if in_mlflow:
        from kfp_methods.tracking.settings import quieten_mlflow

        os.environ.update(environment)
        quieten_mlflow()
    with tempfile.TemporaryDirectory() as scratch:
        context = Context(Path(scratch), inputs.device)
        method.read(inputs, context)
    data = "sample" if inputs.uses_sample else "user"
    if settings["as_json"]:
        used: dict[str, Any] = {"data": data, "preset": inputs.preset, "inputs": inputs.parameters()}
        click.echo(document(method=method.name, **used, warnings=context.warnings))
        return
    click.echo(f"{method.name}: the inputs are valid ({'embedded sample' if data == 'sample' else 'your data'})")


def _tracking(inputs: Inputs, root: Path) -> dict[str, str]:
    """The environment that names the MLflow to use: nothing where it does so already, else the folder's database.

    Raises:
        InputError: MLFLOW_TRACKING_URI cannot be used, or inputs are to come from a database that is not there.
    """
    from kfp_methods.tracking import local_tracking_uri
    from kfp_methods.tracking.server import VARIABLE, check_uri

    if uri := os.environ.get(VARIABLE, ""):
        check_uri(uri, os.environ)
        return {}
    wanted = [(field, uri) for field, uri in _uris(inputs).items() if _names_mlflow(uri)]
    if wanted and not (root / "mlflow.db").exists():
        problem = f"there is no MLflow to read it from: no runs in {root}, and {VARIABLE} is not set"
        remedy = f"Set {VARIABLE}, or give --output the folder that the run had"
        raise InputError(Problem(field, uri, problem, remedy) for field, uri in wanted)
    if unusable := {"?", "%"} & set(str(root.resolve())):
        problem = f"has a {min(unusable)} in it, which means something else in the address of its MLflow database"
        raise InputError(Problem("output", str(root), problem, "Choose a folder without one"))
    return {VARIABLE: local_tracking_uri(root.resolve())}


def _uris(inputs: Inputs) -> dict[str, str]:
    """The URIs and paths that were given, by parameter name."""
    given = inputs.parameters()
    names = [kind.parameter_name for kind in inputs.kinds().values() if kind.is_artifact]
    return {name: uri for name in names if (uri := given.get(name))}


def _names_mlflow(uri: str) -> bool:
    return uri.startswith(_IN_MLFLOW)


def _with_local_files(method: Method[Any, Any, Any], inputs: Inputs, mounted: Path | None) -> dict[str, Any]:
    """The pipeline's arguments: local paths absolute, and copied below `mounted` where a container sees only that."""
    arguments = inputs.parameters()
    for name, uri in _uris(inputs).items():
        if uri.lower().startswith("file:///"):
            path = Path(unquote(urlsplit(uri).path))
        elif "://" in uri or _names_mlflow(uri):
            continue
        else:
            path = _expanded(name, uri)
        arguments[name] = str(path if mounted is None else _copy(path, mounted, name))
    return arguments


def _expanded(field: str, text: str) -> Path:
    with contextlib.suppress(RuntimeError):
        return Path(text).expanduser().absolute()
    raise InputError(Problem(field, text, "names a home folder that does not exist", "Write the whole path"))


def _copy(path: Path, mounted: Path, field: str) -> Path:
    if not path.exists():
        raise InputError(Problem(field, str(path), "there is no such file", "Give the path of an existing file"))
    target = Path(tempfile.mkdtemp(prefix="inputs-", dir=mounted)) / path.name
    return Path(shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target))


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
    json_option("seconds, data (sample or user)", "preset", "headline", "tables [{title, columns, rows}]", "metrics",
                "resources (peak memory)", "claims", "outputs (paths by name)",
                "replicates [{seed, exit_code, outputs}]", "folder", "mlflow", "warnings"),
    click.Option(
        ["--verbose"],
        is_flag=True,
        help="Show the log of kfp.local, which starts the tasks; without it, see kfp-local.log beside the outputs.",
    ),
]  # fmt: skip
_CHECK_OPTIONS: list[click.Parameter] = [
    FILE_OPTION,
    click.Option(
        ["--output"],
        type=click.Path(path_type=Path, file_okay=False),
        default=RUNS_FOLDER,
        show_default=True,
        help="Folder of local runs, in whose MLflow database runs:/ and models:/ are looked up.",
    ),
    json_option("data (sample or user)", "preset", "inputs (as they would be used)", "warnings"),
]

COMMANDS = {
    "run": MethodGroup(
        "run", _run, _RUN_OPTIONS, "Runs a method on this machine; without data of yours, on its embedded sample."
    ),
    "check": MethodGroup(
        "check", _check, _CHECK_OPTIONS, "Validates a method's inputs, data included, without running it."
    ),
}
