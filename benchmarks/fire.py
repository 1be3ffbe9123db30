"""Seconds and memory of FIRE with the shipped network against NARGP: `python benchmarks/fire.py`.

Both see the same rows (Park91A, 40 costly ones) and predict the same 200. Each is measured in a fresh process; memory
is how far its resident set grew at most.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable

from kfp_methods.components.tabular.fire import baselines, problems
from kfp_methods.components.tabular.fire.measuring import predictions
from kfp_methods.components.tabular.fire.pfn import Pfn
from kfp_methods.components.tabular.fire.two_stage import Fire, Rows

CHEAP = (100, 400, 1_000)
_ROUNDS = 3


def fire(rows: Rows) -> baselines.Predictor:
    """All cheap rows in one context."""
    return Fire(Pfn()).fit(rows).predict


SOLVERS: dict[str, Callable[[Rows], baselines.Predictor]] = {
    "FIRE": fire,
    "NARGP": baselines.nonlinear_autoregressive,
}


def measure(name: str, n_low: int) -> tuple[float, float]:
    """Least seconds of the rounds, and megabytes above those before the first."""
    warm = problems.draw("park91a", 20, 10, 5, 0)
    predictions(warm.training, warm.X_test, SOLVERS[name])
    task = problems.draw("park91a", n_low, 40, 200, 0)
    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        predictions(task.training, task.X_test, SOLVERS[name])
        seconds.append(time.perf_counter() - started)
    return min(seconds), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Prints a line for each number of cheap rows."""
    print(f"{'cheap rows':>10} {'FIRE s':>8} {'NARGP s':>8} {'FIRE/NARGP':>11} {'FIRE MB':>8} {'NARGP MB':>9}")
    context = multiprocessing.get_context("spawn")
    for n_low in CHEAP:
        found = {}
        for name in SOLVERS:
            with context.Pool(1) as pool:
                found[name] = pool.apply(measure, (name, n_low))
        (ours, our_memory), (theirs, their_memory) = found["FIRE"], found["NARGP"]
        print(f"{n_low:10} {ours:8.2f} {theirs:8.2f} {ours / theirs:11.2f} {our_memory:8.0f} {their_memory:9.0f}")


if __name__ == "__main__":
    main()
