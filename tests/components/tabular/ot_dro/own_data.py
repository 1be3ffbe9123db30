"""A user's prices and regression table, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def prices(n: int = 121, seed: int = 0) -> pd.DataFrame:
    """Daily prices of four funds."""
    rng = np.random.default_rng(seed)
    steps = rng.normal([0.001, 0.0005, 0.0, 0.0003], [0.02, 0.01, 0.005, 0.015], (n, 4))
    frame = pd.DataFrame(100 * np.exp(np.cumsum(steps, axis=0)), columns=["Fünf", "gold", "bonds", "world"])
    return frame.assign(date=pd.bdate_range("2024-01-01", periods=n).strftime("%Y-%m-%d"))


def table(n: int = 80, seed: int = 1) -> pd.DataFrame:
    """Two features and a target with an intercept."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": 50 + 2 * x[:, 0] - x[:, 1] + rng.normal(0, 0.5, n)})


def make(folder: Path) -> dict[str, Any]:
    """Prices as CSV, a decision by worst expected return."""
    prices().to_csv(folder / "kurse.csv", index=False)
    return {"data_uri": str(folder / "kurse.csv"), "input_kind": "prices", "n_bootstrap": 20}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, frame, rows = make(folder), prices(), table()

    def csv(name: str, changed: pd.DataFrame, **more: Any) -> dict[str, Any]:
        changed.to_csv(folder / name, index=False)
        return {**good, "data_uri": str(folder / name), **more}

    def regression(name: str, changed: pd.DataFrame, **more: Any) -> dict[str, Any]:
        changed.to_csv(folder / name, index=False)
        return {"data_uri": str(folder / name), "problem": "reg_abs", "n_bootstrap": 20, **more}

    gaps = frame.assign(gold=frame["gold"].where(frame.index % 3 > 0))
    later = str(folder / "later.csv")
    prices().to_csv(later, index=False)
    return [
        (csv("gaps.csv", gaps), ["data_uri", "41 of 121 rows miss values"]),
        (csv("word.csv", frame.assign(gold="x")), ["data_uri", "gold"]),
        (csv("date.csv", frame.assign(date=frame["date"].where(frame.index != 4, "soon"))), ["no date", "line 6"]),
        (csv("twice.csv", pd.concat([frame, frame.head(1)])), ["repeats a date", "line 123"]),
        (csv("short.csv", frame.head(8)), ["data_uri", "too few"]),
        (csv("zero.csv", frame.assign(gold=0.0)), ["data_uri", "not above 0"]),
        (csv("flat.csv", frame.assign(gold=100.0)), ["data_uri", "'gold'", "same in all rows"]),
        (csv("inf.csv", frame.assign(gold=np.inf)), ["data_uri", "gold", "infinite"]),
        (csv("empty.csv", frame.head(0)), ["data_uri", "0 rows"]),
        (good | {"max_weight": 0.2}, ["max_weight", "sum to 0.8"]),
        (good | {"test_data_uri": later}, ["test_data_uri", "before data ends"]),
        (good | {"problem": "po_cvar", "wasserstein_p": 1}, ["wasserstein_p", "order 2"]),
        (good | {"gamma": 1.5}, ["gamma"]),
        (good | {"n_bootstrap": 1}, ["n_bootstrap"]),
        (good | {"return_horizon": 50}, ["data_uri", "too few"]),
        ({"problem": "reg_sq"}, ["data_uri", "missing"]),
        ({"test_data_uri": later}, ["data_uri", "missing"]),
        (regression("no-y.csv", rows.drop(columns="y")), ["data_uri", "'y'", "missing"]),
        (regression("only.csv", rows[["y"]]), ["data_uri", "no column of features"]),
        (regression("price.csv", rows, input_kind="prices"), ["input_kind", "portfolios"]),
        (regression("order.csv", rows, wasserstein_p=2), ["wasserstein_p", "order 1"]),
        (regression("text.csv", rows.assign(b="red")), ["data_uri", "b"]),
    ]
