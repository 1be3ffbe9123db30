"""A user's table of sensors with concepts, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def table(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Two numeric concepts and a binary one, whose names are no identifiers, from four sensors."""
    rng = np.random.default_rng(seed)
    heat, load, open_ = rng.normal(20, 5, n), rng.uniform(1, 4, n), rng.integers(0, 2, n)
    mode = rng.integers(0, 2, n)
    y = np.where(mode == 0, heat + load, heat * load) + 3 * open_
    sensors = np.column_stack([heat + rng.normal(0, 0.2, n), load, 3.0 * mode, open_ + rng.normal(0, 0.1, n)])
    frame = pd.DataFrame(sensors, columns=[f"x_{i}" for i in range(4)])
    return frame.assign(**{"c_exp": heat, "c_Last (kN)": load, "c___import__('os')": open_, "y": y})


def arrays(n: int = 120, seed: int = 1) -> dict[str, np.ndarray]:
    """The same kind of thing as arrays, with classes."""
    rng = np.random.default_rng(seed)
    c = rng.integers(0, 2, (n, 3)).astype(float)
    x = (c + rng.normal(0, 0.1, c.shape)).astype(np.float32)
    return {
        "x": x, "c": c, "y": (c[:, 0] + c[:, 1] > 1).astype(np.int64), "c_names": np.array(["I", "E", "β"]),
        "concept_types": np.array(["binary"] * 3),
    }  # fmt: skip


def make(folder: Path) -> dict[str, Any]:
    """As CSV, with few experts and short training."""
    table().to_csv(folder / "messung.csv", index=False)
    return {"data_uri": str(folder / "messung.csv"), "n_experts": [1, 2]}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, frame = make(folder), table()

    def csv(name: str, changed: pd.DataFrame, **more: Any) -> dict[str, Any]:
        changed.to_csv(folder / name, index=False)
        return {**good, "data_uri": str(folder / name), **more}

    def npz(name: str, **changed: Any) -> dict[str, Any]:
        np.savez(folder / name, **(arrays() | changed))
        return {**good, "data_uri": str(folder / name)}

    concepts = [name for name in frame if str(name).startswith("c_")]
    rare = frame.assign(y=["b", "a"] + ["c"] * (len(frame) - 2))
    return [
        (csv("no-c.csv", frame.drop(columns=concepts)), ["data_uri", "no column of concepts"]),
        (csv("no-x.csv", frame[[*concepts, "y"]]), ["data_uri", "no column of inputs"]),
        (csv("no-y.csv", frame.drop(columns="y")), ["data_uri", "no column of y"]),
        (csv("nan.csv", frame.assign(x_1=frame["x_1"].where(frame.index != 4))), ["x_1", "missing"]),
        (csv("gap.csv", frame.assign(y=frame["y"].where(frame.index != 4))), ["'y' is missing", "line 6"]),
        (csv("word.csv", frame.assign(c_exp="hot")), ["c_exp", "not a number"]),
        (csv("split.csv", frame.assign(split="train")), ["data_uri", "0 rows of split 'validation'"]),
        (csv("parts.csv", frame.assign(split="holdout")), ["'holdout'", "line 2"]),
        (csv("flat.csv", frame.assign(**dict.fromkeys(concepts, 1.0))), ["no concept varies"]),
        (csv("same.csv", frame.assign(y=7.5)), ["data_uri", "same"]),
        (csv("few.csv", frame.head(20)), ["20 rows", "too few"]),
        (csv("rare.csv", rare), ["classes with fewer than 2"]),
        (csv("text.csv", frame.assign(y="a"), task="regression"), ["task", "text"]),
        (csv("empty.csv", frame.head(0)), ["data_uri", "0 rows"]),
        (npz("types.npz", c=arrays()["c"] * 2), ["binary concepts", "'I'"]),
        (npz("shape.npz", y=np.zeros(3)), ["do not fit together"]),
        (npz("objects.npz", c_names=np.array(["a", "b", "c"], object)), ["data_uri", "Python objects"]),
        (npz("names.npz", c_names=np.array(["a", "b"])), ["c_names"]),
        (good | {"n_experts": [32]}, ["n_experts", "too many"]),
        (good | {"operators": ["+", "sinh"]}, ["operators", "sinh"]),
        (good | {"split_fractions": [0.5, 0.2, 0.2]}, ["split_fractions", "sum to 1"]),
        (good | {"tau_end": 5.0}, ["tau_end"]),
        ({"task": "classification"}, ["data_uri", "missing"]),
    ]
