"""Gaussian process regression of one level, and the classical ways of joining two levels by it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, WhiteKernel

from kfp_methods.components.tabular.fire.predictive import FEW, Floats, Predictive

_SCALES, _NOISES = (1e-2, 1e2), (1e-8, 1.0)
_ROWS_AT_ONCE = 4_096
_OPTIMISED_ROWS = 300


def smooth(n_features: int, kind: str) -> Kernel:
    """A variance times a kernel with a lengthscale for each feature: "rbf", or "matern" (5/2)."""
    lengths = np.full(n_features, 0.5)
    one = RBF(lengths, _SCALES) if kind == "rbf" else Matern(lengths, _SCALES, nu=2.5)
    return ConstantKernel(1.0, (1e-4, 1e4)) * one


class FittedGaussian:
    """A Gaussian process; the predictive variance is that of y, its noise included."""

    def __init__(self, process: GaussianProcessRegressor) -> None:
        self.process = process

    def predict(self, X: Floats) -> Predictive:
        """Normal."""
        blocks = np.array_split(X, max(1, -(-len(X) // _ROWS_AT_ONCE)))
        means, sds = zip(*(self.process.predict(block, return_std=True) for block in blocks), strict=True)
        return Predictive.normal(np.concatenate(means), np.concatenate(sds) ** 2)

    @property
    def evidence(self) -> float:
        """Log marginal likelihood of the (standardised) targets."""
        return float(self.process.log_marginal_likelihood_value_)


def fitted(kernel: Kernel, X: Floats, y: Floats, *, normalise: bool = True, optimise: bool = True) -> FittedGaussian:
    """With the kernel's hyperparameters by marginal likelihood: of a random part, where there are many rows."""
    if optimise and len(X) > _OPTIMISED_ROWS:
        part = np.random.default_rng((len(X), 1)).choice(len(X), _OPTIMISED_ROWS, replace=False)
        if np.ptp(y[part]) > 0:
            kernel, optimise = fitted(kernel, X[part], y[part], normalise=normalise).process.kernel_, False
    process = GaussianProcessRegressor(
        kernel, alpha=1e-10, normalize_y=normalise, optimizer="fmin_l_bfgs_b" if optimise else None
    )
    with warnings.catch_warnings():  # a lengthscale at its bound says that an input does not matter
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FittedGaussian(process.fit(X, y))


class Gaussian:
    """The backend of the paper's FIRE-GP: no fidelity column, conditioned on the quantiles 0.1 and 0.9.

    Of a squared exponential and a Matérn 5/2 kernel, both with a lengthscale for each input, the likelier is taken.
    """

    name, sees_fidelity = "gp", False

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """Two: the more columns, the more lengthscales to find from few rows."""
        return FEW

    def fit(self, X: Floats, y: Floats, own: int) -> FittedGaussian:
        """X [n, F], y [n]."""
        tried = [fitted(smooth(X.shape[1], kind) + WhiteKernel(1e-2, _NOISES), X, y) for kind in ("rbf", "matern")]
        return max(tried, key=lambda one: one.evidence)


class Columns(Kernel):
    """Another kernel on some of the columns."""

    def __init__(self, kernel: Kernel, columns: tuple[int, ...]) -> None:
        self.kernel, self.columns = kernel, columns

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As scikit-learn asks for them."""
        own = {"kernel": self.kernel, "columns": self.columns}
        return own | ({f"kernel__{k}": v for k, v in self.kernel.get_params().items()} if deep else {})

    @property
    def hyperparameters(self) -> list[Any]:
        """Those of the other kernel."""
        return list(self.kernel.hyperparameters)

    @property
    def theta(self) -> Floats:
        """Logarithms of its free hyperparameters."""
        return np.asarray(self.kernel.theta)

    @theta.setter
    def theta(self, theta: Floats) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> Floats:
        """Of theta."""
        return np.asarray(self.kernel.bounds)

    def __call__(self, X: Floats, Y: Floats | None = None, eval_gradient: bool = False) -> Any:
        columns = list(self.columns)
        return self.kernel(X[:, columns], None if Y is None else Y[:, columns], eval_gradient)

    def diag(self, X: Floats) -> Floats:
        """The diagonal of the kernel's matrix."""
        return np.asarray(self.kernel.diag(X[:, list(self.columns)]))

    def is_stationary(self) -> bool:
        """Whether it depends on differences alone."""
        return bool(self.kernel.is_stationary())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and (self.columns, self.kernel) == (other.columns, other.kernel)

    __hash__ = None  # type: ignore[assignment]
