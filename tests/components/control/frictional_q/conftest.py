"""Short runs of the method in this process, on the point mass and on a user's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfp_methods.components.control.frictional_q.component import FrictionalQInputs, FrictionalQOutputs, load, run
from kfp_methods.context import Context
from tests.components.control.frictional_q import own_data

QUICK = {
    "preset": "smoke", "n_seeds": 1, "updates": 6, "hidden": 16, "cvae_hidden": 16, "batch_size": 20,
    "eval_episodes": 1, "evaluations": 1,
}  # fmt: skip


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Parameters with the URIs of a user's files."""
    return own_data.make(tmp_path_factory.mktemp("own")) | QUICK


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """What a run may ask of the platform, on the CPU."""
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture
def execute_here(context: Context) -> Callable[..., FrictionalQOutputs]:
    """Loads and runs the method, small unless told otherwise."""
    return lambda **parameters: execute(replace(context), **parameters)


def execute(context: Context, **parameters: Any) -> FrictionalQOutputs:
    inputs = FrictionalQInputs.parse(QUICK | parameters)
    return run(inputs, load(inputs, context), context)
