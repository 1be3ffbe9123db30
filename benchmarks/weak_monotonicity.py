"""What the adaptive rule costs beside ERM over all models: `python benchmarks/weak_monotonicity.py`.

Seconds of a learning curve (8 sizes, 200 subsamples of 1,000 examples) once the frontier is known, and of that.
"""

from __future__ import annotations

import time

import numpy as np

from kfp_methods.components.tabular.weak_monotonicity import protocol
from kfp_methods.components.tabular.weak_monotonicity.choices import LearnerName
from kfp_methods.components.tabular.weak_monotonicity.learners import Pool

_ROUNDS = 3


def settings(name: LearnerName) -> protocol.Settings:
    """One rule's curve."""
    return protocol.Settings((name,), (1, 2, 4, 8, 16, 32, 64, 128), 200, 1, 0.1, None, True, 0)


def seconds(pool: Pool, losses: np.ndarray, name: LearnerName) -> float:
    """Least of three."""
    taken = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        protocol.excess(pool, losses, settings(name), np.random.default_rng(0))
        taken.append(time.perf_counter() - started)
    return min(taken)


def main() -> None:
    """Prints a line for each number of models."""
    print(f"{'models':>7} {'frontier s':>11} {'adaptive s':>11} {'ERM over all s':>15} {'ratio':>6}")
    for M in (60, 500, 5_000):
        rng = np.random.default_rng(M)
        R, losses = rng.random((M, 8)), (rng.random((M, 1_000)) < 0.3).astype(float)
        started = time.perf_counter()
        pool = Pool(R)
        frontier = time.perf_counter() - started
        ours, theirs = (seconds(pool, losses, name) for name in ("adaptive", "erm_all"))
        print(f"{M:7} {frontier:11.3f} {ours:11.3f} {theirs:15.3f} {ours / theirs:6.2f}")


if __name__ == "__main__":
    main()
