"""Runs on a user's tables and on the sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.weak_monotonicity import choices, sample
from kfp_methods.components.tabular.weak_monotonicity.component import (
    WeakMonotonicityInputs,
    WeakMonotonicityOutputs,
    load,
    run,
)
from kfp_methods.context import Context
from tests.components.tabular.weak_monotonicity import own_data

Execute = Callable[..., WeakMonotonicityOutputs]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture
def execute_here(context: Context) -> Execute:
    def execute(**parameters: Any) -> WeakMonotonicityOutputs:
        inputs = WeakMonotonicityInputs.parse({"preset": "smoke", **parameters})
        return run(inputs, load(inputs, context), context)

    return execute


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return own_data.make(tmp_path)


def test_a_users_target_gets_a_pick_and_how_sure_it_is(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files)
    table = found.selection.frame.set_index("learner")
    losses = own_data.losses().mean()
    picked = str(table.loc["adaptive", "model"])
    assert table.loc["adaptive", "mean loss"] == pytest.approx(losses[picked])
    assert 0 <= table.loc["adaptive", "95% low"] <= losses[picked] <= table.loc["adaptive", "95% high"]
    assert 0 < table.loc["adaptive", "picked again"] <= 1
    assert found.report.summary.startswith(f"Pick {picked} for your target")
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    assert len(found.frontier.frame) == 12
    assert "Q-aggregation" not in table.index


def test_predictions_also_aggregate(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", **own_data.predictions())
    del files["target_losses_uri"]
    found = execute_here(**files, target_predictions_uri=str(tmp_path / "p.npz"))
    weights = found.selection.frame.set_index("learner").loc["Q-aggregation", "weights"]
    assert sum(float(part.split("=")[1]) for part in weights.split("; ")) == pytest.approx(1, abs=1e-3)


def test_without_evidence_only_rules_without_labels_pick(
    execute_here: Execute, files: dict[str, Any], context: Context
) -> None:
    del files["target_losses_uri"]
    found = execute_here(**files)
    assert set(found.selection.frame["learner"]) == {"minmax", "best mean", "uniform mixture"}
    assert "cannot be said" in found.report.summary
    assert any("need no labels" in text for text in context.warnings)


def test_scales_and_gaps_are_taken_as_told(execute_here: Execute, tmp_path: Path, context: Context) -> None:
    frame = own_data.benchmarks()
    frame["math"] = 40 * frame["math"]
    frame.loc[4, "code"] = np.nan
    frame.to_csv(tmp_path / "b.csv", index=False)
    found = execute_here(
        benchmarks_uri=str(tmp_path / "b.csv"), higher_is_better=True, task_max={"math": 40}, drop_incomplete=True
    )
    assert len(found.frontier.frame) == 11
    assert found.frontier.frame["math"].between(0, 1).all()
    assert any("missing cells" in text for text in context.warnings)


def test_suspicious_tables_are_pointed_at(execute_here: Execute, tmp_path: Path, context: Context) -> None:
    frame = own_data.benchmarks()
    frame["math"] = 1 - frame["math"]
    frame.to_csv(tmp_path / "b.csv", index=False)
    execute_here(benchmarks_uri=str(tmp_path / "b.csv"), higher_is_better=True)
    assert any("'math' orders the models against" in text for text in context.warnings)


def test_accuracies_given_as_risks_are_noticed(execute_here: Execute, tmp_path: Path, context: Context) -> None:
    pd.DataFrame({"model": list("abc"), "t": [0.9, 0.8, 0.7]}).to_csv(tmp_path / "c.csv", index=False)
    execute_here(benchmarks_uri=str(tmp_path / "c.csv"))
    assert any("higher_is_better" in text for text in context.warnings)


def test_edges(execute_here: Execute, tmp_path: Path) -> None:
    """One label, one task, models that are all alike, two models."""
    for name, R in {"alike": np.full((4, 2), 0.3), "two": np.array([[0.1], [0.2]])}.items():
        models = [f"m{i}" for i in range(len(R))]
        pd.DataFrame(R).add_prefix("t").assign(model=models).to_csv(tmp_path / f"{name}.csv", index=False)
        pd.DataFrame([[0.5] * len(R)], columns=models).to_csv(tmp_path / f"{name}-l.csv", index=False)
        found = execute_here(
            benchmarks_uri=str(tmp_path / f"{name}.csv"), target_losses_uri=str(tmp_path / f"{name}-l.csv")
        )
        assert found.selection.frame["mean loss"].eq(0.5).all()


def test_the_sample_shows_the_curve_and_the_same_numbers_twice(execute_here: Execute) -> None:
    found, again = (execute_here(n_subsamples=10, n_choices=8) for _ in range(2))
    assert found.curve.frame.equals(again.curve.frame)
    assert found.metrics == again.metrics
    assert set(found.curve.frame["K"]) == {1, 2}
    assert found.claims[0].claim.id == "adaptive-beats-all-with-few-labels"
    assert "excess risk with 1 label" in found.report.summary


def test_the_contract_knows_how_many_tasks_the_sample_has() -> None:
    assert len(sample.TASKS) == choices.SAMPLE_TASKS
