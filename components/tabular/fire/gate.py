"""How close the network comes to the exact posterior on tasks whose law is known: `python -m …fire.gate`.

Gaussian processes with one of the prior's kernels and its lengthscales, unit variance, noise sd 0.1, one to three
inputs, 20 to 50 rows of context. The exact posterior knows the kernel; the network is told nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import solve_triangular
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, Matern

from kfp_methods.components.tabular.fire.pfn import WEIGHTS, FittedPfn, Pfn, network
from kfp_methods.components.tabular.fire.predictive import Floats

NOISE = 0.1
_QUERIES = 50


@dataclass(frozen=True)
class GpTask:
    """Rows of a Gaussian process with a known kernel, and queries with their (noisy) targets."""

    X: Floats
    y: Floats
    queries: Floats
    truth: Floats
    kernel: Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Gate:
    """gap: mean negative log density less that of the exact posterior, nats; coverage: of 80% intervals."""

    gap: float
    coverage: float
    tasks: int


def gp_task(rng: np.random.Generator) -> GpTask:
    """One at random."""
    d, n = int(rng.integers(1, 4)), int(rng.choice([20, 30, 40, 50]))
    lengths = np.exp(np.log(0.5 * np.sqrt(d)) + 0.6 * rng.standard_normal(d))
    kernel = [RBF(lengths), Matern(lengths, nu=1.5), Matern(lengths, nu=2.5)][rng.integers(3)]
    X = rng.random((n + _QUERIES, d))
    root = np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(len(X)))
    y = root @ rng.standard_normal(len(X)) + NOISE * rng.standard_normal(len(X))
    return GpTask(X[:n], y[:n], X[n:], y[n:], kernel)


def exact_posterior(task: GpTask) -> tuple[Floats, Floats]:
    """Mean and variance of the queries' targets, noise included [m]."""
    root = np.linalg.cholesky(task.kernel(task.X, task.X) + NOISE**2 * np.eye(len(task.X)))
    half = solve_triangular(root, task.kernel(task.X, task.queries), lower=True)
    mean = half.T @ solve_triangular(root, task.y, lower=True)
    return mean, 1 + NOISE**2 - np.sum(half**2, axis=0)


def measure(n_tasks: int = 200, seed: int = 0, path: Path = WEIGHTS) -> Gate:
    """The gate of the weights in `path`."""
    rng, gaps, held = np.random.default_rng((seed, 1)), [], []
    for _ in range(n_tasks):
        task = gp_task(rng)
        mean, variance = exact_posterior(task)
        fitted = Pfn(path=path).fit(task.X, task.y, task.X.shape[1])
        gaps.append(np.mean(norm.logpdf(task.truth, mean, np.sqrt(variance)) - _log_density(fitted, task)))
        low, high = fitted.predict(task.queries).quantiles(np.array([0.1, 0.9])).T
        held.append(np.mean((low <= task.truth) & (task.truth <= high)))
    return Gate(round(float(np.mean(gaps)), 3), round(float(np.mean(held)), 3), n_tasks)


def _log_density(fitted: FittedPfn, task: GpTask) -> Floats:
    """Of the queries' targets under the bars' mixture over the orders of columns."""
    import torch

    _, bars = network(fitted.pfn.path, fitted.pfn.device)
    p = fitted._probabilities(torch.from_numpy(fitted._columns(task.queries))[None])
    y = torch.from_numpy((task.truth - fitted.mean) / fitted.sd)
    return np.asarray(bars.log_density(p.log(), y).numpy()) - np.log(fitted.sd)


def main() -> None:
    """Prints the gate as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    print(json.dumps(asdict(measure(options.tasks, path=options.weights))))


if __name__ == "__main__":
    main()
