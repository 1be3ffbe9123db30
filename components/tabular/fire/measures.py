"""How good predictions are: as in the paper's code, with the Gaussian likelihood for the error bars."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.fire.predictive import Floats, Predictive

_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Scores:
    """On test rows. nrmse: root mean squared error / range of the test targets (None where they do not vary, as r2);
    nll: mean Gaussian negative log likelihood in the targets' units; coverage: of the central 80% interval; width:
    its mean, in units of the targets.
    """

    nrmse: float | None
    r2: float | None
    nll: float
    coverage: float
    width: float


def gaussian_nll(y: Floats, mean: Floats, variance: Floats) -> float:
    """Mean over rows; variances below 1e-12 count as 1e-12."""
    variance = np.maximum(variance, _LEAST_VARIANCE)
    return float(np.mean(0.5 * np.log(2 * np.pi * variance) + (y - mean) ** 2 / (2 * variance)))


def score(found: Predictive, y: Floats) -> Scores:
    """Of predictions for the rows whose targets are y [m]."""
    errors, spread = y - found.mean, float(np.ptp(y))
    low, high = found.quantiles(np.array([0.1, 0.9])).T
    return Scores(
        nrmse=float(np.sqrt(np.mean(errors**2))) / spread if spread else None,
        r2=1 - float(np.sum(errors**2) / np.sum((y - y.mean()) ** 2)) if spread else None,
        nll=gaussian_nll(y, found.mean, found.variance),
        coverage=float(np.mean((low <= y) & (y <= high))),
        width=float(np.mean(high - low)),
    )
