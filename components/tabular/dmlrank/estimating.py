"""Debiased scores: the plug-in value of every context, corrected by what was observed there, with out-of-fold
nuisances.

phi = F(mu(X)) - theta + sum over labelled (j, k) of J_jk(mu(X)) (Y_jk - mu_jk(X)) / pi_jk(X): its mean is zero at the
truth, and errors of mu and pi enter as their product (Frauen et al., arXiv 2601.21816).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.dmlrank import functionals, intervals, nuisance, plans
from kfp_methods.components.tabular.dmlrank.choices import BtLink, FunctionalName, MuModel
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons, folds
from kfp_methods.components.tabular.dmlrank.functionals import Jacobian, Value
from kfp_methods.components.tabular.dmlrank.pairs import Floats


@dataclass(frozen=True)
class Settings:
    """As the inputs have them."""

    functionals: tuple[FunctionalName, ...] = ("borda", "bt", "rank_centrality")
    link: BtLink = "win_loss"
    model: MuModel = "auto"
    n_folds: int = 3
    mu_floor: float = 0.02
    pi_floor: float = 0.01
    alpha: float = 0.05
    seed: int = 0
    device: str = "cpu"

    def of(self, name: FunctionalName, data: Comparisons) -> tuple[Value, Jacobian]:
        """F and its Jacobian for these data."""
        F, J = functionals.functional(name, self.link)
        return (F, J) if data.ordered else functionals.unordered(data.pairs, F, J)


@dataclass(frozen=True)
class Nuisances:
    """Out of fold: mu [n, P, C], floored; pi [n, P], floored, 1 where nothing was labelled.

    clipped_mu, clipped_pi: shares below their floors; log_loss: of mu on labelled pairs; picked: models, by fold.
    """

    mu: Floats
    pi: Floats
    clipped_mu: float
    clipped_pi: float
    log_loss: float
    picked: Counter[str]


@dataclass(frozen=True)
class Scores:
    """Of K models by one functional.

    Attributes:
        theta, se [K]; covariance [K, K]: of theta.
        plugin, plugin_se [K]: the mean of F(mu) and its own naive standard error.
        simultaneous, bonferroni, chi: quantiles that half widths are standard errors times: max-t, Bonferroni's, and
            the root of chi-square's for the ellipsoid.
        values [n, K]: what theta is the mean of.
    """

    name: FunctionalName
    theta: Floats
    se: Floats
    covariance: Floats
    plugin: Floats
    plugin_se: Floats
    pointwise: float
    simultaneous: float
    bonferroni: float
    chi: float
    values: Floats

    def covers(self, truth: Floats) -> NDArray[np.bool_]:
        """Whether each model's own interval holds the truth [K]."""
        return np.asarray(np.abs(self.theta - truth) <= self.pointwise * self.se)

    def plugin_covers(self, truth: Floats) -> NDArray[np.bool_]:
        """The same of the plug-in's [K]."""
        return np.asarray(np.abs(self.plugin - truth) <= self.pointwise * self.plugin_se)


def cross_fit(
    data: Comparisons, settings: Settings, follow: Callable[[range], Iterable[int]] = iter
) -> Nuisances:  # fmt: skip
    """Each context's nuisances from models fitted on the other folds."""
    fold = folds(data.contexts, settings.n_folds, settings.seed)
    raw = np.empty((*data.verdict.shape, data.classes))
    pi = np.ones(data.verdict.shape) if data.propensity is None else data.propensity
    picked: Counter[str] = Counter()
    for v in follow(range(settings.n_folds)):
        inside, outside = np.flatnonzero(fold == v), data.take(np.flatnonzero(fold != v))
        held = data.take(inside)
        predict, name = nuisance.fit_mu(outside, settings.model, settings.seed, settings.device)
        picked[name] += 1
        raw[inside] = nuisance.predict_all(held, predict)
        if data.propensity is None:
            pi[inside] = nuisance.fit_pi(outside, settings.seed)(held)
    if not data.ordered:
        raw = nuisance.symmetric(raw, data.pairs)
    rows, at = np.nonzero(data.labelled)
    log_loss = float(-np.log(np.maximum(raw[rows, at, data.verdict[rows, at]], 1e-6)).mean()) if len(rows) else 0.0
    mu, clipped = nuisance.floored(raw, settings.mu_floor)
    low = pi[data.labelled] < settings.pi_floor
    return Nuisances(mu, np.maximum(pi, settings.pi_floor), clipped, float(low.mean()), log_loss, picked)


def debiased(data: Comparisons, found: Nuisances, name: FunctionalName, settings: Settings) -> Scores:
    """Scores, their covariance and the quantiles of their intervals."""
    from scipy.stats import chi2, norm

    F, J = settings.of(name, data)
    plugin = np.empty((len(data.contexts), len(data.models)))
    values = np.empty_like(plugin)
    for at in plans.blocks(len(plugin), data.pairs, data.classes):
        plugin[at] = F(data.pairs, found.mu[at])
        values[at] = plugin[at] + correction(data, found, J, at)
    n, K = values.shape
    covariance = np.cov(values, rowvar=False, ddof=1).reshape(K, K) / n
    corr = intervals.correlation(covariance)
    rank = int(np.linalg.matrix_rank(corr, tol=1e-8, hermitian=True))
    return Scores(
        name=name,
        theta=values.mean(0),
        se=np.sqrt(np.diag(covariance)),
        covariance=covariance,
        plugin=plugin.mean(0),
        plugin_se=plugin.std(0, ddof=1) / np.sqrt(n),
        pointwise=float(norm.ppf(1 - settings.alpha / 2)),
        simultaneous=intervals.max_t(corr, 1 - settings.alpha, settings.seed),
        bonferroni=float(norm.ppf(1 - settings.alpha / (2 * K))),
        chi=float(np.sqrt(chi2.ppf(1 - settings.alpha, max(1, rank)))),
        values=values,
    )


def correction(data: Comparisons, found: Nuisances, J: Jacobian, at: slice) -> Floats:
    """Of contexts `at`: sum over labelled pairs of J (Y - mu) / pi [b, K]."""
    mu, verdict = found.mu[at], data.verdict[at]
    rows, pair = np.nonzero(verdict >= 0)
    total = np.zeros((len(mu), len(data.models)))
    if not len(rows):
        return total
    residual = -mu[rows, pair]
    residual[np.arange(len(rows)), verdict[rows, pair]] += 1
    slope = J(data.pairs, mu)[rows, pair]
    np.add.at(total, rows, np.einsum("mc,mck->mk", residual, slope) / found.pi[at][rows, pair, None])
    return total
