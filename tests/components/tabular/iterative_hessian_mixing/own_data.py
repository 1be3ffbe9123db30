"""A user's tables with bounds that are known without them, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

BOUNDS = {"Größe": [150.0, 200.0], "age": [0.0, 100.0], "fee": [0.0, 1000.0]}
TARGET_BOUNDS = [0.0, 100.0]


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """n persons; the score is linear in three columns of different units, with noise of sd 4."""
    rng = np.random.default_rng(seed)
    size, age, fee = rng.uniform(150, 200, n), rng.uniform(0, 100, n), rng.uniform(0, 1000, n)
    score = 20 + 0.5 * (size - 150) + 0.4 * age - 0.01 * fee + rng.normal(0, 4, n)
    return pd.DataFrame({"Größe": size, "age": age, "fee": fee, "score": np.clip(score, 0, 100)})


def make(folder: Path) -> dict[str, Any]:
    """A table of 1,000 persons with names, others to test on, and public bounds."""
    named = table(1_000).assign(person=[f"p{index}" for index in range(1_000)])
    named.to_parquet(folder / "personen.parquet", index=False)
    table(200, seed=1).to_csv(folder / "prüfen.csv", index=False)
    return bounded(str(folder / "personen.parquet")) | {
        "test_data_uri": str(folder / "prüfen.csv"),
        "person": "person",
        "target": "score",
        "epsilon": [0.5, 2.0, 8.0],
    }


def bounded(uri: str) -> dict[str, Any]:
    """Parameters of a run with bounds."""
    return {"data_uri": uri, "feature_bounds": BOUNDS, "target_bounds": TARGET_BOUNDS}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good = make(folder)
    frame = table(100)

    def saved(name: str, changed: pd.DataFrame) -> str:
        changed.to_csv(folder / name, index=False)
        return str(folder / name)

    def only(name: str, changed: pd.DataFrame) -> dict[str, Any]:
        return bounded(saved(name, changed))

    plain = only("plain.csv", frame)
    by_data = {"data_uri": plain["data_uri"], "data_dependent_scaling": True}
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 70)), columns=[f"x{i}" for i in range(70)])
    gaps = frame.assign(age=frame["age"].where(frame["age"] > 70))
    return [
        (only("few.csv", frame.head(40)), ["data_uri", "40 rows", "50"]),
        (only("one-row.csv", frame.head(1)), ["data_uri", "1 row"]),
        ({"data_uri": saved("wide.csv", wide), "data_dependent_scaling": True}, ["data_uri", "70 coefficients"]),
        (only("one-column.csv", frame[["score"]]), ["data_uri", "no feature"]),
        (only("constant.csv", frame.assign(age=5.0)), ["data_uri", "age", "same in all rows"]),
        (only("flat.csv", frame.assign(score=5.0)), ["data_uri", "score", "same in all rows"]),
        (only("gaps.csv", gaps), ["data_uri", "age", "missing"]),
        (only("text.csv", frame.assign(age="old")), ["data_uri", "age", "not a number"]),
        (only("huge.csv", frame * 1e120), ["data_uri", "beyond"]),
        (plain | {"target": "points"}, ["data_uri", "points"]),
        (plain | {"target_bounds": []}, ["target_bounds", "missing"]),
        (plain | {"target_bounds": [5, 1]}, ["target_bounds", "rising"]),
        (plain | {"target_bounds": [-9.0, -5.0]}, ["target_bounds", "outside"]),
        (plain | {"feature_bounds": {"age": [0, 100]}}, ["feature_bounds", "Größe", "fee"]),
        (plain | {"feature_bounds": BOUNDS | {"weight": [0, 1]}}, ["feature_bounds", "weight"]),
        (plain | {"feature_bounds": BOUNDS | {"age": [1, 1]}}, ["feature_bounds", "age", "rise"]),
        (plain | {"feature_bounds": BOUNDS | {"age": [-9.0, -5.0]}}, ["feature_bounds", "age", "outside"]),
        (plain | {"row_clip": -1.0}, ["row_clip", "radius"]),
        (plain | {"epsilon": [1.0, 0.0]}, ["epsilon", "0"]),
        (plain | {"delta": 0.3}, ["delta", "0.1"]),
        (plain | {"data_dependent_scaling": True}, ["data_dependent_scaling", "unused"]),
        (by_data | {"row_clip": 1.0}, ["row_clip", "bounds"]),
        (by_data | {"release": True, "epsilon": [1.0]}, ["data_dependent_scaling", "not private"]),
        ({"data_uri": plain["data_uri"], "release": True, "epsilon": [1.0]}, ["target_bounds", "missing"]),
        (plain | {"release": True}, ["epsilon", "one budget"]),
        (plain | {"release": True, "epsilon": [1.0], "strict": False}, ["strict", "prove"]),
        (good | {"release": True, "epsilon": [1.0]}, ["test_data_uri", "Leave it out"]),
        (good | {"person": "score"}, ["person", "target"]),
        (good | {"test_data_uri": plain["data_uri"], "data_uri": saved("test.csv", wide)}, ["person"]),
        ({"release": True, "epsilon": [1.0]}, ["release", "table of yours"]),
        ({"sample_parts": ["dimensions"]}, ["sample_parts", "boston"]),
        ({"feature_bounds": BOUNDS}, ["data_uri", "missing"]),
    ]
