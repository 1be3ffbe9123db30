"""What a method's runs measured, kept beside it in `results.json` and shown in its README."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kfp_methods.report import format_interval, format_number

FILE = "results.json"
_TITLES = {"sample": "What the sample run measured", "gpu": "What the GPU run measured"}


def read(folder: Path) -> dict[str, Any]:
    """The recorded runs by preset; none where nothing was recorded."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(folder: Path, preset: str, run: Mapping[str, Any], machine: Mapping[str, Any], benchmark: str) -> None:
    """Records one run: `run` is the summary of `kfp-methods run --json`, `benchmark` what the benchmark printed."""
    kept = {key: run[key] for key in ("seconds", "resources", "headline", "metrics", "claims", "tables", "warnings")}
    known = {**read(folder), preset: {**machine, **kept, "benchmark": benchmark}}
    (folder / FILE).write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def markdown(name: str, recorded: Mapping[str, Any]) -> Iterator[str]:
    """Lines of the README's sections."""
    for preset, title in _TITLES.items():
        yield from (f"## {title}", "")
        if preset in recorded:
            yield from _section(name, preset, recorded[preset])
        else:
            yield from ("Not measured yet.", "")


def _section(name: str, preset: str, run: Mapping[str, Any]) -> Iterator[str]:
    chosen = "" if preset == "sample" else f" --preset {preset}"
    yield (
        f"`kfp-methods run {name}{chosen}` with seed 0 on {run['hardware']}, {run['date']}, version {run['version']}: "
        f"{run['seconds']:.0f} s{_memory(run.get('resources', {}))}."
    )
    yield from ("", f"> {' '.join(run['headline'].split())}", "")
    for table in run["tables"]:
        yield from (f"{table['title']}:", "")
        yield from _table(table["columns"], table["rows"])
    if run["claims"]:
        rows = [
            [f"`{c['id']}`", c["verdict"], format_number(c["value"]), _interval(c), c["note"]] for c in run["claims"]
        ]
        yield from ("Claims of the paper:", "")
        yield from _table(["claim", "verdict", "measured", "95% interval", "note"], rows)
    measured = [[f"`{name}`", format_number(value)] for name, value in run["metrics"].items() if value is not None]
    yield from ("Metrics:", "")
    yield from _table(["metric", "value"], measured)
    if run["benchmark"]:
        yield from (f"`python benchmarks/{name}.py` on the same machine:", "", "```", run["benchmark"], "```", "")


def _memory(resources: Mapping[str, float]) -> str:
    names = {"peak_memory_megabytes": "memory", "gpu_peak_memory_megabytes": "GPU memory"}
    shown = [f"{resources[key] / 1000:.1f} GB of {name}" for key, name in names.items() if key in resources]
    return f", at most {' and '.join(shown)}" if shown else ""


def _interval(claim: Mapping[str, Any]) -> str:
    return "—" if claim["low"] is None else format_interval(claim["low"], claim["high"])


def _table(head: list[str], rows: list[list[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(map(cell, head))} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell(_text(value)) for value in row)} |"
    yield ""


def _text(value: Any) -> str:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return format_number(value)
    return str(value)


def cell(text: str) -> str:
    """Text within a Markdown table."""
    return " ".join(text.split()).replace("|", r"\|")
