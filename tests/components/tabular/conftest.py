"""Runs of a method in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfp_methods.context import Context
from kfp_methods.contract import Method


@pytest.fixture
def warned() -> list[str]:
    """What runs warned of, in their order."""
    return []


@pytest.fixture
def execute(tmp_path: Path, warned: list[str]) -> Callable[..., Any]:
    """Runs a method at preset smoke on a CPU, each time with files fetched anew."""

    def run(method: Method[Any, Any, Any], **parameters: Any) -> Any:
        context = Context(tmp_path, wanted_device="cpu")
        inputs = method.inputs.parse({"preset": "smoke", **parameters})
        found = method.run(inputs, method.load(inputs, context), context)
        warned.extend(context.warnings)
        return found

    return run
