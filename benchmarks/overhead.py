"""What the platform itself costs: seconds from command to result for a method that does nothing.

Compared, in alternation and each in a fresh process on the machine it runs on:

- ours: `kfp-methods run noop`, a run tracked by MLflow in SQLite included, with the database there already and
  made by the run;
- kfp.local's own SubprocessRunner on a pipeline of one lightweight component that does nothing and tracks nothing,
  with its default `use_venv=True`, with `use_venv=False`, and with `use_venv=False` when the component also leaves
  out its check that kfp is installed.

    python benchmarks/overhead.py [--repeat 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

METHODS = Path(__file__).resolve().parents[1] / "tests" / "methods"

OURS, FIRST = "kfp-methods run", "kfp-methods run, first in its folder"
VENV, PLAIN, BARE = "kfp.local, use_venv=True", "kfp.local, use_venv=False", "kfp.local, use_venv=False, no pip"
TARGETS = ((OURS, VENV, 1 / 3), (OURS, PLAIN, 2.0))

_THEIRS = """
import sys
from kfp import dsl, local

@dsl.component(base_image="python:3.11", install_kfp_package=sys.argv[2] == "True")
def nothing():
    pass

@dsl.pipeline
def pipeline():
    nothing()

local.init(local.SubprocessRunner(use_venv=sys.argv[1] == "True"), pipeline_root=sys.argv[3])
pipeline()
"""


def main() -> None:
    """Measures, prints the medians and holds them against the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each (default: 5)")
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        seconds = measure(Path(folder), repeat)
    print(f"\n{'seconds from command to result':<42} {'median':>7} {'least':>7} {'most':>7}   (n={repeat})")
    for name, values in seconds.items():
        print(f"{name:<42} {statistics.median(values):7.2f} {min(values):7.2f} {max(values):7.2f}")
    print()
    for ours, theirs, target in TARGETS:
        ratio = statistics.median(seconds[ours]) / statistics.median(seconds[theirs])
        verdict = "met" if ratio <= target else "MISSED"
        print(f"{ours} / {theirs}: {ratio:.2f} (target: at most {target:.2f}, {verdict})")


def measure(folder: Path, repeat: int) -> dict[str, list[float]]:
    """Seconds of each repetition by variant; the variants alternate, so that they share the machine's weather."""
    ours = [sys.executable, "-m", "kfp_methods.cli", "run", "noop", "--preset", "smoke", "--output"]
    program = folder / "theirs.py"  # a file, because KFP reads a component's source
    program.write_text(_THEIRS)
    theirs = [sys.executable, str(program)]
    run([*ours, str(folder / "runs")])  # makes the database, and warms the page cache for all
    commands: dict[str, Callable[[int], list[str]]] = {
        OURS: lambda i: [*ours, str(folder / "runs")],
        FIRST: lambda i: [*ours, str(folder / f"first-{i}")],
        VENV: lambda i: [*theirs, "True", "True", str(folder / "kfp")],
        PLAIN: lambda i: [*theirs, "False", "True", str(folder / "kfp")],
        BARE: lambda i: [*theirs, "False", "False", str(folder / "kfp")],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for i in range(repeat):
        for name, command in commands.items():
            seconds[name].append(run(command(i)))
            print(f"{i + 1}/{repeat} {name}: {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return seconds


def run(command: list[str]) -> float:
    """Seconds of a process that must succeed."""
    env = {**os.environ, "KFP_METHODS_PATH": str(METHODS)}
    env.pop("MLFLOW_TRACKING_URI", None)
    started = time.perf_counter()
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} failed:\n{done.stdout}")
    return seconds


if __name__ == "__main__":
    main()
