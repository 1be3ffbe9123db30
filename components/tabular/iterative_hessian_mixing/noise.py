"""Noise for a stack of independent releases: one source for each, so that a release does not depend on its company."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.privacy import Normals, SecureNormals

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """Standard normal numbers for B releases: from B sources, or `copies` from each of fewer."""

    sources: Sequence[Normals]
    copies: int = 1

    @classmethod
    def seeded(cls, seeds: Sequence[int], *stream: int) -> Noise:
        """One repeatable source for each seed; `stream` keeps the uses of a seed apart."""
        return cls([_generator(seed, *stream) for seed in seeds])

    @classmethod
    def joint(cls, size: int, seed: int, *stream: int) -> Noise:
        """`size` releases from one repeatable source, where they are many and none has to be repeated alone."""
        return cls([_generator(seed, *stream)], size)

    @classmethod
    def secure(cls) -> Noise:
        """One release, whose noise cannot be predicted or repeated."""
        return cls([SecureNormals()])

    def __len__(self) -> int:
        return len(self.sources) * self.copies

    def normal(self, *shape: int) -> Floats:
        """[B, *shape]."""
        return np.concatenate([source.standard_normal((self.copies, *shape)) for source in self.sources])


def _generator(seed: int, *stream: int) -> np.random.Generator:
    """Its own for each stream: a list [seed, *stream] would not do, for numpy takes [1, 2] and [1, 2, 0] as one."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))
