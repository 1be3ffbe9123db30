"""Parameters that do not fit together, found before any file is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfp_methods.errors import Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.iterative_hessian_mixing.component import IterativeHessianMixingInputs

_BOUNDS = "Give feature_bounds and target_bounds that are known without the data"


def problems(inputs: IterativeHessianMixingInputs) -> Iterator[Problem]:
    """What is wrong with parameters alone."""
    yield from _number_problems(inputs)
    yield from _scaling_problems(inputs)
    yield from _sample_problems(inputs)
    if inputs.release:
        yield from _release_problems(inputs)


def _sample_problems(inputs: IterativeHessianMixingInputs) -> Iterator[Problem]:
    if inputs.uses_sample and set(inputs.sample_parts) == {"dimensions"}:
        yield Problem("sample_parts", inputs.sample_parts, "holds no data to compare on", "Add boston, for instance")


def _number_problems(inputs: IterativeHessianMixingInputs) -> Iterator[Problem]:
    if isinstance(inputs.delta, float) and not 0 < inputs.delta < 0.1:
        yield Problem("delta", inputs.delta, "is not between 0 and 0.1", "Give less than 1 / rows, or 1/n^2")
    if isinstance(inputs.row_clip, float) and not inputs.row_clip > 0:
        yield Problem("row_clip", inputs.row_clip, "is no radius", "Give more than 0, or off")
    if inputs.person and inputs.person == inputs.target:
        yield Problem("person", inputs.person, "is the target too", "Name another column")
    for name, ends in inputs.feature_bounds.items():
        if not ends[0] < ends[1]:
            yield Problem("feature_bounds", {name: ends}, "do not rise", "Give [low, high] with low below high")
    ends = inputs.target_bounds
    if ends and (len(ends) != 2 or not ends[0] < ends[1]):
        yield Problem("target_bounds", ends, "are no rising pair", "Give [low, high] with low below high")


def _scaling_problems(inputs: IterativeHessianMixingInputs) -> Iterator[Problem]:
    bounded = bool(inputs.feature_bounds or inputs.target_bounds)
    if inputs.data is None:
        if bounded or inputs.test_data is not None:
            yield Problem("data_uri", None, "is missing", "Give the table that the other parameters are about")
        return
    if inputs.data_dependent_scaling and bounded:
        yield Problem("data_dependent_scaling", True, "would leave the bounds unused", "Give one of the two")
    if inputs.data_dependent_scaling and inputs.row_clip != "off":
        yield Problem("row_clip", inputs.row_clip, "needs public bounds", _BOUNDS)
    if not inputs.data_dependent_scaling and not inputs.target_bounds:
        yield Problem("target_bounds", None, "are missing", f"{_BOUNDS}, or data_dependent_scaling=true to try out")


def _release_problems(inputs: IterativeHessianMixingInputs) -> Iterator[Problem]:
    if inputs.data is None:
        yield Problem("release", True, "needs a table of yours", "Give data_uri")
    if inputs.data_dependent_scaling:
        yield Problem("data_dependent_scaling", True, "is not private, so nothing can be released", _BOUNDS)
    if len(set(inputs.epsilon)) > 1:
        yield Problem("epsilon", inputs.epsilon, "a release has one budget", "Give one epsilon")
    if inputs.test_data is not None:
        yield Problem("test_data_uri", str(inputs.test_data), "a release measures nothing", "Leave it out")
    if not inputs.strict:
        yield Problem("strict", False, "does not prove the budget", "Leave it out for a release")
