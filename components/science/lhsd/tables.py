"""The tables of a run: every scored point, every method's error, the lowest points, the costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kfp_methods.components.science.lhsd.assessment import Assessed
from kfp_methods.components.science.lhsd.choices import TITLES
from kfp_methods.components.science.lhsd.costs import Cost
from kfp_methods.report import Table

LOWEST = 15


def points(parts: Sequence[Assessed]) -> Table:
    """Every scored point of these parts, in the order of their rows."""
    return Table("lid", "Local dimension of every point", pd.concat([_points(one) for one in parts], ignore_index=True))


def _points(one: Assessed) -> pd.DataFrame:
    question = one.question
    frame = pd.DataFrame({"part": question.name, "point": question.rows, "lid": one.lid, "stderr": one.stderr})
    for name, values in one.others.items():
        frame["lid_exact" if name == "lhsd_exact" else name] = values
    frame["rank_from_lowest"] = frame["lid"].rank(method="first").astype(np.int64)
    frame["lid_true"] = np.nan if question.lid_true is None else question.lid_true
    frame["is_memorised"] = pd.array(
        [pd.NA] * len(frame) if question.memorised is None else question.memorised, "boolean"
    )
    return frame.sort_values("point", kind="stable")


def methods(parts: Sequence[Assessed], name: str = "methods") -> Table:
    """Every method on the same points: means over these assessments of one part."""
    rows = [_method_row(parts, method) for method in parts[0].estimates]
    frame = pd.DataFrame(rows).dropna(axis=1, how="all")
    title = parts[0].question.name
    caption = "Error: mean of |estimate - true dimension|. Memorised AUROC: chance that a memorised point is lower."
    return Table(name, f"Every method on {title}", frame, caption, highlight=True)


def _method_row(parts: Sequence[Assessed], method: str) -> dict[str, object]:
    values = [one.estimates[method] for one in parts]
    return {
        "method": TITLES[method],
        "error": mean([one.error(method) for one in parts]),
        "memorised AUROC": mean([one.memorised_auroc(method) for one in parts]),
        "median": np.mean([np.nan if np.isnan(some).all() else np.nanmedian(some) for some in values]),
        "points": int((~np.isnan(values[0])).sum()),
        "seconds for a point": mean([one.seconds.get(method) for one in parts]),
    }


def lowest(one: Assessed) -> Table:
    """The points of the lowest dimension: the first to look at for copies."""
    frame = _points(one).sort_values(["lid", "point"]).head(LOWEST)
    shown = frame[["point", "lid", "stderr", "lid_true", "is_memorised"]].dropna(axis=1, how="all")
    caption = "Points are numbered from 0, as rows of the file or of the sample."
    return Table(f"lowest-{one.question.name}", "The points of lowest dimension", shown, caption)


def costs(measured: Mapping[int, Sequence[Cost]]) -> Table:
    """Seconds for a point at each dimension, averaged over the seeds."""
    rows = [
        {
            "features": group[0].n_features,
            "LHSD seconds": np.mean([cost.lhsd_seconds for cost in group]),
            "FLIPD seconds": np.mean([cost.flipd_seconds for cost in group]),
            "normal bundle seconds": np.mean([cost.nb_seconds for cost in group]),
            "normal bundle / LHSD time_ratio": np.mean([cost.nb_over_lhsd for cost in group]),
            "products of LHSD": group[0].products,
        }
        for group in zip(*measured.values(), strict=True)
    ]
    return Table("costs", "What a point costs as the number of features grows", pd.DataFrame(rows))


def mean(values: Sequence[float | None]) -> float:
    """Of those that were measured; NaN where none was."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else np.nan
