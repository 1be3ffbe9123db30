"""Bounded rows and targets, and what the mechanisms ask of them: moments, gradients, Gaussian sketches.

Everything takes a stack of B parameter vectors or releases at once; rows are visited in blocks, so that memory stays
bounded whatever B and the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise

Floats = NDArray[np.float64]

_BLOCK = 2**24  # numbers in the largest temporary array
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Moments:
    """X'X [d, d], X'y [d], y'y and the number of rows: enough for every mean squared error."""

    gram: Floats
    cross: Floats
    square: float
    n: int

    @classmethod
    def of(cls, X: Floats, y: Floats) -> Moments:
        """Of X [n, d] and y [n]."""
        return cls(X.T @ X, X.T @ y, float(y @ y), len(y))

    def mse(self, theta: Floats) -> Floats:
        """Mean squared error of each of theta [..., d]."""
        quadratic = np.einsum("...i,ij,...j->...", theta, self.gram, theta)
        return np.maximum(0.0, quadratic - 2 * theta @ self.cross + self.square) / self.n

    @cached_property
    def least_squares(self) -> Floats:
        """The minimiser of the mean squared error, that of least norm where there are several [d]."""
        return np.asarray(np.linalg.lstsq(self.gram, self.cross, rcond=None)[0], np.float64)


class Data(Protocol):
    """What a mechanism may ask of the data."""

    moments: Moments

    @property
    def d(self) -> int:
        """Number of columns."""

    @property
    def least(self) -> float:
        """The least eigenvalue of X'X."""

    def gradient(self, theta: Floats, clip: float) -> Floats:
        """X' clip(y - X theta, -clip, clip) for each of theta [B, d]: [B, d]."""

    def sketched_hessian(self, rows: int, level: Floats, noise: Noise) -> Floats:
        """A'A / rows, A = S X + sqrt(level) N for each of level [B]; S, N standard normal: [B, d, d]."""


class Regression:
    """Rows of norm at most 1 with their targets.

    Attributes:
        X: rows [n, d].
        y: targets [n].
        explicit: sketch the rows themselves. Otherwise rows of a sketch are drawn from N(0, X'X + level I), which is
            their law exactly and costs nothing that grows with n.
        moments: of all rows.
    """

    def __init__(self, X: Floats, y: Floats, *, clip: float = 1.0, explicit: bool = False) -> None:
        """Raises ValueError when a row's norm is above 1 or |y| above `clip`: privacy would not hold."""
        check_bounds(X, y, clip)
        self.X, self.y, self.explicit = X, y, explicit
        self.moments = Moments.of(X, y)

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.X.shape[1]

    @cached_property
    def least(self) -> float:
        """The least eigenvalue of X'X, not below 0."""
        return max(0.0, float(np.linalg.eigvalsh(self.moments.gram)[0]))

    def gradient(self, theta: Floats, clip: float) -> Floats:
        """See `Data`."""
        total = np.zeros_like(theta)
        for rows in self._blocks(len(theta)):
            residual = np.clip(self.y[rows, None] - self.X[rows] @ theta.T, -clip, clip)
            total += residual.T @ self.X[rows]
        return total

    def sketched_hessian(self, rows: int, level: Floats, noise: Noise) -> Floats:
        """See `Data`."""
        A = self._explicit(rows, level, noise) if self.explicit else sketch(self.moments.gram, rows, level, noise)
        return A.transpose(0, 2, 1) @ A / rows

    def _explicit(self, rows: int, level: Floats, noise: Noise) -> Floats:
        A = np.sqrt(level)[:, None, None] * noise.normal(rows, self.d)
        for block in self._blocks(len(level) * rows):
            A += noise.normal(rows, block.stop - block.start) @ self.X[block]
        return A

    def _blocks(self, width: int) -> Iterator[slice]:
        n, size = len(self.y), max(1, _BLOCK // width)
        return (slice(start, min(start + size, n)) for start in range(0, n, size))


def sketch(gram: Floats, rows: int, level: Floats, noise: Noise) -> Floats:
    """Sketches [B, rows, d] of rows whose second moments are `gram` [d, d], with the noise `level` [B]."""
    values, vectors = np.linalg.eigh(gram)
    # A root of X'X + level I, from one decomposition for all levels; it exists where rounding makes X'X indefinite.
    root = np.sqrt(np.maximum(values, 0.0) + level[:, None])[:, :, None] * vectors.T
    return noise.normal(rows, len(gram)) @ root


def check_bounds(X: Floats, y: Floats, clip: float) -> None:
    """Raises ValueError unless every row of X [n, d] has norm at most 1 and every |y| is at most `clip`."""
    long = np.einsum("ij,ij->i", X, X) > 1 + _ROUNDING
    if long.any():
        raise ValueError(f"{long.mean():.2%} of the rows have a norm above 1")
    large = np.abs(y) > clip * (1 + _ROUNDING)
    if large.any():
        raise ValueError(f"{large.mean():.2%} of the targets are above {clip:g} in size")
