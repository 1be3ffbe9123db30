"""`kfp-methods list`, `show`, `doctor` and `ui`: looking, without running anything."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import click

from kfp_methods import catalogue
from kfp_methods.cli.document import document, json_option
from kfp_methods.cli.flags import RUNS_FOLDER, was_given
from kfp_methods.cli.text import cell, console, print_table
from kfp_methods.errors import InputError, Problem

_TRAINING_VIEW = "/#/experiments?workflowType=machine_learning"  # MLflow opens the one for traces and prompts else


def _list(group: str | None, tag: str | None, as_json: bool) -> None:
    """The methods, by group."""
    entries = catalogue.entries()
    _require("group", group, {entry.group for entry in entries})
    _require("tag", tag, {name for entry in entries for name in entry.tags})
    found = [e for e in entries if group in (None, e.group) and (tag is None or tag in e.tags)]
    if as_json:
        names = ("group", "title", "summary", "tags", "stability")
        methods = [{"method": e.name, **{name: getattr(e, name) for name in names}} for e in found]
        click.echo(document(methods=methods))
        return
    rows = [[cell(text) for text in (e.group, e.name, e.summary, e.stability)] for e in found]
    print_table(console(), ("group", "method", "what it does", "stability"), rows)


def _show(name: str, as_json: bool) -> None:
    """A method's inputs, outputs, claims, paper and the licence of its sample data."""
    from kfp_methods.docs import describe

    entry, method = catalogue.entry(name), catalogue.load(name)
    if not as_json:
        click.echo(describe(entry, method))
        return
    about = ("group", "title", "summary", "stability", "paper", "sample_data", "tags", "links")
    taken = ("kfp_type", "default", "presets", "choices", "description")
    metrics = method.outputs.model_fields["metrics"].annotation
    shown: dict[str, Any] = {
        "inputs": [
            {"name": kind.parameter_name, **{part: getattr(kind, part) for part in taken}}
            for kind in method.inputs.kinds().values()
        ],
        "outputs": [vars(kind) for kind in method.outputs.kinds().values()],
        "metrics": [
            {"name": name, "description": info.description or ""}
            for name, info in getattr(metrics, "model_fields", {}).items()
        ],
        "claims": [
            {"id": c.id, "statement": c.statement, "paper": c.paper, "measure": c.measure} for c in method.claims
        ],
    }
    click.echo(document(method=entry.name, **{part: getattr(entry, part) for part in about}, **shown))


def _doctor(as_json: bool) -> None:
    """What of Docker, GPU, MLflow and Kubeflow can be reached, and what to do about the rest."""
    from kfp_methods.doctor import diagnose

    findings = diagnose(os.environ)
    lacking = [finding.part for finding in findings if finding.needed and not finding.good]
    if as_json:
        error = f"a local run needs more: {', '.join(lacking)}" if lacking else ""
        click.echo(document(len(lacking) > 0, error, parts=[vars(finding) for finding in findings]))
        sys.exit(bool(lacking))
    rows = []
    for finding in findings:
        style = "green" if finding.good else "red" if finding.needed else "yellow"
        rows.append([cell(finding.part), cell(finding.state, style), cell(finding.remedy)])
    print_table(console(), ("part", "state", "what to do"), rows)
    sys.exit(bool(lacking))


def _ui(output: Path, port: int, host: str) -> None:
    """Opens MLflow on the local runs."""
    from kfp_methods.tracking import local_tracking_uri
    from kfp_methods.tracking.secrets import Scrubber
    from kfp_methods.tracking.server import VARIABLE, check_uri

    uri = os.environ.get(VARIABLE, "")
    if uri:
        check_uri(uri, os.environ)
        served = uri.startswith(("http://", "https://"))
        if unused := [
            f"--{name}" for name in (("output", "port", "host") if served else ("output",)) if was_given(name)
        ]:
            click.echo(f"{', '.join(unused)}: not used, for {VARIABLE} is set", err=True)
        if served:
            click.echo(f"MLflow: {Scrubber(os.environ)(uri.rstrip('/'))}{_TRAINING_VIEW} (from {VARIABLE})")
            return
    elif not (output / "mlflow.db").exists():
        remedy = "Run a method first, or give the folder that `kfp-methods run --output` had"
        raise InputError(Problem("output", str(output), "there are no runs in this folder", remedy))
    _require_free(host, port)
    uri = uri or local_tracking_uri(output.resolve())
    click.echo(f"MLflow: http://{host}:{port}{_TRAINING_VIEW} (answers in some seconds; Ctrl-C stops it)", err=True)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--host", host, "--port", str(port)]
    os.execv(sys.executable, command)  # noqa: S606 (our own interpreter, no shell)


def _require(field: str, value: str | None, known: set[str]) -> None:
    if value is not None and value not in known:
        raise InputError(Problem(field, value, "no method has it", f"Give one of {', '.join(sorted(known))}"))


def _require_free(host: str, port: int) -> None:
    """Before MLflow starts its processes and says it in forty lines. Raises InputError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind(address)
    except socket.gaierror:
        raise InputError(Problem("host", host, "is no address of this machine", "Give 127.0.0.1 or 0.0.0.0")) from None
    except OSError as error:
        remedy = "Give another with --port, or stop what listens there"
        raise InputError(Problem("port", port, f"cannot be listened on ({error.strerror})", remedy)) from None


_OUTPUT = click.Option(
    ["--output"],
    type=click.Path(path_type=Path, file_okay=False),
    default=RUNS_FOLDER,
    show_default=True,
    help="Folder given to `kfp-methods run`.",
)
_PORT = click.Option(
    ["--port"], type=click.IntRange(1, 65535), default=5000, show_default=True, help="Port to listen on."
)
_HOST = click.Option(
    ["--host"], default="127.0.0.1", show_default=True, help="Address to listen on; MLflow asks for no password."
)
_LIST_OPTIONS: list[click.Parameter] = [
    click.Option(["--group"], help="Only this image group."),
    click.Option(["--tag"], help="Only methods with this tag."),
    json_option("methods [{method, group, title, summary, tags, stability}]"),
]
_SHOW_JSON = json_option(
    "group, title, summary, stability, paper, sample_data, tags, links",
    "inputs [{name, kfp_type, default, presets, choices, description}]",
    "outputs [{name, kfp_type, is_artifact, format, description}]",
    "metrics [{name, description}]",
    "claims [{id, statement, paper, measure}]",
)
_DOCTOR_JSON = json_option("parts [{part, state, good, remedy, needed}]")

COMMANDS = {
    "list": click.Command("list", callback=_list, help=_list.__doc__, params=_LIST_OPTIONS),
    "show": click.Command(
        "show", callback=_show, help=_show.__doc__, params=[click.Argument(["name"], metavar="METHOD"), _SHOW_JSON]
    ),
    "doctor": click.Command("doctor", callback=_doctor, help=_doctor.__doc__, params=[_DOCTOR_JSON]),
    "ui": click.Command("ui", callback=_ui, help=_ui.__doc__, params=[_OUTPUT, _PORT, _HOST]),
}
