"""What `kfp-methods run` says at the end: one dictionary for machines; the answer, then its numbers, for people."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from kfp_methods.cli.flags import RUNS_FOLDER
from kfp_methods.cli.text import cell, console, print_table, printable
from kfp_methods.errors import ExitCode, Problem
from kfp_methods.report import format_interval, format_number

if TYPE_CHECKING:
    from kfp_methods.cli.outputs import Linked
    from kfp_methods.contract import Inputs, Method
    from kfp_methods.local import LocalRun

_STYLES = {"supported": "green", "not supported": "red", "inconclusive": "yellow"}
_SIGNALS = {130: "interrupted (SIGINT)", int(ExitCode.TERMINATED): "terminated (SIGTERM)"}


def of(
    method: Method[Any, Any, Any], inputs: Inputs, ended: LocalRun, seconds: float, linked: Linked
) -> dict[str, Any]:
    """The run as plain JSON values; `problems` are `Problem`s."""
    last = ended.summaries[-1] if ended.summaries else {}
    failed = next((summary for summary in ended.summaries if summary["exit_code"]), {})
    # Of replicates that could not be pooled, the last to end does not speak for the run.
    whole = last if not (linked.replicates and ended.exit_code) else {}
    return {
        "method": method.name,
        "exit_code": ended.exit_code,
        "error": _error(ended, failed),
        "problems": [Problem(**problem) for problem in failed.get("problems", ())],
        "seconds": round(seconds, 3),
        "data": "sample" if inputs.uses_sample else "user",
        "preset": inputs.preset,
        "headline": whole.get("headline", ""),
        "tables": whole.get("tables", []),
        "metrics": whole.get("metrics", {}),
        "resources": whole.get("resources", {}),
        "claims": whole.get("claims", []),
        "outputs": linked.outputs,
        "replicates": linked.replicates,
        "folder": str(ended.folder),
        "mlflow": whole.get("mlflow"),
        "warnings": list(dict.fromkeys(text for summary in ended.summaries for text in summary["warnings"])),
    }


def show(result: Mapping[str, Any], ended: LocalRun, logged: bool) -> None:
    """Prints the answer, its numbers, and where everything is.

    logged: the tasks' log was on standard error, so that what it says is not said again.
    """
    target = console()
    if result["exit_code"]:
        _show_failure(target, result, ended, logged)
        return
    target.print()
    if result["headline"]:
        target.print(cell(result["headline"], "bold"))
    data = "your own data" if result["data"] == "user" else "embedded sample"
    target.print(cell(f"{result['method']} on {data} (preset {result['preset']}): {result['seconds']:.1f} s"))
    for table in result["tables"]:
        _show_table(target, table["title"], table["columns"], table["rows"])
    steps = [lambda: _show_metrics(target, result["metrics"]), lambda: _show_claims(target, result["claims"])]
    for step in steps if result["data"] == "user" else reversed(steps):
        step()
    _show_places(target, result, logged)


def _error(ended: LocalRun, failed: Mapping[str, Any]) -> str:
    if not ended.exit_code:
        return ""
    if ended.exit_code in _SIGNALS:
        return f"{_SIGNALS[ended.exit_code]}; what was finished is in {ended.folder}"
    return failed.get("error", "") or f"{ended.failure} See {ended.log}".strip()


def _show_failure(target: Console, result: Mapping[str, Any], ended: LocalRun, logged: bool) -> None:
    code = result["exit_code"]
    told = logged and any(summary.get("error") for summary in ended.summaries)
    if code in _SIGNALS:
        target.print(cell(f"{result['method']}: {result['error']} (exit code {code})", "bold red"), soft_wrap=True)
    else:
        where = "; the log above says why" if told else ""
        target.print(cell(f"{result['method']} ended with exit code {code}{where}", "bold red"))
        if not told:
            console(stderr=True).print(cell(result["error"]), soft_wrap=True)
    _show_replicates(target, result["replicates"])
    if "report" in result["outputs"]:
        _line(target, f"Report:  {result['outputs']['report']} (what was finished)")


def _show_table(target: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    numbers = {
        place for place in range(len(columns)) if all(isinstance(row[place], int | float | None) for row in rows)
    }
    print_table(target, columns, [[cell(_written(value)) for value in row] for row in rows], title, numbers)


def _show_metrics(target: Console, metrics: Mapping[str, float | None]) -> None:
    rows = [[cell(name), cell(_written(value))] for name, value in metrics.items()]
    print_table(target, ("metric", "value"), rows, "Metrics", {1})


def _show_claims(target: Console, claims: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for claim in claims:
        measured = _written(claim["value"]) if claim["value"] is not None else claim["note"]
        if claim["low"] is not None:
            measured += f"\n[{format_interval(claim['low'], claim['high'])}], n={claim['n']}"
        style = _STYLES.get(claim["verdict"], "dim")
        rows.append([cell(claim["statement"]), cell(claim["verdict"], style), cell(measured), cell(claim["paper"])])
    if rows:
        print_table(target, ("claim", "verdict", "measured", "in the paper"), rows, "Claims of the paper")


def _show_replicates(target: Console, replicates: Sequence[Mapping[str, Any]]) -> None:
    for each in replicates:
        ending = "done" if not each["exit_code"] else f"exit code {each['exit_code']}"
        place = f": {Path(each['outputs']['report']).parent}" if "report" in each["outputs"] else ""
        seed = "a replicate" if each["seed"] is None else f"seed {each['seed']}"
        _line(target, f"{seed.capitalize()}, {ending}{place}")


def _show_places(target: Console, result: Mapping[str, Any], logged: bool) -> None:
    for warning in result["warnings"]:
        _line(target, f"Warning: {warning}")
    _show_replicates(target, result["replicates"])
    _line(target, f"Report:  {result['outputs'].get('report', 'none')}")
    _line(target, f"Outputs: {result['folder']}")
    tracked = result["mlflow"]
    if tracked is None:
        _line(target, "MLflow:  this run was not tracked")
    elif tracked["error"]:
        state = f"run {tracked['run_id']} is incomplete" if tracked["run_id"] else "this run was not tracked"
        reason = "; the log above says why" if logged else f": {tracked['error']}"
        _line(target, f"MLflow:  {state}{reason}")
    else:
        opened_by = _how_to_open(tracked["url"], Path(result["folder"]).parent)
        _line(target, f"MLflow:  run {tracked['run_id']}; open it with: {opened_by}")


def _line(target: Console, text: str) -> None:
    target.print(printable(text), soft_wrap=True)


def _written(value: Any) -> str:
    """A number with four digits, a whole one as such; any other value as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return format_number(int(value))
    return format_number(value) if value is None or isinstance(value, int | float) else str(value)


def _how_to_open(uri: str, output: Path) -> str:
    """The server's page, or the command that serves the database, as it can be typed here."""
    from kfp_methods.tracking import local_tracking_uri

    if uri.startswith("http"):
        return uri
    installed = shutil.which("kfp-methods")
    typed = Path(sys.argv[0])
    on_path = installed is not None and typed.exists() and Path(installed).samefile(typed)
    command = "kfp-methods" if on_path or typed.name != "kfp-methods" else os.path.relpath(typed)
    named = uri == local_tracking_uri(output) and output != RUNS_FOLDER.resolve()
    return f"{command} ui" + (f" --output {shlex.quote(os.path.relpath(output))}" if named else "")
