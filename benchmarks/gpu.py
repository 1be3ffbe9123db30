"""A method on a GPU: the same numbers as on the CPU within a tolerance, then its gpu preset, then what that took.

`python benchmarks/gpu.py METHOD [--tolerance 0.02] [--record]` on a machine with CUDA. First the sample preset runs
on the CPU and on the GPU with one seed, and every metric that is no duration is compared; then the gpu preset runs.
With `--record` its figures and the hardware's name go into the method's results, and `kfp-methods docs` puts them
into its README.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.py")


def main() -> int:
    """Prints both comparisons; 0 when the GPU agrees with the CPU, 1 when not, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("--tolerance", type=float, default=0.02, help="relative, or absolute below 1 (default 0.02)")
    parser.add_argument("--record", action="store_true", help="keep the gpu preset's figures for the README")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("device=cuda: torch finds no CUDA device here; run this on a GPU machine", file=sys.stderr)
        return 2
    cpu, gpu = (_run(options.method, "--preset", "sample", "--device", device) for device in ("cpu", "cuda"))
    agrees = _compare(cpu["metrics"], gpu["metrics"], options.tolerance)
    print(f"sample: {cpu['seconds']:.1f} s on the CPU, {gpu['seconds']:.1f} s on {torch.cuda.get_device_name()}")
    if options.record:
        subprocess.run([sys.executable, str(RECORD), options.method, "--preset", "gpu"], check=True)
    else:
        _print_run(_run(options.method, "--preset", "gpu", "--device", "cuda"))
    return 0 if agrees else 1


def _run(method: str, *flags: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "kfp_methods.cli", "run", method, *flags, "--json", "--output", output]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        sys.exit(ended.returncode)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _compare(cpu: dict[str, float | None], gpu: dict[str, float | None], tolerance: float) -> bool:
    agrees = True
    print(f"{'metric':36} {'CPU':>12} {'GPU':>12}")
    for name, one in cpu.items():
        other = gpu[name]
        if name.endswith(("seconds", "time_ratio")) or one is None or other is None:
            continue
        close = math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
        agrees &= close
        print(f"{name:36} {one:12.5g} {other:12.5g}{'' if close else '   differs'}")
    return agrees


def _print_run(found: dict[str, Any]) -> None:
    print(f"gpu preset: {found['seconds']:.1f} s")
    for name, value in {**found["metrics"], **found["resources"]}.items():
        if value is not None:
            print(f"{name:36} {value:12.5g}")


if __name__ == "__main__":
    sys.exit(main())
