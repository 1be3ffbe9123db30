"""FIRE: a residual model that is shown what the low-fidelity model believes, not only its best guess.

Yu, Sung, Ahmed, "FIRE: Multi-fidelity Regression with Distribution-conditioned In-context Learning using Tabular
Foundation Models" (2026). Both models are regressors that read their rows as context; nothing is trained for a problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kfp_methods.components.tabular.fire.predictive import (
    Backend,
    Fitted,
    Floats,
    Predictive,
    convolved,
    fit,
)

Conditioning = Literal["full", "mean", "none"]
Strategy = Literal["pooled", "recursive"]
NINE = tuple(i / 10 for i in range(1, 10))
DRAWS = 4_000


@dataclass(frozen=True)
class Rows:
    """X [n, d] and y [n], both scaled; level [n] counts from 0, the highest is the target's."""

    X: Floats
    y: Floats
    level: np.ndarray

    def take(self, kept: np.ndarray) -> Rows:
        """Some of them, by a mask or numbers."""
        return Rows(self.X[kept], self.y[kept], self.level[kept])


@dataclass(frozen=True)
class Options:
    """conditioning: what the residual model is shown of the lower one: mean, variance and quantiles ("full"), the
    mean, or nothing. levels: of the quantiles, unless the backend has its own. strategy: all lower levels as one
    context, or level by level. convolve: quantiles of the sum by draws instead of a normal law with its moments.
    """

    conditioning: Conditioning = "full"
    levels: tuple[float, ...] = NINE
    strategy: Strategy = "pooled"
    convolve: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Stage:
    """A residual model on top of what is below it."""

    model: Fitted
    level: int


class Fire:
    """The two stages (or one for each level, when recursive)."""

    def __init__(self, backend: Backend, options: Options = Options()) -> None:
        self.backend, self.options = backend, options

    def fit(self, rows: Rows) -> Fire:
        """Shows it the rows of all levels; at least two levels, the highest being what is predicted."""
        top, own = int(rows.level.max()), rows.X.shape[1]
        pooled = self.options.strategy == "pooled"
        self.top, self.stages = top, list[Stage]()
        self.first_level = top if pooled else 0  # the level that the lowest model is asked about
        low = rows.take(rows.level < top if pooled else rows.level == 0)
        self.low = fit(self.backend, self._with_level(low.X, low.level), low.y, own)
        for level in [top] if pooled else range(1, top + 1):
            high = rows.take(rows.level == level)
            below = self.below(high.X)
            residual = high.y - below.mean
            self.stages.append(Stage(fit(self.backend, self._shown(high.X, level, below), residual, own), level))
        return self

    def below(self, X: Floats) -> Predictive:
        """What the stages so far believe."""
        found = self.low.predict(self._with_level(X, np.full(len(X), self.first_level)))
        rng = np.random.default_rng(self.options.seed)
        for stage in self.stages:
            added = stage.model.predict(self._shown(X, stage.level, found))
            found = self._sum(found, added, rng)
        return found

    def predict(self, X: Floats) -> Predictive:
        """At the highest level: means and variances add up, as of independent parts."""
        return self.below(X)

    def _sum(self, first: Predictive, second: Predictive, rng: np.random.Generator) -> Predictive:
        if self.options.convolve:
            return convolved(first, second, DRAWS, rng)
        return Predictive.normal(first.mean + second.mean, first.variance + second.variance)

    def _with_level(self, X: Floats, level: np.ndarray) -> Floats:
        return np.column_stack([X, level]) if self.backend.sees_fidelity else X

    def _shown(self, X: Floats, level: int, below: Predictive) -> Floats:
        columns = [self._with_level(X, np.full(len(X), level))]
        if self.options.conditioning != "none":
            columns.append(below.mean[:, None])
        if self.options.conditioning == "full":
            levels = np.array(self.backend.levels(X.shape[1], self.options.levels))
            columns += [below.variance[:, None], below.quantiles(levels)]
        return np.hstack(columns)
