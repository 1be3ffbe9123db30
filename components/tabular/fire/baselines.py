"""What FIRE is compared with: the target level alone, all levels as one table, and Gaussian processes of two levels.

AR1: Kennedy and O'Hagan, Biometrika 2000. NARGP: Perdikaris et al., Proceedings of the Royal Society A, 2017.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.gaussian_process.kernels import WhiteKernel

from kfp_methods.components.tabular.fire.backends import MOST_ROWS, BackendChoice
from kfp_methods.components.tabular.fire.gaussian import Columns, FittedGaussian, fitted, smooth
from kfp_methods.components.tabular.fire.predictive import Backend, Fitted, Floats, Predictive, fit
from kfp_methods.components.tabular.fire.two_stage import Rows

_ROUNDS = 5
_DRAWS, _DRAWS_SEED = 50, 0
_PROCESS = BackendChoice("gp").make()  # of a thousand rows at most: its cost grows with their cube
Predictor = Callable[[Floats], Predictive]


def target_only(backend: Backend, rows: Rows) -> Predictor:
    """The rows of the target level alone."""
    high = rows.take(rows.level == rows.level.max())
    return fit(backend, high.X, high.y, high.X.shape[1]).predict


def pooled(backend: Backend, rows: Rows) -> Predictor:
    """The rows of all levels as one table, with the level as a column."""
    model = fit(backend, np.column_stack([rows.X, rows.level]), rows.y, rows.X.shape[1])
    top = rows.level.max()
    return lambda X: model.predict(np.column_stack([X, np.full(len(X), top)]))


def _two(rows: Rows) -> tuple[Fitted, Rows]:
    """A Gaussian process of the lower levels, as one, and the rows of the target level (a thousand at most)."""
    top = rows.level.max()
    low, high = rows.take(rows.level < top), rows.take(rows.level == top)
    if len(high.y) > MOST_ROWS["gp"]:  # what depends on their kernel's matrix needs the rows that it is of
        picked = np.random.default_rng((_DRAWS_SEED, 1)).choice(len(high.y), MOST_ROWS["gp"], replace=False)
        high = high.take(np.sort(picked))
    return fit(_PROCESS, low.X, low.y, low.X.shape[1]), high


def residual_process(rows: Rows) -> Predictor:
    """ResGP: a Gaussian process of what the lower one's mean misses."""
    low, high = _two(rows)
    added = fit(_PROCESS, high.X, high.y - low.predict(high.X).mean, high.X.shape[1])
    return lambda X: _sum(low.predict(X), added.predict(X), 1.0)


def autoregressive(rows: Rows) -> Predictor:
    """AR1: rho times the lower process plus an independent one; rho and its kernel by likelihood, in turns."""
    low, high = _two(rows)
    mean = low.predict(high.X).mean
    rho = _slope(mean, high.y)
    for _ in range(_ROUNDS):
        added = fit(_PROCESS, high.X, high.y - rho * mean, high.X.shape[1])
        if not isinstance(added, FittedGaussian):
            break
        before, rho = rho, _slope(mean, high.y, added)
        if abs(rho - before) <= 1e-3 * max(1.0, abs(rho)):
            break
    added = fit(_PROCESS, high.X, high.y - rho * mean, high.X.shape[1])
    return lambda X: _sum(low.predict(X), added.predict(X), rho)


def _slope(mean: Floats, y: Floats, noise: FittedGaussian | None = None) -> float:
    """Of y = rho mean + constant + noise, by (generalised) least squares."""
    design = np.column_stack([mean, np.ones(len(mean))])
    if np.ptp(mean) == 0:
        return 1.0
    if noise is not None:
        root = noise.process.L_
        design, y = np.linalg.solve(root, design), np.linalg.solve(root, y)
    return float(np.linalg.lstsq(design, y, rcond=None)[0][0])


def _sum(low: Predictive, added: Predictive, rho: float) -> Predictive:
    return Predictive.normal(rho * low.mean + added.mean, rho**2 * low.variance + added.variance)


def nonlinear_autoregressive(rows: Rows) -> Predictor:
    """NARGP: a process of x and the lower level's value, kernel k(x) k(value) + k(x).

    The lower level's uncertainty is carried through by 50 of its draws.
    """
    low, high = _two(rows)
    d = high.X.shape[1]
    if np.ptp(high.y) == 0:
        return fit(_PROCESS, high.X, high.y, d).predict
    inputs = tuple(range(d))
    kernel = Columns(smooth(d, "rbf"), inputs) * Columns(smooth(1, "rbf"), (d,)) + Columns(smooth(d, "rbf"), inputs)
    joint = fitted(kernel + WhiteKernel(1e-2, (1e-8, 1.0)), np.column_stack([high.X, low.predict(high.X).mean]), high.y)

    def predict(X: Floats) -> Predictive:
        below = low.predict(X)
        noise = np.random.default_rng(_DRAWS_SEED).standard_normal((_DRAWS, len(X)))
        values = below.mean + noise * np.sqrt(below.variance)
        shown = np.column_stack([np.tile(X, (_DRAWS, 1)), values.ravel()])
        found = joint.predict(shown)
        means = found.mean.reshape(_DRAWS, -1)
        return Predictive.normal(means.mean(0), found.variance.reshape(_DRAWS, -1).mean(0) + means.var(0))

    return predict
