"""Runs a method on its sample and records what it measured, for its README: `python benchmarks/record.py METHOD`.

`--preset gpu` records a run of that size on a machine with a GPU. `kfp-methods docs` then renders the README.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from kfp_methods import catalogue, results
from kfp_methods.version import __version__

BENCHMARKS = Path(__file__).parent


def main() -> int:
    """Runs, records, and returns the run's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("--preset", choices=("sample", "gpu"), default="sample")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "kfp_methods.cli", "run", options.method, "--preset", options.preset]
        ended = subprocess.run([*command, "--json", "--output", output], stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        return ended.returncode
    machine = {"hardware": _hardware(), "date": datetime.date.today().isoformat(), "version": __version__}
    folder, run = catalogue.entry(options.method).folder, json.loads(ended.stdout)
    results.write(folder, options.preset, run, machine, "")
    benchmark = BENCHMARKS / f"{options.method}.py"
    if options.preset == "sample" and benchmark.exists():
        measured = subprocess.run([sys.executable, str(benchmark)], stdout=subprocess.PIPE, text=True, check=True)
        results.write(folder, options.preset, run, machine, measured.stdout.strip())
    return 0


def _hardware() -> str:
    import torch

    cores = f"{os.cpu_count()} CPU cores ({platform.machine()})"
    return f"{torch.cuda.get_device_name()}, {cores}" if torch.cuda.is_available() else cores


if __name__ == "__main__":
    sys.exit(main())
