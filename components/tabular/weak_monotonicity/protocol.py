"""Excess target risk by number of labels: every choice of source tasks and a target, many subsamples of the labels.

Evaluation is on the finite pool: a subsample is drawn from the target's examples without replacement, and the pick's
risk is that on all of them. Bands are quartiles over choices of tasks, not confidence intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.weak_monotonicity import frontier, learners
from kfp_methods.components.tabular.weak_monotonicity.choices import LearnerName
from kfp_methods.components.tabular.weak_monotonicity.frontier import Floats
from kfp_methods.components.tabular.weak_monotonicity.learners import CLASSES, Pool


@dataclass(frozen=True)
class Choice:
    """Source tasks and a target, by number."""

    sources: tuple[int, ...]
    target: int


@dataclass(frozen=True)
class Settings:
    """n_grid: numbers of labels, those up to the pool's; the rest as the inputs have it."""

    learners: tuple[LearnerName, ...]
    n_grid: tuple[int, ...]
    n_subsamples: int
    n_choices: int
    delta: float
    t: float | None
    tie_fix: bool
    seed: int


def choices(n_tasks: int, K: int, most: int, seed: int) -> list[Choice]:
    """All, or `most` of them at random."""
    if comb(n_tasks, K) * (n_tasks - K) <= most:
        return [
            Choice(sources, target)
            for sources in combinations(range(n_tasks), K)
            for target in range(n_tasks)
            if target not in sources
        ]
    rng, found = np.random.default_rng((seed, K, 1)), dict[Choice, None]()
    while len(found) < most:
        drawn = rng.permutation(n_tasks)[: K + 1]
        found[Choice(tuple(sorted(map(int, drawn[:K]))), int(drawn[K]))] = None
    return list(found)


def mean_losses(losses: Floats, n: int, draws: int, rng: np.random.Generator) -> Floats:
    """Mean loss of each model on each of `draws` subsamples of n examples, without replacement [draws, M]."""
    rows = losses.shape[1]
    chosen = (
        np.argpartition(rng.random((draws, rows)), n - 1, axis=1)[:, :n]
        if n < rows
        else np.tile(np.arange(rows), (draws, 1))
    )
    weights = np.zeros((draws, rows))
    np.put_along_axis(weights, chosen, 1 / n, axis=1)
    return weights @ losses.T


def excess(pool: Pool, losses: Floats, settings: Settings, rng: np.random.Generator) -> Floats:
    """Mean over subsamples of the pick's excess target risk [sizes, learners]; losses: of the target [M, rows]."""
    Q = losses.mean(1)
    found = np.empty((len(settings.n_grid), len(settings.learners)))
    for i, n in enumerate(settings.n_grid):
        sampled = mean_losses(losses, n, settings.n_subsamples, rng)
        for j, name in enumerate(settings.learners):
            found[i, j] = _risk(name, pool, sampled, n, Q).mean() - Q.min()
    return found


def _risk(name: LearnerName, pool: Pool, sampled: Floats, n: int, Q: Floats) -> Floats:
    if name == "uniform":
        return np.array([Q[pool.on_frontier].mean()])
    if name == "exp_weights":
        return learners.exponential_weights(sampled, pool.on_frontier, n) @ Q
    allowed = CLASSES[name](pool, n)
    if name in ("minmax", "best_mean"):  # they pick without labels
        return np.array([Q[allowed].mean()])
    return learners.expected_risk(sampled, allowed, Q)


def run(
    losses: Floats,
    k_sources: Sequence[int],
    settings: Settings,
    follow: Callable[[list[tuple[int, Choice]]], Iterable[tuple[int, Choice]]] = iter,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The excess in every choice of tasks (K, sources, target, n, learner, excess), and a row of monotonicity for each.

    losses: [tasks, models, examples].
    """
    R, rows, pairs = losses.mean(2), [], []
    cells = [(K, one) for K in k_sources for one in choices(len(losses), K, settings.n_choices, settings.seed)]
    for K, choice in follow(cells):
        pool = Pool(R[list(choice.sources)].T, delta=settings.delta, t=settings.t, tie_fix=settings.tie_fix)
        rng = np.random.default_rng((settings.seed, *choice.sources, choice.target, K, 1))
        found = excess(pool, losses[choice.target], settings, rng)
        ordered, all_pairs = frontier.monotone_pairs(pool.R, R[choice.target])
        about = {"K": K, "sources": "+".join(map(str, choice.sources)), "target": choice.target}
        pairs.append({**about, "ordered": ordered, "pairs": all_pairs, "frontier": int(pool.on_frontier.sum())})
        rows += [
            {**about, "n": n, "learner": name, "excess": found[i, j]}
            for i, n in enumerate(settings.n_grid)
            for j, name in enumerate(settings.learners)
        ]
    return pd.DataFrame(rows), pd.DataFrame(pairs)


def curve(found: pd.DataFrame) -> pd.DataFrame:
    """Mean and quartiles over choices, by K, n and learner."""
    grouped = found.groupby(["K", "n", "learner"], sort=False)["excess"]
    summary = grouped.agg(mean="mean", q25=lambda x: x.quantile(0.25), q75=lambda x: x.quantile(0.75))
    return summary.reset_index()
