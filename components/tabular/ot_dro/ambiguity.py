"""The reference law of a table's rows, its bootstraps, and the balls of the same radius around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.ot_dro.choices import PORTFOLIOS, Problem
from kfp_methods.components.tabular.ot_dro.cones import Data, Floats
from kfp_methods.components.tabular.ot_dro.transport import Distances, Gelbrich, Wasserstein

RIDGE = 1e-6
_LEAST = 1e-300  # a resample may be of one row only


@dataclass(frozen=True)
class Sample:
    """rows [N, k] in the data's units; sd [k]: what they are divided by, or ones."""

    rows: Floats
    sd: Floats

    @classmethod
    def of(cls, rows: Floats, *, standardise: bool) -> Sample:
        """Standardised by their own standard deviations, without centring."""
        return cls(rows, rows.std(0, ddof=1) if standardise else np.ones(rows.shape[1]))

    @property
    def scaled(self) -> Floats:
        """Rows in units of sd."""
        return self.rows / self.sd


def counts(N: int, B: int, rng: np.random.Generator) -> Floats:
    """How often each of N rows is in each of B resamples of N with replacement, divided by N [B, N]."""
    return rng.multinomial(N, np.full(N, 1 / N), size=B) / N


def distances(sample: Sample, problem: Problem, p: int, resamples: Floats) -> Distances:
    """Of resamples, by their weights [B, N]: between distributions, or of means and covariances for po_cvar."""
    points = sample.scaled
    if problem == "po_cvar":
        mean, covariance = moments(points, np.full(len(points), 1 / len(points)))
        found = [moments(points, weights) for weights in resamples]
        return Gelbrich(mean, covariance, np.array([m for m, _ in found]), np.array([S for _, S in found]))
    unique, inverse = np.unique(points, axis=0, return_inverse=True)
    joined = np.zeros((len(points), len(unique)))
    joined[np.arange(len(points)), inverse.ravel()] = 1
    reference = joined.mean(0)
    return Wasserstein(unique, reference / reference.sum(), resamples @ joined, p)


def moments(points: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weighted mean, and covariance with 1e-6 of its mean variance added to every variance."""
    mean = weights @ points
    centred = points - mean
    covariance = (centred * weights[:, None]).T @ centred
    ridge = RIDGE * float(np.trace(covariance)) / len(covariance)
    return mean, covariance + max(ridge, _LEAST) * np.eye(len(covariance))


def data_of(problem: Problem, rows: Floats, beta: float, lower: float, upper: float) -> Data:
    """What the decision is made on."""
    if problem in PORTFOLIOS:
        mean, covariance = moments(rows, np.full(len(rows), 1 / len(rows)))
        return Data(
            problem, mean, np.asarray(np.linalg.cholesky(covariance), np.float64), np.zeros((0, 0)), beta, lower, upper
        )
    return Data(problem, np.zeros(0), np.zeros((0, 0)), rows, beta)


def radius(found: Distances, k: int, gamma: float) -> float:
    """The (1 - gamma)-quantile of the bootstraps' distances at L = I, by linear interpolation."""
    return quantile(found.values(np.eye(k)), gamma)


def quantile(values: Floats, gamma: float) -> float:
    """The same of given distances."""
    return float(np.quantile(values, 1 - gamma))


def calibrated(L: Floats, found: Distances, eps: float, gamma: float) -> Floats:
    """L scaled so that exactly the share gamma of the bootstraps lies outside the ball of radius eps."""
    return L * (eps / quantile(found.values(L), gamma))


def mahalanobis(sample: Sample) -> Floats:
    """The Cholesky factor of the inverse covariance of the scaled rows: a data-driven cost (after Blanchet et al.)."""
    _, covariance = moments(sample.scaled, np.full(len(sample.rows), 1 / len(sample.rows)))
    return np.asarray(np.linalg.cholesky(np.linalg.inv(covariance)))
