"""A user's table of a coarse and a fine simulation, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def table(n_low: int = 60, n_high: int = 20, seed: int = 0) -> pd.DataFrame:
    """Drag of a wing by angle, Geschwindigkeit and surface; the coarse one (fidelity 1) lacks a term."""
    rng = np.random.default_rng(seed)
    n = n_low + n_high
    angle, speed = rng.uniform(0, 10, n), rng.uniform(50, 250, n)
    surface = rng.choice(["smooth", "rough", "eis, größe 2"], n)
    fidelity = np.repeat([1, 3], [n_low, n_high])
    drag = 5 + 0.4 * angle**2 + 1e-4 * speed**2 + 3 * (surface == "rough")
    fine = drag * 1.1 + 0.5 * np.sin(angle)
    return pd.DataFrame(
        {"angle": angle, "Geschwindigkeit": speed, "surface": surface, "fidelity": fidelity,
         "y": np.where(fidelity == 3, fine, drag)}
    )  # fmt: skip


def make(folder: Path) -> dict[str, Any]:
    """Sixty coarse and twenty fine runs as Parquet, and five settings to predict as CSV with semicolons."""
    table().to_parquet(folder / "läufe.parquet", index=False)
    table(0, 5, seed=1).drop(columns=["y", "fidelity"]).to_csv(folder / "fragen.csv", index=False, sep=";")
    return {"table_uri": str(folder / "läufe.parquet"), "query_uri": str(folder / "fragen.csv")}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, frame = make(folder), table()

    def saved(name: str, changed: pd.DataFrame) -> str:
        changed.to_csv(folder / name, index=False)
        return str(folder / name)

    def only(name: str, changed: pd.DataFrame) -> dict[str, Any]:
        return {"table_uri": saved(name, changed)}

    gap = frame.assign(y=frame["y"].where(frame.index != 7))
    words = frame.assign(note=[f"run {i}" for i in range(len(frame))])
    wide = pd.concat([frame, pd.DataFrame(np.random.default_rng(0).random((80, 30))).add_prefix("w")], axis=1)
    query = pd.read_csv(good["query_uri"], sep=";")
    pickle = folder / "regressor.ckpt"
    pickle.write_bytes(b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.")
    return [
        (only("one-level.csv", frame[frame["fidelity"] == 1]), ["table_uri", "one level", "fidelity"]),
        (only("no-fidelity.csv", frame.drop(columns="fidelity")), ["table_uri", "fidelity"]),
        (only("half.csv", frame.assign(fidelity=frame["fidelity"] / 2)), ["table_uri", "fidelity", "0.5"]),
        (only("few-high.csv", frame.head(62)), ["table_uri", "fidelity 3", "2 rows"]),
        (only("few-low.csv", frame.tail(22)), ["table_uri", "fidelity 1", "2 rows"]),
        (only("gap.csv", gap), ["table_uri", "y", "missing"]),
        (only("feature-gap.csv", frame.assign(angle=gap["y"])), ["table_uri", "angle", "missing"]),
        (only("words.csv", words), ["table_uri", "note", "80 different"]),
        (only("bare.csv", frame[["y", "fidelity"]]), ["table_uri", "no feature"]),
        (only("huge.csv", frame.assign(angle=1e200)), ["table_uri", "1e+100"]),
        (only("split.csv", frame.assign(split="test")), ["table_uri", "lower fidelity", "test"]),
        (only("wide.csv", wide) | {"backend": "pfn"}, ["backend", "network's 24"]),
        (good | {"query_uri": saved("q1.csv", query.drop(columns="angle"))}, ["query_uri", "angle"]),
        (good | {"query_uri": saved("q2.csv", query.assign(surface="wet"))}, ["query_uri", "'wet'", "surface"]),
        ({"table_uri": good["table_uri"], "mode": "benchmark", "hf_budgets": [19]}, ["hf_budgets", "20 costly rows"]),
        (good | {"backend": "tabpfn"}, ["backend", "checkpoint"]),
        (good | {"backend": "tabicl", "tfm_checkpoint_uri": str(pickle)}, ["tfm_checkpoint_uri", "run code"]),
        (good | {"quantile_levels": [0.5, 0.1]}, ["quantile_levels", "rise"]),
        ({"query_uri": good["query_uri"]}, ["query", "table_uri"]),
        ({"mode": "predict"}, ["mode", "table"]),
    ]
