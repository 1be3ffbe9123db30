"""Rows on a GPU, for tables of millions of rows: explicit sketches in single precision, everything else in double.

Sketches' noise comes from torch's generator, seeded by the release's own source: for simulations, not for a release.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats, Moments

_BLOCK = 2**27  # numbers in the largest temporary array


class DeviceRegression:
    """Rows of norm at most 1 with their targets, sketched explicitly; see `regression.Data`.

    Attributes:
        X: rows [n, d], float32.
        y: targets [n], float64.
        moments: of all rows.
    """

    def __init__(self, X: Tensor, y: Tensor) -> None:
        """Of tensors on one device."""
        self.X, self.y = X, y
        n, d = X.shape
        gram, cross = torch.zeros(d, d, dtype=torch.double), torch.zeros(d, dtype=torch.double)
        gram, cross = gram.to(X.device), cross.to(X.device)
        for rows in self._blocks(d):
            block = X[rows].double()
            gram += block.T @ block
            cross += block.T @ y[rows]
        self.moments = Moments(gram.cpu().numpy(), cross.cpu().numpy(), float(y @ y), n)

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.X.shape[1]

    @cached_property
    def least(self) -> float:
        """The least eigenvalue of X'X, not below 0."""
        return max(0.0, float(np.linalg.eigvalsh(self.moments.gram)[0]))

    def gradient(self, theta: Floats, clip: float) -> Floats:
        """X' clip(y - X theta, -clip, clip) for each of theta [B, d]: [B, d]."""
        parameters = torch.from_numpy(theta).to(self.X.device)
        total = torch.zeros_like(parameters)
        for rows in self._blocks(self.d + len(theta)):
            block = self.X[rows].double()
            total += (self.y[rows, None] - block @ parameters.T).clamp(-clip, clip).T @ block
        return total.cpu().numpy()

    def sketched_hessian(self, rows: int, level: Floats, noise: Noise) -> Floats:
        """A'A / rows, A = S X + sqrt(level) N for each of level [B]: [B, d, d]."""
        seeds = noise.normal(1).view(np.int64).ravel().tolist()
        return np.stack([self._hessian(rows, *pair) for pair in zip(level.tolist(), seeds, strict=True)])

    def _hessian(self, k: int, level: float, seed: int) -> Floats:
        generator = torch.Generator(self.X.device).manual_seed(seed)

        def normal(columns: int) -> Tensor:
            return torch.randn(k, columns, generator=generator, device=self.X.device)

        A = level**0.5 * normal(self.d).double()
        for block in self._blocks(k):
            A += (normal(block.stop - block.start) @ self.X[block]).double()
        return (A.T @ A / k).cpu().numpy()

    def _blocks(self, width: int) -> list[slice]:
        n, size = len(self.y), max(1, _BLOCK // width)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def directions(n: int, d: int, seed: int, device: str) -> DeviceRegression:
    """As `sample.directions`, made on the device: rows of uniform direction, y linear in them up to N(0, 0.02^2)."""
    generator = torch.Generator(device).manual_seed(seed)
    X = torch.nn.functional.normalize(torch.randn(n, d, generator=generator, device=device), dim=1)
    X *= 1 - 1e-6  # for single precision leaves some norms a little above 1, which the guarantee does not allow
    signal = X @ torch.randn(d, generator=generator, device=device)
    noise = 0.02 * torch.randn(n, generator=generator, device=device)
    return DeviceRegression(X, (0.9 * signal / signal.abs().max() + noise).clamp(-1, 1).double())
