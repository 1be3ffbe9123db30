"""Random functions of the prior: draws of Gaussian processes, random networks, sparse polynomials, sums of trees.

Every draw is a value for each row of `x` [rows, F] in [0, 1]; `standardised` gives it mean 0 and standard deviation 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

_JITTER = 1e-6
_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (torch.tanh, torch.relu, torch.sin, torch.abs)


class Source:
    """Draws from one generator; all tensors are on its device."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.generator = Generator(device).manual_seed(seed)
        self.device = device

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator, device=self.device)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Uniform numbers in [low, high)."""
        return low + (high - low) * torch.rand(shape, generator=self.generator, device=self.device)

    def number(self, low: float, high: float) -> float:
        """One uniform number."""
        return float(self.uniform(low, high, 1))

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(torch.randint(low, high + 1, (1,), generator=self.generator, device=self.device))

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.number(0, 1) < p


def standardised(f: Tensor) -> Tensor:
    """f [..., rows] with mean 0 and standard deviation 1 over the rows; what is constant becomes 0."""
    centred = f - f.mean(-1, keepdim=True)
    sd = centred.std(-1, correction=0, keepdim=True)
    return torch.where(sd > 1e-9, centred / sd.clamp_min(1e-9), 0.0)


def gaussian_processes(x: Tensor, source: Source) -> Tensor:
    """A draw [batch, rows] for each x [batch, rows, F]: RBF, Matérn 3/2 or 5/2, a lengthscale for each input.

    Log-lengthscales are normal around log(0.5 sqrt(F)), sd 0.6; an input is irrelevant with probability 0.25, not all.
    """
    batch, rows, n_features = x.shape
    lengthscales = torch.exp(math.log(0.5 * math.sqrt(n_features)) + 0.6 * source.normal(batch, 1, n_features))
    relevant = source.uniform(0, 1, batch, n_features) >= 0.25
    kept = torch.randint(n_features, (batch,), generator=source.generator, device=source.device)
    relevant[torch.arange(batch, device=source.device), kept] |= ~relevant.any(1)
    scaled = (x / lengthscales * relevant[:, None]).double()
    kernel = _kernels(torch.cdist(scaled, scaled), torch.randint(3, (batch,), generator=source.generator,
                                                                 device=source.device))  # fmt: skip
    return (_roots(kernel) @ source.normal(batch, rows, 1).double())[..., 0].float()


def _kernels(distance: Tensor, kinds: Tensor) -> Tensor:
    a, b = math.sqrt(3) * distance, math.sqrt(5) * distance
    smooth = torch.exp(-(distance**2) / 2)
    matern3, matern5 = (1 + a) * torch.exp(-a), (1 + b + b**2 / 3) * torch.exp(-b)
    return torch.stack([smooth, matern3, matern5])[kinds, torch.arange(len(kinds), device=kinds.device)]


def _roots(kernel: Tensor) -> Tensor:
    """Cholesky factors, with ten times the jitter for those that have none."""
    eye = torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)
    jitter = _JITTER
    while True:
        roots, failed = torch.linalg.cholesky_ex(kernel + jitter * eye)
        if not bool(failed.any()):
            return roots
        jitter *= 10


def random_network(x: Tensor, source: Source) -> Tensor:
    """Of 1 to 4 hidden layers of one width in 8..64, on 2x - 1; 30% of the weights are 0, the read-out is linear."""
    h, width = 2 * x - 1, source.integer(8, 64)
    for _ in range(source.integer(1, 4)):
        fan_in = h.shape[1]
        weights = source.normal(fan_in, width) * source.number(1, 3) / math.sqrt(fan_in)
        weights = weights * (source.uniform(0, 1, fan_in, width) >= 0.3)
        h = _ACTIVATIONS[source.integer(0, 3)](h @ weights + source.normal(width))
    return h @ source.normal(width)


def sparse_polynomial(x: Tensor, source: Source) -> Tensor:
    """2 to 2 + 2F monomials of degree 1 to 4 in 2x - 1, with standard normal coefficients."""
    n_features = x.shape[1]
    centred, f = 2 * x - 1, torch.zeros(len(x), device=x.device)
    for _ in range(source.integer(2, 2 + 2 * n_features)):
        factors = torch.randint(n_features, (source.integer(1, 4),), generator=source.generator, device=x.device)
        f = f + float(source.normal(1)) * centred[:, factors].prod(1)
    return f


def trees(x: Tensor, source: Source) -> Tensor:
    """A sum of 1 to 8 oblivious trees of depth 1 to 4: thresholds at random rows, standard normal leaves."""
    rows, n_features = x.shape
    f = torch.zeros(rows, device=x.device)
    for _ in range(source.integer(1, 8)):
        depth = source.integer(1, 4)
        columns = torch.randint(n_features, (depth,), generator=source.generator, device=x.device)
        at = torch.randint(rows, (depth,), generator=source.generator, device=x.device)
        above = x[:, columns] > x[at, columns]
        f = f + source.normal(2**depth)[above.long() @ 2 ** torch.arange(depth, device=x.device)]
    return f
