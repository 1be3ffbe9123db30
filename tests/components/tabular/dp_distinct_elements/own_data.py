"""A user's log of sign-ins and sign-outs, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def events(n: int = 400, users: int = 60, seed: int = 0) -> pd.DataFrame:
    """Users come and go over two months; one of them is called Zoë."""
    rng = np.random.default_rng(seed)
    minutes = np.sort(rng.integers(0, 60 * 24 * 60, n))
    times = pd.Timestamp("2025-03-01") + pd.to_timedelta(minutes, unit="min")
    chosen, present, ops = rng.integers(0, users, n), set(), []
    for user in chosen.tolist():
        ops.append("delete" if user in present else "insert")
        present ^= {user}
    names = np.array(["Zoë", *(f"user-{i}" for i in range(1, users))])[chosen]
    return pd.DataFrame({"t": times, "user": names, "op": ops})


def make(folder: Path) -> dict[str, Any]:
    """Timestamps in a CSV, counted day by day."""
    events().to_csv(folder / "ereignisse.csv", index=False)
    return {"events_uri": str(folder / "ereignisse.csv"), "step": "1D", "epsilon": 5.0}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, frame = make(folder), events()

    def csv(name: str, changed: pd.DataFrame, **more: Any) -> dict[str, Any]:
        changed.to_csv(folder / name, index=False)
        return {**good, "events_uri": str(folder / name), **more}

    first = frame.iloc[:1]
    absent = pd.concat([frame, first.assign(user="nobody", op="delete", t=frame["t"].max())])
    twice = pd.concat([first, first, frame.iloc[1:]])
    publish = good | {"publish": True, "mechanism": ["tree_linear"]}
    return [
        (csv("absent.csv", absent), ["events_uri", "'nobody' is deleted without being there", "line 402"]),
        (csv("twice.csv", twice), ["events_uri", "inserted while there", "line 3", "multiset"]),
        (csv("op.csv", frame.assign(op=frame["op"].where(frame.index != 7, "rename"))), ["'rename'", "line 9"]),
        (csv("gap.csv", frame.assign(t=frame["t"].where(frame.index != 3))), ["column 't' is missing", "line 5"]),
        (csv("when.csv", frame.assign(t=frame["t"].astype(str).where(frame.index != 3, "soon"))), ["'soon'", "line 5"]),
        (csv("half.csv", frame.assign(t=np.arange(len(frame)) + 0.5), step="event"), ["0.5 is no whole number"]),
        (csv("no-t.csv", frame.drop(columns="t")), ["events_uri", "'t' is missing"]),
        (csv("no-user.csv", frame.drop(columns="user")), ["events_uri", "user"]),
        (csv("nan.csv", frame.assign(user=frame["user"].where(frame.index != 5))), ["user", "missing"]),
        (csv("empty.csv", frame.head(0)), ["events_uri", "0 rows"]),
        (good | {"step": "soon"}, ["step", "no interval"]),
        (csv("int.csv", frame.assign(t=np.arange(len(frame)))), ["step", "whole number such as 1"]),
        (good | {"horizon": 10}, ["horizon", "less than"]),
        (good | {"epsilon": 0}, ["epsilon"]),
        (good | {"delta": 1.0}, ["delta"]),
        (good | {"cap_w": 0}, ["cap_w"]),
        (good | {"mechanism": ["hard_budget"]}, ["memory_budget_entries"]),
        (good | {"mechanism": ["counter"]}, ["mechanism", "noise"]),
        (good | {"frequency_mode": "multiset"}, ["mechanism", "alternate"]),
        (
            csv("many.csv", frame, frequency_mode="multiset", mechanism=["sample_hold"], iblt_capacity=4),
            ["iblt_capacity", "20 standard deviations"],
        ),
        (publish | {"mechanism": ["nocap"]}, ["mechanism", "one private mechanism"]),
        (publish | {"mechanism": ["tree_linear", "sample_hold"]}, ["mechanism", "one private mechanism"]),
        (publish | {"reveal_truth": True}, ["reveal_truth"]),
        ({"publish": True, "mechanism": ["tree_linear"]}, ["publish", "events"]),
        ({"step": "1D"}, ["events_uri", "step"]),
    ]
