"""`kfp-methods list`, `show`, `doctor` and `ui`: looking, without running anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kfp_methods import catalogue
from kfp_methods.cli.flags import RUNS_FOLDER


@click.command("list")
@click.option("--group", help="Only this image group.")
@click.option("--tag", help="Only methods with this tag.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable, on standard output.")
def list_methods(group: str | None, tag: str | None, as_json: bool) -> None:
    """The methods, by group."""
    found = [e for e in catalogue.entries() if group in (None, e.group) and (tag is None or tag in e.tags)]
    if as_json:
        import json

        rows = [
            {"name": e.name, "group": e.group, "title": e.title, "tags": e.tags, "stability": e.stability}
            for e in found
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    table = Table("group", "method", "what it does", "stability")
    for e in found:
        table.add_row(e.group, e.name, escape(e.summary), e.stability)
    Console().print(table)


@click.command("show")
@click.argument("name", metavar="METHOD")
def show(name: str) -> None:
    """A method's inputs, outputs, claims, paper and the licence of its sample data."""
    from kfp_methods.docs import describe

    Console().print(
        describe(catalogue.entry(name), catalogue.load(name)), markup=False, highlight=False, soft_wrap=True
    )


@click.command("doctor")
def doctor() -> None:
    """What of Docker, GPU, MLflow and Kubeflow can be reached, and what to do about the rest."""
    from kfp_methods.doctor import diagnose

    table = Table("part", "state", "what to do")
    findings = diagnose(os.environ)
    for finding in findings:
        style = "green" if finding.good else "red" if finding.needed else "yellow"
        table.add_row(finding.part, f"[{style}]{escape(finding.state)}[/]", escape(finding.remedy))
    Console().print(table)
    sys.exit(any(finding.needed and not finding.good for finding in findings))


@click.command("ui")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=RUNS_FOLDER,
    show_default=True,
    help="Folder given to `kfp-methods run`.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
def ui(output: Path, port: int, host: str) -> None:
    """Opens MLflow on the local runs."""  # fmt: skip
    from kfp_methods.errors import InputError, Problem
    from kfp_methods.tracking import local_tracking_uri

    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if uri.startswith(("http://", "https://")):
        click.echo(f"MLflow: {uri} (from MLFLOW_TRACKING_URI)")
        return
    if not uri and not (output / "mlflow.db").exists():
        remedy = "Run a method first, or give the folder that `kfp-methods run --output` had"
        raise InputError(Problem("output", str(output), "there are no runs in this folder", remedy))
    uri = uri or local_tracking_uri(output.resolve())
    click.echo(f"MLflow: http://{host}:{port} (Ctrl-C stops it)", err=True)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--host", host, "--port", str(port)]
    os.execv(sys.executable, command)  # noqa: S606 (our own interpreter, no shell)


COMMANDS = {"list": list_methods, "show": show, "doctor": doctor, "ui": ui}
