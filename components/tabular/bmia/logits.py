"""A target's outputs, checked: they tell records apart, and are logits whether given as such or as probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.scores import are_probabilities, hinge, logits_of_probabilities
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.context import Context

_MOST_TIED = 0.1  # share of the records with one score, above which rates at few false positives are not resolved
_FEWEST_TO_TIE = 20
_BEFORE_SOFTMAX = "Give the outputs before softmax (or before the decision), with all their digits"


def checked_logits(context: Context, field: str, values: Floats, records: Records) -> Tensor:
    """The target's outputs on the records as float64 logits [n, C]; probabilities become their logarithms.

    Warns of probabilities, and of outputs that are equal for many records.

    Raises:
        InputError: another shape, a value that is not finite, or outputs that hold no more than a label or nothing.
    """
    if values.ndim != 2 or values.shape[1] < 2 or len(values) != len(records):
        problem = f"logits have the shape {values.shape}, for {len(records)} records"
        wanted = f"{len(records)} rows with one column for each class"
        remedy = f"Give {wanted} (at least 2; a single logit z becomes 0 and z)"
        raise InputError(Problem(field, None, problem, remedy))
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values).all(1)))
        problem = f"the target's output is not finite, first on record {row + 1} of {len(values):,}"
        raise InputError(Problem(field, None, problem, "Check the model on that record"))
    _check_informative(field, values)
    if are_probabilities(values / 100):
        problem = "the rows are percentages: none is negative, and each row sums to 100"
        raise InputError(Problem(field, None, problem, "Give logits, or probabilities that sum to 1"))
    if are_probabilities(values):
        zeros = "a probability of 0 counts as the smallest number above it that the file's type has"
        context.warn(f"{field}: the rows are probabilities, not logits; their logarithms are used ({zeros})")
        values = logits_of_probabilities(values)
    logits = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    _warn_of_ties(context, field, hinge(logits, records.y.clamp(0, logits.shape[1] - 1)).numpy())
    return logits


def _check_informative(field: str, values: Floats) -> None:
    """Membership shows in how sure a model is: outputs that are equally sure of every record cannot tell."""
    if len(values) < 2:
        return
    if (values == values[0]).all():
        raise InputError(
            Problem(field, None, "every record has the same output", "Give the model's own output on each record")
        )
    ordered = np.sort(values, axis=1)
    if (ordered == ordered[0]).all():
        problem = "the rows hold decisions, not logits: the same numbers for every record, in another order"
        raise InputError(Problem(field, None, problem, _BEFORE_SOFTMAX))


def _warn_of_ties(context: Context, field: str, margins: Floats) -> None:
    if len(margins) < _FEWEST_TO_TIE:
        return
    share = np.unique(margins, return_counts=True)[1].max() / len(margins)
    if share > _MOST_TIED:
        context.warn(
            f"{field}: {share:.0%} of the records have one and the same score (outputs saturated or rounded), so "
            f"that nothing tells them apart. {_BEFORE_SOFTMAX}"
        )
