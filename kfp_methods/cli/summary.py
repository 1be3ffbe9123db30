"""What `kfp-methods run` says at the end: one dictionary for machines, two tables for people."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kfp_methods.cli.flags import RUNS_FOLDER
from kfp_methods.report import format_interval, format_number

if TYPE_CHECKING:
    from kfp_methods.contract import Inputs, Method
    from kfp_methods.local import LocalRun

_STYLES = {"supported": "green", "not supported": "red", "inconclusive": "yellow"}


def of(
    method: Method[Any, Any, Any], inputs: Inputs, ended: LocalRun, seconds: float, outputs: dict[str, str]
) -> dict[str, Any]:
    """The run as plain JSON values."""
    last = ended.summaries[-1] if ended.summaries else {}
    failed = next((summary for summary in ended.summaries if summary["exit_code"]), last)
    return {
        "method": method.name,
        "exit_code": ended.exit_code,
        "seconds": round(seconds, 3),
        "data": "sample" if inputs.uses_sample else "user",
        "preset": inputs.preset,
        "metrics": last.get("metrics", {}),
        "claims": last.get("claims", []),
        "outputs": outputs,
        "folder": str(ended.folder),
        "mlflow": last.get("mlflow"),
        "warnings": list(dict.fromkeys(text for summary in ended.summaries for text in summary["warnings"])),
        "error": failed.get("error", "") or (f"{ended.failure} See {ended.log}".strip() if ended.exit_code else ""),
    }


def show(result: dict[str, Any], ended: LocalRun) -> None:
    """Prints tables of metrics and claims, and where everything is."""
    console = Console()
    if result["exit_code"]:
        console.print(f"[bold red]{result['method']} ended with exit code {result['exit_code']}[/]", highlight=False)
        Console(stderr=True).print(result["error"], markup=False, highlight=False, soft_wrap=True)
        return
    data = "your own data" if result["data"] == "user" else "embedded sample"
    console.print(f"\n[bold]{result['method']}[/] on {data} (preset {result['preset']}): {result['seconds']:.1f} s")
    console.print(_metrics(result["metrics"]))
    if result["claims"]:
        console.print(_claims(result["claims"]))
    _where(console, result)


def _metrics(metrics: dict[str, float | None]) -> Table:
    table = Table("metric", "value", title="Metrics", title_justify="left")
    table.columns[1].justify = "right"
    for name, value in metrics.items():
        table.add_row(name, format_number(value))
    return table


def _claims(claims: list[dict[str, Any]]) -> Table:
    table = Table("claim", "verdict", "measured", "in the paper", title="Claims of the paper", title_justify="left")
    for claim in claims:
        measured = format_number(claim["value"])
        if claim["low"] is not None:
            measured += f"\n[{format_interval(claim['low'], claim['high'])}], n={claim['n']}"
        style = _STYLES.get(claim["verdict"], "dim")
        cells = [escape(text) for text in (claim["statement"], claim["verdict"], measured, claim["paper"])]
        table.add_row(cells[0], f"[{style}]{cells[1]}[/]", *cells[2:])
    return table


def _where(console: Console, result: dict[str, Any]) -> None:
    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for warning in result["warnings"]:
        line(f"Warning: {warning}")
    line(f"Report:  {result['outputs'].get('report', 'none')}")
    line(f"Outputs: {result['folder']}")
    tracked = result["mlflow"]
    if tracked is None:
        line("MLflow:  this run was not tracked")
    elif tracked["error"]:
        line(f"MLflow:  {tracked['error']}")
    else:
        opened_by = _how_to_open(tracked["url"], Path(result["folder"]).parent)
        line(f"MLflow:  run {tracked['run_id']}; open it with: {opened_by}")


def _how_to_open(uri: str, output: Path) -> str:
    """The server's page, or the command that serves the local database, as it can be typed here."""
    if uri.startswith("http"):
        return uri
    installed = shutil.which("kfp-methods")
    typed = Path(sys.argv[0])
    on_path = installed is not None and typed.exists() and Path(installed).samefile(typed)
    command = "kfp-methods" if on_path or typed.name != "kfp-methods" else os.path.relpath(typed)
    elsewhere = output != RUNS_FOLDER.resolve()
    return f"{command} ui" + (f" --output {shlex.quote(os.path.relpath(output))}" if elsewhere else "")
