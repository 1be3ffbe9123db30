"""What an estimate costs at several dimensions, with a score whose own cost hardly grows with them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kfp_methods.components.science.lhsd.baselines import flipd, normal_bundle
from kfp_methods.components.science.lhsd.estimate import Quadrature, spectra
from kfp_methods.components.science.score_models import CallableScore
from kfp_methods.components.science.score_networks import ResidualMLP

_NETWORK_FEATURES, _WIDTH, _BLOCKS = 64, 256, 3
_POINTS, _REPEATS = 4, 3
_SIGMA = 0.2


@dataclass(frozen=True)
class Cost:
    """Of one point in D dimensions, each the median of three timings: seconds, and LHSD's derivative products."""

    n_features: int
    lhsd_seconds: float
    flipd_seconds: float
    nb_seconds: float
    products: int

    @property
    def nb_over_lhsd(self) -> float:
        return self.nb_seconds / self.lhsd_seconds


def costs(dimensions: Sequence[int], quadrature: Quadrature, seed: int, device: str = "cpu") -> list[Cost]:
    """Costs at each dimension D >= 64.

    The score is a network of 64 coordinates with a linear rest, so that its cost is nearly the same at every D.
    """
    return [_cost(D, quadrature, seed, device) for D in dimensions]


def _cost(D: int, quadrature: Quadrature, seed: int, device: str) -> Cost:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResidualMLP(_NETWORK_FEATURES, _WIDTH, _BLOCKS).to(device).requires_grad_(False)
        x = torch.randn(_POINTS, D).to(device)

    def function(y: Tensor, sigma: float) -> Tensor:
        learned = network(y[:, :_NETWORK_FEATURES], y.new_full((len(y), 1), sigma))
        return torch.cat([learned, -y[:, _NETWORK_FEATURES:]], dim=1)

    model = CallableScore(function)
    products = spectra(model, x[:1], _SIGMA, quadrature).products
    return Cost(
        n_features=D,
        lhsd_seconds=_timed(lambda: spectra(model, x, _SIGMA, quadrature), device) / _POINTS,
        flipd_seconds=_timed(lambda: flipd(model, x, _SIGMA, quadrature), device) / _POINTS,
        nb_seconds=_timed(lambda: normal_bundle(model, x, _SIGMA, seed=seed), device) / _POINTS,
        products=products,
    )


def _timed(work: Callable[[], object], device: str) -> float:
    """Median seconds of three runs after one that warms up."""
    work()
    taken = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
