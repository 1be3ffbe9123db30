"""Parameters that do not fit together, found before any file is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfp_methods.components.tabular.dp_distinct_elements.choices import BROKEN, HONEST
from kfp_methods.errors import Problem
from kfp_methods.wording import listed

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dp_distinct_elements.component import DpDistinctElementsInputs


def problems(inputs: DpDistinctElementsInputs) -> Iterator[Problem]:
    """What is wrong with parameters alone."""
    names = dict.fromkeys(inputs.mechanism)
    if isinstance(inputs.cap_w, int) and not 1 <= inputs.cap_w <= 1_000_000:
        yield Problem("cap_w", inputs.cap_w, "is no cap", "Give 1 or more, or t23")
    if inputs.memory_budget_entries is None and "hard_budget" in names:
        yield Problem("memory_budget_entries", None, "is missing, and hard_budget needs it", "Give a number of users")
    if not any(name in names for name in (*HONEST, *BROKEN)):
        remedy = f"Add one of {listed(HONEST)}"
        yield Problem("mechanism", inputs.mechanism, "holds none that adds noise", remedy)
    if isinstance(inputs.iblt_capacity, int) and not 1 <= inputs.iblt_capacity <= 2**24:
        yield Problem("iblt_capacity", inputs.iblt_capacity, "is no number of users", "Give 1 to 16777216, or auto")
    if inputs.frequency_mode == "multiset":
        for name in ("counter", "hard_budget"):
            if name in names:
                why = "takes insertions and deletions to alternate, and cannot know without everyone's counts"
                yield Problem("mechanism", name, why, "Leave it out with frequency_mode=multiset")
    if inputs.events is None:
        yield from _sample_problems(inputs)
    if inputs.publish:
        yield from _publish_problems(inputs, list(names))


def _sample_problems(inputs: DpDistinctElementsInputs) -> Iterator[Problem]:
    fixed = {"step": "event", "horizon": None, "frequency_mode": "binary"}
    for name, value in fixed.items():
        if getattr(inputs, name) != value:
            yield Problem("events_uri", None, f"is missing, and {name} is about it", "Give the events")
    if len(set(inputs.lengths)) < 2:
        yield Problem("lengths", inputs.lengths, "hold one length", "Give two different ones or more")


def _publish_problems(inputs: DpDistinctElementsInputs, names: list[str]) -> Iterator[Problem]:
    if inputs.events is None:
        yield Problem("publish", True, "needs events of yours", "Give events_uri")
    if len(names) != 1 or names[0] not in HONEST:
        remedy = f"Give one of {listed(HONEST)}"
        yield Problem("mechanism", inputs.mechanism, "a release is made by one private mechanism", remedy)
    if inputs.reveal_truth:
        yield Problem("reveal_truth", True, "would publish what the noise hides", "Leave it out, or publish")
