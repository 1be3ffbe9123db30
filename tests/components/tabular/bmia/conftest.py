"""A user's files (an audit of a classifier of digits, trained here) and short runs on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaOutputs, load, run
from kfp_methods.components.tabular.bmia.sample import Split, digits, split
from kfp_methods.context import Context
from tests.components.tabular.bmia import own_data

QUICK = {"hidden": [64], "epochs": 3, "n_references": 2, "n_samples": 5}


@pytest.fixture(scope="session")
def parts() -> Split:
    """The digits as `own_data` splits them."""
    return split(digits(), seed=0)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Parameters with the URIs of a user's files: tables of records, arrays of logits."""
    return own_data.make(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def safetensors(files: dict[str, Any]) -> str:
    """The same target as a file of tensors."""
    return str(Path(files["audit_uri"]).with_name("target.safetensors"))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """What a run may ask of the platform, on the CPU."""
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture
def execute_here(context: Context) -> Callable[..., BmiaOutputs]:
    """Loads and runs the method in this process, small unless told otherwise."""
    return lambda **parameters: execute(context, **parameters)


@pytest.fixture(scope="session")
def found(files: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> BmiaOutputs:
    """The outputs of one run on the user's files."""
    return execute(Context(tmp_path_factory.mktemp("run"), wanted_device="cpu"), **files, n_samples=20)


def execute(context: Context, **parameters: Any) -> BmiaOutputs:
    """A run of its own, which leaves its warnings in `context`."""
    inputs = BmiaInputs.parse(QUICK | parameters)
    own = Context(context.scratch, context.wanted_device, warnings=context.warnings)
    return run(inputs, load(inputs, own), own)
