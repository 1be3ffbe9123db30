"""A user's benchmark table with losses on a new task, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

MODELS = [f"Modell {chr(65 + i)}" for i in range(12)]


def benchmarks(seed: int = 0) -> pd.DataFrame:
    """Accuracies of twelve models on three tasks; the last model is the worst everywhere."""
    rng = np.random.default_rng(seed)
    skill = np.linspace(0.9, 0.5, len(MODELS))
    scores = np.clip(skill[:, None] + rng.normal(0, 0.05, (len(MODELS), 3)), 0, 1)
    return pd.DataFrame(scores, columns=["Übersetzen", "code", "math"]).assign(model=MODELS)


def losses(n: int = 30, seed: int = 1) -> pd.DataFrame:
    """0/1 losses of the same models on n examples, the best first."""
    rng = np.random.default_rng(seed)
    risks = np.linspace(0.15, 0.6, len(MODELS))
    return pd.DataFrame((rng.random((n, len(MODELS))) < risks).astype(float), columns=MODELS)


def make(folder: Path) -> dict[str, Any]:
    """Accuracies as Parquet and losses as CSV."""
    benchmarks().to_parquet(folder / "bänke.parquet", index=False)
    losses().to_csv(folder / "losses.csv", index=False)
    return {
        "benchmarks_uri": str(folder / "bänke.parquet"),
        "target_losses_uri": str(folder / "losses.csv"),
        "higher_is_better": True,
    }


def predictions(n: int = 20) -> dict[str, np.ndarray]:
    """Probabilities of two classes."""
    rng = np.random.default_rng(2)
    y, skill = rng.integers(0, 2, n), np.linspace(0.9, 0.55, len(MODELS))
    right = rng.random((len(MODELS), n)) < skill[:, None]
    likely = np.where(right, y, 1 - y)
    return {"pred": 0.1 + 0.8 * np.eye(2)[likely], "y": y, "models": np.array(MODELS)}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, frame, lost = make(folder), benchmarks(), losses()

    def csv(name: str, changed: pd.DataFrame) -> str:
        changed.to_csv(folder / name, index=False)
        return str(folder / name)

    def table(name: str, changed: pd.DataFrame) -> dict[str, Any]:
        return good | {"benchmarks_uri": csv(name, changed)}

    def evidence(name: str, changed: pd.DataFrame) -> dict[str, Any]:
        return good | {"target_losses_uri": csv(name, changed)}

    def arrays(name: str, **changed: np.ndarray) -> dict[str, Any]:
        np.savez(folder / name, **(predictions() | changed))
        return {**good, "target_predictions_uri": str(folder / name), "target_losses_uri": ""}

    holes = lost.copy()
    holes.loc[5] = np.nan
    twice = pd.concat([frame, frame.head(1)])
    objects = np.array(MODELS, object)
    return [
        (
            table("gap.csv", frame.assign(code=frame["code"].where(frame.index != 3))),
            ["benchmarks_uri", "code", "missing"],
        ),
        (table("percent.csv", frame.assign(math=100 * frame["math"])), ["benchmarks_uri", "math", "task_max"]),
        (table("one.csv", frame.head(1)), ["benchmarks_uri", "fewer than 2"]),
        (table("twice.csv", twice), ["benchmarks_uri", "model", "repeat"]),
        (table("no-model.csv", frame.drop(columns="model")), ["benchmarks_uri", "model", "missing"]),
        (table("no-task.csv", frame[["model"]]), ["benchmarks_uri", "no column of a task"]),
        (table("words.csv", frame.assign(note="x")), ["benchmarks_uri", "note"]),
        (evidence("lacks.csv", lost.drop(columns=MODELS[2])), ["target_losses_uri", "lacks", MODELS[2]]),
        (evidence("more.csv", lost.assign(other=0.0)), ["target_losses_uri", "'other'"]),
        (evidence("above.csv", lost + 0.5), ["target_losses_uri", "not at most 1"]),
        (evidence("nan.csv", holes), ["target_losses_uri", "missing"]),
        (arrays("shape.npz", y=np.zeros(3)), ["target_predictions_uri", "fit together"]),
        (arrays("objects.npz", models=objects), ["target_predictions_uri", "Python objects"]),
        (arrays("classes.npz", y=np.full(20, 7)), ["target_predictions_uri", "classes 0 to 1"]),
        (arrays("raw.npz", pred=3 * predictions()["pred"]), ["target_predictions_uri", "probabilities"]),
        (good | {"task_max": {"chess": 3.0}}, ["task_max", "'chess'"]),
        ({"k_sources": [2, 8]}, ["k_sources", "8 tasks"]),
        (good | {"cover_t": -0.1}, ["cover_t", "negative"]),
        ({"target_losses_uri": good["target_losses_uri"]}, ["benchmarks"]),
        (good | {"target_predictions_uri": good["target_losses_uri"]}, ["target_predictions"]),
    ]
