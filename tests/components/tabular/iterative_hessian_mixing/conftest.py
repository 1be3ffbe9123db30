"""Small regressions, and runs in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kfp_methods.components.tabular.iterative_hessian_mixing import sample
from kfp_methods.components.tabular.iterative_hessian_mixing.component import (
    IterativeHessianMixingInputs,
    IterativeHessianMixingOutputs,
    load,
    run,
)
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Regression
from kfp_methods.components.tabular.iterative_hessian_mixing.scaling import Scaling
from kfp_methods.context import Context
from tests.components.tabular.iterative_hessian_mixing import own_data


def regression(n: int = 400, d: int = 5, seed: int = 0, *, explicit: bool = False) -> Regression:
    """Rows of uneven directions, norm at most 1, and a linear target well inside its bounds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(1.0, 0.3, d)
    X /= np.linalg.norm(X, axis=1).max()
    return Regression(X, 0.3 * X @ rng.uniform(-1, 1, d) + 0.01 * rng.standard_normal(n), explicit=explicit)


def paper_scaled(name: Any) -> Regression:
    """The training part of a real table, scaled as in the paper."""
    training, _ = sample.split(sample.table(name), 0)
    scaling = Scaling.from_data(training.x, training.y)
    return Regression(scaling.rows(training.x, clip=True), scaling.targets(training.y, clip=True))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """What a run may ask of the platform, on the CPU."""
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture
def execute_here(context: Context) -> Callable[..., IterativeHessianMixingOutputs]:
    """Loads and runs the method in this process, small unless told otherwise."""

    def execute(**parameters: Any) -> IterativeHessianMixingOutputs:
        inputs = IterativeHessianMixingInputs.parse({"preset": "smoke", "audit_trials": 100, **parameters})
        return run(inputs, load(inputs, context), context)

    return execute


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Parameters with the URIs of a user's files."""
    return own_data.make(tmp_path_factory.mktemp("own"))
