"""What a release costs: sketches from their law against explicit ones, and against AdaSSP, as rows grow.

    python benchmarks/iterative_hessian_mixing.py --rows 1000 10000 100000

All in one process; seconds are medians of five releases with epsilon = 1 after one that warms up. The moments X'X and
X'y, which every mechanism needs once, are not counted, nor is the search for gamma (its own column).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing import baselines, mixing, sample
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import plan
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Regression


def seconds(run: Callable[[Noise], object], repeats: int = 5) -> float:
    """Median seconds of a release."""
    run(Noise.seeded([0]))
    taken = []
    for number in range(repeats):
        started = time.perf_counter()
        run(Noise.seeded([number]))
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


def main() -> None:
    """Measures and prints one line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--columns", type=int, default=20)
    given = parser.parse_args()
    print(f"milliseconds of a release, {given.columns} columns, T = 3")
    print(
        f"{'rows':>9} {'k':>5} {'covariance':>11} {'explicit':>9} {'ratio':>7} {'AdaSSP':>8} {'ratio':>7} {'gamma':>7}"
    )
    plan(1.0, 0.01, given.columns, iterations=3)  # loads what the search needs
    for n in given.rows:
        X, y = sample.directions(n, given.columns, 0)
        started = time.perf_counter()
        planned = plan(1.0, 1 / n**2, given.columns, iterations=3)
        calibration = time.perf_counter() - started
        data, rows = Regression(X, y), Regression(X, y, explicit=True)
        ours = seconds(partial(mixing.release, data, planned))
        explicit = seconds(partial(mixing.release, rows, planned))
        theirs = seconds(partial(baselines.adassp, data, 1.0, 1 / n**2))
        print(
            f"{n:>9,} {planned.sketch.rows:>5} {1e3 * ours:>11.2f} {1e3 * explicit:>9.1f} {explicit / ours:>7.1f} "
            f"{1e3 * theirs:>8.2f} {ours / theirs:>7.1f} {1e3 * calibration:>7.1f}"
        )


if __name__ == "__main__":
    main()
