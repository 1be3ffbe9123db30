"""Ordered pairs (j, k) of K models, j shown first, as one axis of length P = K (K - 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.dmlrank.choices import LOSS, WIN

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """j [P] and k [P], in the order (0, 1), (0, 2), ..., (1, 0), ..."""

    K: int

    @cached_property
    def j(self) -> Ints:
        """Shown first [P]."""
        return np.repeat(np.arange(self.K), self.K - 1)

    @cached_property
    def k(self) -> Ints:
        """Shown second [P]."""
        others = np.tile(np.arange(self.K), (self.K, 1))
        return others[~np.eye(self.K, dtype=bool)]

    @property
    def size(self) -> int:
        """Number of ordered pairs."""
        return self.K * (self.K - 1)

    @cached_property
    def mirror(self) -> Ints:
        """Where (k, j) is [P]."""
        return self.at(self.k, self.j)

    @cached_property
    def rising(self) -> NDArray[np.bool_]:
        """Those with j < k [P]."""
        return self.j < self.k

    def at(self, j: Ints, k: Ints) -> Ints:
        """Where pairs are."""
        return j * (self.K - 1) + k - (k > j)

    def square(self, values: Floats) -> Floats:
        """[..., P] as matrices [..., K, K] with a diagonal of zeros."""
        found = np.zeros((*values.shape[:-1], self.K, self.K))
        found[..., self.j, self.k] = values
        return found

    def flat(self, matrices: Floats) -> Floats:
        """The inverse of `square`."""
        return np.asarray(matrices[..., self.j, self.k])


def swapped(values: Floats, axis: int = -1) -> Floats:
    """Wins and losses exchanged along an axis of classes."""
    order = np.arange(values.shape[axis])
    order[[WIN, LOSS]] = LOSS, WIN
    return np.asarray(np.take(values, order, axis=axis))
