"""What leaderboards do today: Bradley-Terry by maximum likelihood with a bootstrap over contexts, Elo, win rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.dmlrank.choices import LOSS, WIN
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Ints

DRAWS = 200


@dataclass(frozen=True)
class Classical:
    """strength, low, high [K]: centred log strengths by maximum likelihood, with 95% percentile intervals; elo,
    win_rate [K].

    NaN for models that were never compared.
    """

    strength: Floats
    low: Floats
    high: Floats
    elo: Floats
    win_rate: Floats


def classical(data: Comparisons, seed: int, draws: int = DRAWS) -> Classical:
    """Of the labelled comparisons; a tie is half a win for each. (evalica: Newman's algorithm for Bradley-Terry.)"""
    import evalica
    import pandas as pd

    rows, at = np.nonzero(data.labelled)
    first, second, y = data.pairs.j[at], data.pairs.k[at], data.verdict[rows, at].astype(np.int64)
    winners = [evalica.Winner.X if c == WIN else evalica.Winner.Y if c == LOSS else evalica.Winner.Draw for c in y]
    index = pd.Index(range(len(data.models)))
    found = evalica.elo(first, second, winners, index=index).scores
    rates = evalica.average_win_rate(first, second, winners, index=index).scores
    won = _wins(data, rows, first, second, y)
    strength = centred(won.sum(0))
    n = len(won)
    counts = np.random.default_rng([seed, 6]).multinomial(n, np.full(n, 1 / n), size=draws)
    boot = np.array([centred(np.tensordot(weights, won, 1)) for weights in counts.astype(np.float64)])
    low, high = np.nanquantile(boot, [0.025, 0.975], axis=0)
    elo, rate = (np.asarray(series.loc[index], np.float64) for series in (found, rates))
    return Classical(strength, low, high, elo, rate)


def _wins(data: Comparisons, rows: Ints, first: Ints, second: Ints, y: Ints) -> Floats:
    """Of each context how often a model won against another, ties as halves [n, K, K]."""
    K = len(data.models)
    found = np.zeros((len(data.contexts), K, K))
    np.add.at(found, (rows, first, second), np.where(y == WIN, 1.0, np.where(y == LOSS, 0.0, 0.5)))
    np.add.at(found, (rows, second, first), np.where(y == LOSS, 1.0, np.where(y == WIN, 0.0, 0.5)))
    return found


def centred(wins: Floats) -> Floats:
    """Log strengths of mean 0 from a matrix of wins [K, K]; NaN for models that played nobody."""
    import evalica

    played = np.flatnonzero((wins + wins.T).sum(1) > 0)
    i, j = np.nonzero(wins[np.ix_(played, played)])
    found = np.full(len(wins), np.nan)
    if len(i):
        weights = wins[played[i], played[j]].astype(np.float64)
        result = evalica.bradley_terry(i, j, [evalica.Winner.X] * len(i), weights=weights, limit=1_000)
        logs = np.log(np.maximum(result.scores.sort_index().to_numpy(), 1e-12))
        found[played] = logs - logs.mean()
    return found
