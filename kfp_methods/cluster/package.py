"""What is sent to be run: a compiled package, its arguments, its trigger; checked before anything leaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kfp_methods.cluster.cron import kfp_cron
from kfp_methods.errors import InputError, Problem


def required(field: str, value: str, remedy: str) -> str:
    """The text; raises InputError where it is blank."""
    if not value.strip():
        raise InputError(Problem(field, value, "is empty", remedy))
    return value


def package_digest(package: Path) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a compiled package."""
    return hashlib.sha256(_package_bytes(package)).hexdigest()[:12]


def package_spec(package: Path) -> dict[str, Any]:
    """The pipeline's specification, with the platform's where there is one, in the form of KFP's API."""
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(_package_bytes(package)) if document]
    except yaml.YAMLError:
        documents = []
    if not documents or not isinstance(documents[0], dict) or not {"pipelineInfo", "root"} <= documents[0].keys():
        raise InputError(
            Problem("package", str(package), "is not a compiled pipeline", "Make one with kfp-methods compile")
        )
    if len(documents) == 1:
        return documents[0]
    return {"pipeline_spec": documents[0], "platform_spec": documents[1]}


def set_caching(spec: dict[str, Any], enabled: bool) -> None:
    """In place, in every DAG: kfp.Client reaches only the outermost, not the tasks of a ParallelFor."""
    inner = spec.get("pipeline_spec", spec)
    for component in (inner["root"], *inner.get("components", {}).values()):
        for task in component.get("dag", {}).get("tasks", {}).values():
            task.setdefault("cachingOptions", {})["enableCache"] = enabled


def parameters(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments that are not None; raises InputError for each that is not JSON."""
    given = {name: value for name, value in arguments.items() if value is not None}
    problems = []
    for name, value in given.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            remedy = "Give a finite number, a text, true or false, or a list or mapping of these"
            problems.append(Problem(name, value, "cannot be sent as JSON", remedy))
    if problems:
        raise InputError(problems)
    return given


def trigger(cron: str | None, every: int | None) -> Any:
    """A V2beta1Trigger from exactly one of the two, `every` in seconds; raises InputError."""
    import kfp_server_api as server

    if cron is not None and every is not None:
        raise InputError(Problem("cron", cron, "excludes every, which is given too", "Give one of them"))
    if cron is not None:
        return server.V2beta1Trigger(cron_schedule=server.V2beta1CronSchedule(cron=kfp_cron(cron)))
    if every is None:
        raise InputError(Problem("cron", None, "is missing, and so is every", "Give one of them"))
    if every < 1:
        raise InputError(Problem("every", every, "is not positive", "Give whole seconds, such as 3600"))
    period = server.V2beta1PeriodicSchedule(interval_second=str(every))
    return server.V2beta1Trigger(periodic_schedule=period)


def _package_bytes(package: Path) -> bytes:
    if package.suffix not in (".yaml", ".yml"):
        remedy = "Give a compiled pipeline (kfp-methods compile)"
        raise InputError(Problem("package", str(package), "is not a YAML file", remedy))
    try:
        return package.read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(Problem("package", str(package), problem, "Give a compiled pipeline's path")) from None
