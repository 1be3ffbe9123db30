"""A user's own tabular foundation model as a regressor: a TabPFN or TabICL checkpoint, read by its own package.

Neither package is a dependency, and nothing is ever downloaded. Check the licence of the weights: those of TabPFN 2.5
and later are not for commercial use; TabICL's are BSD-3-Clause.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kfp_methods.components.tabular.fire.predictive import Floats, Predictive


class UnusableCheckpointError(Exception):
    """`problem` and `remedy` for the user."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


def check(backend: str, path: Path) -> None:
    """Reads the checkpoint's tensors and nothing else, and looks for the package.

    Raises:
        UnusableCheckpointError: the file is none, would run code when it is read, or the package is not there.
    """
    if not path.is_file():
        raise UnusableCheckpointError("is a folder", f"Give the {backend} checkpoint itself, one file")
    if path.suffix == ".safetensors":
        _check_safetensors(backend, path)
    else:
        _check_pickle(path)
    if importlib.util.find_spec(backend) is None:
        raise UnusableCheckpointError(f"needs the package {backend}, which is not installed", f"pip install {backend}")


def _check_safetensors(backend: str, path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    if backend != "tabpfn":
        raise UnusableCheckpointError("is safetensors, which tabicl does not read", "Give its .ckpt")
    try:
        with safe_open(path, framework="np") as file:
            file.keys()
    except SafetensorError as error:
        raise UnusableCheckpointError(f"is no safetensors file ({error})", "Copy or export it again") from None


def _check_pickle(path: Path) -> None:
    import torch

    try:
        torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # a file of any kind makes torch raise anything
        first = str(error).splitlines()[0][:150]
        problem = f"does not load as plain tensors ({first}); what needs full unpickling can run code"
        raise UnusableCheckpointError(problem, "Give a checkpoint of tensors, or for tabpfn safetensors") from None


class TabPfn:
    """TabPFN with its own bar distribution. make: builds the package's regressor."""

    name, sees_fidelity = "tabpfn", True

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """As asked for."""
        return wanted

    def fit(self, X: Floats, y: Floats, own: int) -> FittedTabPfn:
        """Shows it the context."""
        return FittedTabPfn(self.make().fit(X, y))


class FittedTabPfn:
    """A TabPFN regressor with its context."""

    def __init__(self, regressor: Any) -> None:
        self.regressor = regressor

    def predict(self, X: Floats) -> Predictive:
        """Moments and quantiles of the full predictive distribution."""
        found = self.regressor.predict(X, output_type="full")
        criterion, logits = found["criterion"], found["logits"]

        def quantiles(levels: Floats) -> Floats:
            return np.column_stack([_plain(criterion.icdf(logits, float(level))) for level in levels])

        return Predictive(_plain(criterion.mean(logits)), _plain(criterion.variance(logits)), quantiles)


class TabIcl:
    """TabICL, which answers with many quantiles. make: builds the package's regressor."""

    name, sees_fidelity = "tabicl", True

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """As asked for."""
        return wanted

    def fit(self, X: Floats, y: Floats, own: int) -> FittedTabIcl:
        """Shows it the context."""
        return FittedTabIcl(self.make().fit(X, y))


class FittedTabIcl:
    """A TabICL regressor with its context."""

    def __init__(self, regressor: Any) -> None:
        self.regressor = regressor

    def predict(self, X: Floats) -> Predictive:
        """The mean; the variance as the integral of q(a)^2 over levels a, less mean^2; quantiles between its own."""
        found = self.regressor.predict(X, output_type=["mean", "raw_quantiles"])
        mean = np.asarray(found["mean"], np.float64)
        raw = np.sort(np.asarray(found["raw_quantiles"], np.float64), axis=1)
        own = np.arange(1, raw.shape[1] + 1) / (raw.shape[1] + 1)
        variance = np.maximum(_integral(raw**2, own) - mean**2, 0.0)

        def quantiles(levels: Floats) -> Floats:
            return np.vstack([np.interp(levels, own, row) for row in raw])

        return Predictive(mean, variance, quantiles)


def _integral(values: Floats, levels: Floats) -> Floats:
    """Over (0, 1): by trapezes, constant outside of the outermost levels."""
    edges = levels[0] * values[:, 0] + (1 - levels[-1]) * values[:, -1]
    return np.asarray(np.trapezoid(values, levels, axis=1) + edges)


def _plain(tensor: Any) -> Floats:
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor, np.float64)
