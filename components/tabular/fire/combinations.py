"""What inputs cannot be given together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from kfp_methods.errors import Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.fire.component import FireInputs

_OF_CHECKPOINTS = ("tabpfn", "tabicl")


def problems(inputs: FireInputs) -> Iterator[Problem]:
    """One for each field that does not fit."""
    if inputs.backend in _OF_CHECKPOINTS and inputs.tfm_checkpoint is None:
        remedy = "Give tfm_checkpoint_uri, for nothing is downloaded; or backend pfn or gp"
        yield Problem("backend", inputs.backend, "needs a checkpoint", remedy)
    if inputs.backend not in _OF_CHECKPOINTS and inputs.tfm_checkpoint is not None:
        yield Problem(
            "tfm_checkpoint", None, f"is not read by backend={inputs.backend}", "Give backend tabpfn or tabicl"
        )
    if inputs.table is None and inputs.query is not None:
        yield Problem("query", None, "is of no table", "Give table_uri too")
    if inputs.table is None and inputs.mode == "predict":
        yield Problem("mode", "predict", "needs a table", "Give table_uri, or mode auto")
    if inputs.mode == "benchmark" and inputs.query is not None:
        yield Problem("query", None, "is not predicted in mode=benchmark", "Leave it out, or give mode=predict")
    if inputs.max_context == 1:
        yield Problem("max_context", 1, "is no context", "Give 2 or more, or 0 for the usual")
    if any(a >= b for a, b in pairwise(inputs.quantile_levels)):
        yield Problem("quantile_levels", inputs.quantile_levels, "do not rise", "Give them in order, each once")
