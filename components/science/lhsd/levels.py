"""Every method at every noise level: the level that suits one estimate need not suit another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kfp_methods.components.science.lhsd import baselines
from kfp_methods.components.science.lhsd.choices import BaselineName
from kfp_methods.components.science.lhsd.estimate import Quadrature, spectra
from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.score_models import ScoreModel


@dataclass(frozen=True)
class ErrorsByLevel:
    """Mean absolute errors on the same points.

    Attributes:
        sigmas: noise levels, rising [S].
        errors: by method ("lhsd", "flipd", "nb, difference", "nb, ratio"), one for each level [S].
        n_points: how many points they are means over.
    """

    sigmas: tuple[float, ...]
    errors: Mapping[str, tuple[float, ...]]
    n_points: int

    def least(self, method: str) -> tuple[float, float] | None:
        """The smallest error of the methods of that name, under any rule, and its noise level; None without one."""
        found = [
            (error, sigma)
            for name, errors in self.errors.items()
            if name.partition(",")[0] == method
            for error, sigma in zip(errors, self.sigmas, strict=True)
        ]
        return min(found) if found else None


def errors_by_level(
    model: ScoreModel,
    x: Tensor,
    truth: NDArray[np.float64],
    sigmas: Sequence[float],
    filter: Filter,
    quadrature: Quadrature,
    names: Sequence[BaselineName],
    follow: Callable[[Iterable[float], str], Iterator[float]],
    label: str,
) -> ErrorsByLevel:
    """LHSD's errors at points x [n, D] of known dimensions `truth` [n], and those of the named methods of a score."""
    found: dict[str, list[float]] = {}
    for sigma in follow(list(sigmas), label):
        for name, values in _estimates(model, x, sigma, filter, quadrature, names).items():
            found.setdefault(name, []).append(float(np.abs(values.numpy() - truth).mean()))
    return ErrorsByLevel(tuple(sigmas), {name: tuple(errors) for name, errors in found.items()}, len(x))


def _estimates(
    model: ScoreModel,
    x: Tensor,
    sigma: float,
    filter: Filter,
    quadrature: Quadrature,
    names: Sequence[BaselineName],
) -> dict[str, Tensor]:
    found = {"lhsd": spectra(model, x, sigma, quadrature).dimension(filter)[0]}
    if "flipd" in names:
        found["flipd"] = baselines.flipd(model, x, sigma, quadrature)
    if "nb" in names:
        singular = baselines.normal_spectra(model, x, sigma, seed=quadrature.seed)
        found["nb, difference"] = baselines.bundle_dimension(singular, "difference")
        found["nb, ratio"] = baselines.bundle_dimension(singular, "ratio")
    return found
