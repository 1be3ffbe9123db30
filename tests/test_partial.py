"""What an interrupted run had finished is shown as partial, each part once and told apart."""

from __future__ import annotations

import pandas as pd
import pytest

from kfp_methods.context import CurvePoint
from kfp_methods.partial import partial_report
from kfp_methods.report import Part, Table, Text


def table(name: str, value: int = 0, title: str = "Attacks") -> Table:
    return Table(name, title, pd.DataFrame({"x": [value]}))


def test_last_values_of_curves_carry_their_steps() -> None:
    points = [CurvePoint("loss", 2.0, 1, 0), CurvePoint("auc", 0.7, 5, 0), CurvePoint("loss", 1.5, 2, 0)]
    (part,) = partial_report([], points).parts
    assert isinstance(part, Table)
    assert part.title == "Last values of curves (partial)"
    assert part.frame.to_dict("list") == {"curve": ["loss", "auc"], "step": [2, 5], "value": [1.5, 0.7]}


def test_parts_of_one_title_are_told_apart() -> None:
    parts = partial_report([table("seed-0"), table("seed-1"), table("other", title="Other"), Text("A", "b")], []).parts
    assert [part.title for part in parts] == [
        "Attacks (partial seed-0)",
        "Attacks (partial seed-1)",
        "Other (partial)",
        "A (partial)",
    ]


@pytest.mark.parametrize(
    ("older", "newer"), [(table("seed-0", 1), table("seed-0", 2)), (Text("note", "old"), Text("note", "new"))]
)
def test_a_part_kept_again_takes_the_place_of_the_older_one(older: Part, newer: Part) -> None:
    (part,) = partial_report([older, newer], []).parts
    shown = part.body if isinstance(part, Text) else part.frame["x"].item()  # type: ignore[union-attr]
    assert shown in ("new", 2)


def test_nothing_finished_is_said() -> None:
    assert partial_report([], []).parts == ()
    assert "before it had finished" in partial_report([], []).summary
