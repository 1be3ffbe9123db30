"""Runs of FIRE in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfp_methods.components.tabular.fire.component import FireInputs, FireOutputs, load, run
from kfp_methods.context import Context


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """What a run may ask of the platform, on the CPU."""
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture
def execute_here(context: Context) -> Callable[..., FireOutputs]:
    """Loads and runs the method in this process, small unless told otherwise."""

    def execute(**parameters: Any) -> FireOutputs:
        inputs = FireInputs.parse({"preset": "smoke", **parameters})
        return run(inputs, load(inputs, context), context)

    return execute
