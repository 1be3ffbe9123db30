"""What each rule picks for the user's target, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.weak_monotonicity import learners
from kfp_methods.components.tabular.weak_monotonicity.choices import LEARNERS, LearnerName
from kfp_methods.components.tabular.weak_monotonicity.frontier import Floats
from kfp_methods.components.tabular.weak_monotonicity.learners import CLASSES, Pool
from kfp_methods.components.tabular.weak_monotonicity.user_data import UserData
from kfp_methods.intervals import estimate, is_binary

RESAMPLES = 2_000
_WITHOUT_LABELS: tuple[LearnerName, ...] = ("minmax", "best_mean", "uniform")
_MIXTURES = ("uniform", "exp_weights", "q_aggregation")


@dataclass(frozen=True)
class Picked:
    """One rule's choice.

    model: its number, None for a mixture. weights [M]: of the mixture, or 1 for the model. tied: how many models its
    class could not tell apart. loss: mean on the target's examples, with its 95% interval; None without any. The rules
    that use labels chose by the same ones, so that theirs is a little too low.
    again: share of resamples of the examples in which it picks the same model.
    """

    learner: LearnerName
    model: int | None
    weights: Floats
    tied: int
    loss: float | None = None
    interval: tuple[float, float] | None = None
    again: float | None = None


def select(data: UserData, pool: Pool, names: list[LearnerName], seed: int) -> list[Picked]:
    """Every rule's choice from all labels that there are."""
    if data.losses is None:
        return [_unlabelled(name, pool, seed) for name in names if name in _WITHOUT_LABELS]
    n = data.losses.shape[1]
    resampled = _resampled(data.losses, seed)
    return [
        _labelled(name, data, pool, resampled, n, seed)
        for name in names
        if name != "q_aggregation" or data.predictions is not None
    ]


def _resampled(losses: Floats, seed: int) -> Floats:
    """Mean losses on bootstrap samples of the examples [resamples, M]."""
    n = losses.shape[1]
    counts = np.random.default_rng((seed, 5, 1)).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    return np.asarray(counts @ losses.T / n)


def _unlabelled(name: LearnerName, pool: Pool, seed: int) -> Picked:
    M = len(pool.R)
    if name == "uniform":
        return Picked(name, None, pool.on_frontier / pool.on_frontier.sum(), 1)
    model, best = learners.pick(np.zeros(M), CLASSES[name](pool, 1), np.random.default_rng((seed, 6, 1)))
    return Picked(name, model, np.eye(M)[model], len(best))


def _labelled(name: LearnerName, data: UserData, pool: Pool, resampled: Floats, n: int, seed: int) -> Picked:
    assert data.losses is not None  # noqa: S101
    losses = data.losses.mean(1)
    if name in _MIXTURES:
        weights = _weights(name, data, pool, losses, n)
        return Picked(name, None, weights, 1, float(weights @ losses), _interval(weights @ data.losses))
    allowed = CLASSES[name](pool, n)
    model, best = learners.pick(losses, allowed, np.random.default_rng((seed, 6, 1)))
    winners = learners.tied(resampled, allowed)
    again = float((winners[:, model] / winners.sum(1)).mean())
    weights = np.eye(len(losses))[model]
    return Picked(name, model, weights, len(best), float(losses[model]), _interval(data.losses[model]), again)


def _weights(name: LearnerName, data: UserData, pool: Pool, losses: Floats, n: int) -> Floats:
    if name == "uniform":
        return np.asarray(pool.on_frontier / pool.on_frontier.sum())
    if name == "exp_weights":
        return learners.exponential_weights(losses, pool.on_frontier, n)
    assert data.predictions is not None  # noqa: S101
    assert data.y is not None  # noqa: S101
    members = np.flatnonzero(pool.on_frontier)
    target = data.y if data.predictions.ndim == 2 else np.eye(data.predictions.shape[2])[data.y.astype(int)]
    weights = np.zeros(len(losses))
    weights[members] = learners.q_aggregation(data.predictions[members], target)
    return weights


def _interval(losses: Floats) -> tuple[float, float] | None:
    """Of the mean of losses between 0 and 1 [n]: exact where each is 0 or 1."""
    values = [float(loss) for loss in losses]
    ends = estimate("binomial" if is_binary(values) else "bootstrap", values, 0.95, "examples").ends
    return None if ends is None else (max(0.0, ends[0]), min(1.0, ends[1]))


def table(picked: list[Picked], models: tuple[str, ...]) -> pd.DataFrame:
    """A row for each rule."""
    rows = []
    for one in picked:
        heaviest = models[int(one.weights.argmax())]
        mixed = f"mixture of {int((one.weights > 1e-6).sum())}, most {heaviest} ({one.weights.max():.2f})"
        rows.append(
            {
                "learner": LEARNERS[one.learner],
                "model": models[one.model] if one.model is not None else mixed,
                "mean loss": one.loss,
                "95% low": one.interval[0] if one.interval else None,
                "95% high": one.interval[1] if one.interval else None,
                "picked again": one.again,
                "tied": one.tied,
            }
        )
    return pd.DataFrame(rows)
