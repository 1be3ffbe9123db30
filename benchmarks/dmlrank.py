"""Seconds of debiased scores against those of Bradley and Terry's maximum likelihood with 200 bootstrap draws.

Run: `python benchmarks/dmlrank.py`. Comparisons are draws of the method's made world.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kfp_methods.components.tabular.dmlrank import baselines, estimating, sample
from kfp_methods.components.tabular.dmlrank.choices import MuModel
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons
from kfp_methods.components.tabular.dmlrank.estimating import Settings

_ROUNDS = 3
_MODELS: tuple[MuModel, ...] = ("logistic", "lightgbm", "auto")


def seconds(run: Callable[[], object]) -> float:
    """Least of several."""
    taken = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        run()
        taken.append(time.perf_counter() - started)
    return min(taken)


def debiased(data: Comparisons, model: MuModel) -> None:
    """All three scores."""
    settings = Settings(model=model)
    nuisances = estimating.cross_fit(data, settings)
    for name in settings.functionals:
        estimating.debiased(data, nuisances, name, settings)


def main() -> None:
    """Prints a line for each size and model of verdicts."""
    print(f"{'models':>7} {'contexts':>9} {'verdicts':>9} {'mu model':>9} {'debiased s':>11} {'BT s':>7} {'ratio':>6}")
    for K, n in ((5, 1_000), (5, 4_000), (20, 1_000)):
        data = sample.World.drawn(7, K).draw(n, 0)
        classical = seconds(lambda: baselines.classical(data, 0))  # noqa: B023 (called at once)
        for model in _MODELS:
            ours = seconds(lambda: debiased(data, model))  # noqa: B023
            count = int(data.labelled.sum())
            print(f"{K:7} {n:9,} {count:9,} {model:>9} {ours:11.2f} {classical:7.3f} {ours / classical:6.1f}")


if __name__ == "__main__":
    main()
