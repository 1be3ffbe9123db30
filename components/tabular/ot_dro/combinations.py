"""Parameters that do not fit together, found before any file is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfp_methods.components.tabular.ot_dro.choices import PORTFOLIOS
from kfp_methods.errors import Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.ot_dro.component import OtDroInputs


def order(inputs: OtDroInputs) -> int:
    """p of the distance."""
    return inputs.wasserstein_p or (2 if inputs.problem in ("po_cvar", "reg_sq") else 1)


def problems(inputs: OtDroInputs) -> Iterator[Problem]:
    """What is wrong with parameters alone."""
    if inputs.problem in ("po_cvar", "reg_sq") and order(inputs) != 2:
        yield Problem("wasserstein_p", inputs.wasserstein_p, f"{inputs.problem} is solved for order 2 only", "Give 2")
    if inputs.problem == "reg_abs" and order(inputs) != 1:
        yield Problem("wasserstein_p", inputs.wasserstein_p, "reg_abs is solved for order 1 only", "Give 1")
    if inputs.problem not in PORTFOLIOS:
        fixed = {"input_kind": "auto", "return_horizon": 1, "max_weight": 1.0, "short_allowed": False}
        for name, value in fixed.items():
            if getattr(inputs, name) != value:
                yield Problem(name, getattr(inputs, name), "is about portfolios", f"Leave it out with {inputs.problem}")
    if inputs.test_data is not None and inputs.data is None:
        yield Problem("data_uri", None, "is missing", "Give the table to fit")
    if inputs.data is None and (inputs.problem, inputs.return_horizon, inputs.input_kind) != ("po_mean", 1, "auto"):
        yield Problem("data_uri", None, "is missing, and problem, return_horizon or input_kind is about it", "Give it")
    if inputs.data is not None and inputs.target_column == inputs.date_column:
        yield Problem("date_column", inputs.date_column, "is the target too", "Name another column, or none")
