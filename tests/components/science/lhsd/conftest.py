"""Analytic score models whose Hessians are known, and short runs on a user's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kfp_methods.components.science.lhsd.component import LhsdInputs, LhsdOutputs, load, run
from kfp_methods.components.science.score_models import CallableScore, level_of
from kfp_methods.context import Context
from tests.components.science.lhsd import own_data


@dataclass(frozen=True)
class GaussianPlane:
    """A Gaussian of variance s^2 on a d-plane through the origin of R^D: everything about it is known."""

    D: int
    d: int
    s: float = 1.0
    seed: int = 0

    @property
    def plane(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.linalg.qr(torch.randn(self.D, self.d, generator=generator, dtype=torch.double))[0]

    def precision(self, a: float, b: float) -> Tensor:
        """H of -log p_t, p_t the law of a x0 + b eps."""
        P = self.plane @ self.plane.T
        return P / (a * a * self.s**2 + b * b) + (torch.eye(self.D, dtype=torch.double) - P) / b**2

    def model(self, process: str = "ve") -> CallableScore:
        def score(y: Tensor, sigma: float) -> Tensor:
            level = level_of(process, sigma)  # type: ignore[arg-type]
            return -y @ self.precision(level.a, level.b).to(y)

        return CallableScore(score, process=process)  # type: ignore[arg-type]

    def points(self, n: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1)
        return self.s * torch.randn(n, self.d, generator=generator, dtype=torch.double) @ self.plane.T


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """What a run may ask of the platform, on the CPU."""
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Parameters with the URIs of a user's files."""
    return own_data.make(tmp_path_factory.mktemp("own"))


@pytest.fixture
def execute_here(context: Context) -> Callable[..., LhsdOutputs]:
    """Loads and runs the method in this process, small unless told otherwise."""

    def execute(**parameters: Any) -> LhsdOutputs:
        inputs = LhsdInputs.parse({"preset": "smoke", **parameters})
        return run(inputs, load(inputs, context), context)

    return execute
