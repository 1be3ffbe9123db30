"""A step of learning against one solution with the round ball; a cone for each row against the reduced cone program.

Run: `python benchmarks/ot_dro.py`. Rows are weekly returns of eight stocks, from 2010 on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from kfp_methods.components.tabular.ot_dro import ambiguity, cones, learning, sample

_ROUNDS = 5
_STEPS = 10
_GAMMA = 0.1


def seconds(run: Callable[[], object]) -> float:
    """Least of several."""
    taken = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        run()
        taken.append(time.perf_counter() - started)
    return min(taken)


def main() -> None:
    """Prints a line for each number of rows and order."""
    print(f"{'rows':>5} {'p':>2} {'step ms':>8} {'round ms':>9} {'ratio':>6} {'dense ms':>9} {'dense/reduced':>14}")
    returns = sample.stocks().to_numpy()
    for N, p in ((50, 1), (50, 2), (250, 1), (250, 2)):
        fit = ambiguity.Sample.of(returns[:N], standardise=True)
        data = ambiguity.data_of("po_mean", fit.rows, 0.05, 0.0, 1.0)
        distances = ambiguity.distances(fit, "po_mean", p, ambiguity.counts(N, 50, np.random.default_rng(0)))
        eps = ambiguity.radius(distances, 8, _GAMMA)
        problem = learning.Problem(data, distances, eps, fit.sd, float(fit.sd.mean()))
        program = problem.program(np.eye(8))
        dense = cones.build_dense(data.mean, fit.rows, problem.raw(np.eye(8)), eps)
        settings = learning.Settings(iterations=_STEPS, tolerance=0.0)
        with threadpool_limits(1):
            step = seconds(lambda: learning.learn(problem, settings)) / (_STEPS + 1)  # noqa: B023 (called at once)
            reduced, full = seconds(lambda: cones.solve(program)), seconds(lambda: cones.solve(dense))  # noqa: B023
        ratio, speed = step / reduced, full / reduced
        print(f"{N:5} {p:2} {1e3 * step:8.2f} {1e3 * reduced:9.2f} {ratio:6.1f} {1e3 * full:9.2f} {speed:14.1f}")


if __name__ == "__main__":
    main()
