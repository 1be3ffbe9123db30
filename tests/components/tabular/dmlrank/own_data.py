"""A user's verdicts, a judge's opinions, and runs that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

MODELS = ("gpt-ö", "llama", "qwen")


def comparisons(n: int = 120, seed: int = 0) -> pd.DataFrame:
    """Two ordered pairs for each context; gpt-ö is the best."""
    rng = np.random.default_rng(seed)
    skill = dict(zip(MODELS, (1.0, 0.0, -0.5), strict=True))
    rows = []
    for i in range(n):
        hard = rng.normal()
        pairs = [(a, b) for a in MODELS for b in MODELS if a != b]
        for at in rng.choice(6, 2, replace=False):
            a, b = pairs[at]
            won = rng.random() < 1 / (1 + np.exp(-(skill[a] - skill[b]) * (1 + 0.5 * hard)))
            verdict = "tie" if rng.random() < 0.2 else "a" if won else "model_b"
            prompt = f"please {'solve' if hard > 0 else 'write'} this {'puzzle' if i % 3 else 'poem'}"
            rows.append((f"c{i}", a, f" {b} ", verdict, hard, prompt))
    return pd.DataFrame(rows, columns=["context_id", "model_a", "model_b", "verdict", "x_hard", "prompt"])


def judged(n: int = 120) -> pd.DataFrame:
    """Opinions on every ordered pair of every context."""
    rows = [(f"c{i}", a, b, 0.5, 0.3, 0.2) for i in range(n) for a in MODELS for b in MODELS if a != b]
    return pd.DataFrame(rows, columns=["context_id", "model_a", "model_b", "judge_a", "judge_b", "judge_tie"])


def make(folder: Path) -> dict[str, Any]:
    """Verdicts as JSON lines."""
    comparisons().to_json(folder / "verdikte.jsonl", orient="records", lines=True, force_ascii=False)
    return {"comparisons_uri": str(folder / "verdikte.jsonl"), "mu_model": "logistic"}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, frame = make(folder), comparisons()

    def csv(name: str, changed: pd.DataFrame, **more: Any) -> dict[str, Any]:
        changed.to_csv(folder / name, index=False)
        return {**good, "comparisons_uri": str(folder / name), **more}

    def at(row: int, column: str, value: object) -> pd.DataFrame:
        return frame.assign(**{column: frame[column].where(frame.index != row, value)})  # type: ignore[call-overload]

    apart = frame.assign(
        model_a=np.where(frame.index % 2, "one", "three"), model_b=np.where(frame.index % 2, "two", "four"),
        context_id=[f"c{i}" for i in range(len(frame))],
    ).drop(columns=["x_hard", "prompt"])  # fmt: skip
    few = frame[frame["context_id"].isin([f"c{i}" for i in range(20)])]
    judged().iloc[1:].to_csv(folder / "lacks.csv", index=False)
    judged().assign(judge_a=1.5).to_csv(folder / "above.csv", index=False)
    comparisons()[["prompt"]].to_csv(folder / "no-id.csv", index=False)
    return [
        (csv("verdict.csv", at(3, "verdict", "maybe")), ["comparisons_uri", "'maybe'", "line 5"]),
        (csv("self.csv", at(4, "model_b", frame["model_a"][4])), ["compared with itself", "line 6"]),
        (csv("case.csv", at(5, "model_a", "LLAMA")), ["'LLAMA' and 'llama'", "case"]),
        (csv("twice.csv", pd.concat([frame, frame.tail(1)])), ["repeats a comparison", "line 242"]),
        (csv("apart.csv", apart), ["2 groups", "never compared"]),
        (csv("few.csv", few), ["20 contexts", "too few"]),
        (csv("nan.csv", at(6, "x_hard", np.nan)), ["x_hard", "missing"]),
        (csv("differs.csv", at(7, "x_hard", 99.0)), ["different features"]),
        (csv("no-verdict.csv", frame.drop(columns="verdict")), ["comparisons_uri", "verdict"]),
        (csv("word.csv", frame.assign(x_hard="x")), ["x_hard", "not a number"]),
        (csv("propensity.csv", frame.assign(propensity=0.0)), ["propensity", "greater than 0"]),
        (csv("one.csv", frame.assign(propensity=1.5)), ["propensity", "at most 1"]),
        (csv("no-prompt.csv", frame.drop(columns="prompt"), text_features="tfidf_svd100"), ["prompt"]),
        (csv("empty.csv", frame.head(0)), ["comparisons_uri", "0 rows"]),
        (good | {"judge_uri": str(folder / "lacks.csv")}, ["judge_uri", "lacks 1 pair"]),
        (good | {"judge_uri": str(folder / "above.csv")}, ["judge_uri", "at most 1"]),
        (good | {"contexts_uri": str(folder / "no-id.csv")}, ["contexts_uri", "context_id"]),
        (good | {"plan_budget": 1e6}, ["plan_budget", "outside"]),
        (good | {"plan_costs": {"llama": 2.0}}, ["plan_budget", "missing"]),
        (good | {"plan_costs": {"claude": 2.0}, "plan_budget": 100.0}, ["plan_costs", "'claude'"]),
        (good | {"n_folds": 1}, ["n_folds"]),
        ({"judge_uri": str(folder / "lacks.csv")}, ["comparisons", "missing"]),
        ({"plan_budget": 5.0}, ["comparisons", "missing"]),
    ]
