"""Intervals that hold for all scores at once, pairwise differences, and what they say of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.dmlrank.pairs import Floats

_DRAWS = 20_000
_BLOCK = 2_000_000


def correlation(covariance: Floats) -> Floats:
    """Of a covariance [K, K]; a score without variance is correlated with nothing."""
    sd = np.sqrt(np.diag(covariance))
    scale = np.where(sd > 0, sd, np.inf)
    found = covariance / np.outer(scale, scale)
    np.fill_diagonal(found, (sd > 0).astype(np.float64))
    return np.asarray(found)


def max_t(corr: Floats, level: float, seed: int) -> float:
    """The quantile `level` of max |Z|, Z ~ N(0, corr) [K, K] (singular allowed): 20,000 seeded draws."""
    values, vectors = np.linalg.eigh(corr)
    root = vectors * np.sqrt(np.maximum(values, 0))
    rng = np.random.default_rng([seed, len(corr), 1])
    found = [
        np.abs(rng.standard_normal((min(size, _DRAWS - begin), len(corr))) @ root.T).max(1)
        for size in [max(1, _BLOCK // len(corr))]
        for begin in range(0, _DRAWS, size)
    ]
    return float(np.quantile(np.concatenate(found), level))


@dataclass(frozen=True)
class Compared:
    """Differences theta_a - theta_b of all pairs a < b [D], their standard errors, and simultaneous verdicts.

    better: 1 where a is better at the level, -1 where b is, 0 where the data cannot tell.
    """

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    difference: Floats
    se: Floats
    half: Floats
    better: NDArray[np.int64]


def compare(theta: Floats, covariance: Floats, alpha: float, seed: int) -> Compared:
    """Max-t over all K (K - 1) / 2 differences, with the full covariance of the scores."""
    a, b = np.triu_indices(len(theta), 1)
    contrast = np.zeros((len(a), len(theta)))
    contrast[np.arange(len(a)), a], contrast[np.arange(len(a)), b] = 1.0, -1.0
    spread = contrast @ covariance @ contrast.T
    se = np.sqrt(np.maximum(np.diag(spread), 0))
    half = max_t(correlation(spread), 1 - alpha, seed) * se
    difference = theta[a] - theta[b]
    better = np.where(difference > half, 1, np.where(difference < -half, -1, 0))
    return Compared(a, b, difference, se, half, better)


def ranks(found: Compared, K: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each model the best and the worst rank that the comparisons leave open [K], [K]; 1 is the best."""
    above, below = np.zeros(K, np.int64), np.zeros(K, np.int64)
    np.add.at(above, found.b[found.better == 1], 1)
    np.add.at(above, found.a[found.better == -1], 1)
    np.add.at(below, found.a[found.better == 1], 1)
    np.add.at(below, found.b[found.better == -1], 1)
    return 1 + above, K - below
