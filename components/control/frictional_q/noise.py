"""Random numbers of several seeds side by side: each seed's own stream, the same whoever else runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor


def derived_seed(*numbers: int) -> int:
    """A seed for one purpose of a run, from the run's seed and the purpose's numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


class Noise:
    """One generator for each of n seeds; every draw has the seeds as its first axis."""

    def __init__(self, seeds: Sequence[int], purpose: int, device: str = "cpu") -> None:
        self.device = device
        self.generators = [Generator(device).manual_seed(derived_seed(seed, purpose)) for seed in seeds]

    def normal(self, *shape: int) -> Tensor:
        """Standard normal [n, *shape]."""
        return torch.stack([torch.randn(shape, generator=g, device=self.device) for g in self.generators])

    def uniform(self, *shape: int) -> Tensor:
        """Uniform in ±1 [n, *shape]."""
        return torch.stack([torch.rand(shape, generator=g, device=self.device) for g in self.generators]) * 2 - 1

    def rows(self, below: int, count: int) -> Tensor:
        """Row numbers, with replacement [n, count]."""
        return torch.stack([torch.randint(below, (count,), generator=g, device=self.device) for g in self.generators])

    def states(self, name: str) -> dict[str, Generator]:
        """The generators by name, to save and restore."""
        return {f"{name}_{index}": generator for index, generator in enumerate(self.generators)}
