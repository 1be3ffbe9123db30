"""What an interrupted run had finished, named as partial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kfp_methods.context import CurvePoint
from kfp_methods.report import Part, Report, Table, Text


def partial_report(parts: Sequence[Part], points: Sequence[CurvePoint]) -> Report:
    """The parts that the method kept and the last value of each curve.

    A part kept again under its name is a newer state of it and takes its place; different ones of one title say
    their names too.
    """
    kept = {part.title if isinstance(part, Text) else part.name: part for part in [*_last_values(points), *parts]}
    titles = Counter(part.title for part in kept.values())
    if not kept:
        return Report("The run was interrupted before it had finished any part of its results.")
    summary = "The run was interrupted. What it had finished is shown; it is not the method's result."
    return Report(summary, tuple(_named_partial(part, titles) for part in kept.values()))


def _named_partial(part: Part, titles: Counter[str]) -> Part:
    name = f" {part.name}" if titles[part.title] > 1 and not isinstance(part, Text) else ""
    return replace(part, title=f"{part.title} (partial{name})")


def _last_values(points: Iterable[CurvePoint]) -> list[Table]:
    last = {point.name: point for point in points}
    if not last:
        return []
    import pandas

    rows = [(point.name, point.step, point.value) for point in last.values()]
    frame = pandas.DataFrame(rows, columns=["curve", "step", "value"])
    return [Table("last-values-of-curves", "Last values of curves", frame, "Where each curve was when the run ended.")]
