"""Runs on a user's table and on the sample: predictions, how much the cheap rows helped, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.fire.component import FireOutputs, load_model
from kfp_methods.context import Context
from tests.components.tabular.fire import own_data

Execute = Callable[..., FireOutputs]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return own_data.make(tmp_path)


def test_a_users_query_is_answered_with_error_bars(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path
) -> None:
    found = execute_here(**files)
    answers = found.predictions.frame
    assert [*answers.columns[:3]] == ["angle", "Geschwindigkeit", "surface"]
    truth = own_data.table(0, 5, seed=1)["y"]
    assert answers["mean"].to_numpy() == pytest.approx(truth.to_numpy(), abs=4)
    assert (answers["q05"] < answers["q95"]).all()
    assert "5 rows of the query" in found.report.summary
    assert "held-out rows" in found.report.summary
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    found.surrogate.save(tmp_path)
    again = load_model(tmp_path)
    expected = answers[["mean", "variance", "q05"]].to_numpy()
    asked = pd.read_csv(files["query_uri"], sep=";")
    assert again.predict(asked)[["mean", "variance", "q05"]].to_numpy() == pytest.approx(expected)
    assert len(again.predict(again.example())) == 1


@pytest.mark.parametrize("backend", ["pfn", "gp"])
def test_cheap_rows_help_where_they_are_related(execute_here: Execute, tmp_path: Path, backend: str) -> None:
    own_data.table(100, 40).drop(columns="surface").to_csv(tmp_path / "t.csv", index=False)
    found = execute_here(table_uri=str(tmp_path / "t.csv"), backend=backend, test_fraction=0.5)
    assert found.metrics.error_ratio is not None
    assert found.metrics.error_ratio < 1
    assert found.metrics.coverage_80 is not None


def test_a_model_refuses_what_it_does_not_know(execute_here: Execute, files: dict[str, Any]) -> None:
    model = execute_here(**files).surrogate
    with pytest.raises(ValueError, match="missing columns"):
        model.predict(pd.DataFrame({"angle": [1.0]}))
    with pytest.raises(ValueError, match="unknown category"):
        model.predict(model.example().assign(surface="wet"))


def test_own_split_is_kept_and_nothing_is_refitted_on_it(execute_here: Execute, tmp_path: Path) -> None:
    frame = own_data.table(40, 12).assign(split=["train"] * 46 + ["test"] * 6)
    frame.to_parquet(tmp_path / "t.parquet")
    found = execute_here(table_uri=str(tmp_path / "t.parquet"))
    assert len(found.predictions.frame) == 6
    assert len(found.surrogate.rows.y) == 46


def test_nothing_held_out_is_predictions_alone(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files, test_fraction=0.0)
    assert found.scores.frame.empty
    assert (found.metrics.nrmse, found.metrics.error_ratio) == (None, None)
    assert "not known" in found.report.summary


def test_a_users_table_can_be_a_benchmark(execute_here: Execute, tmp_path: Path) -> None:
    own_data.table(60, 40).to_csv(tmp_path / "t.csv", index=False)
    found = execute_here(table_uri=str(tmp_path / "t.csv"), mode="benchmark", hf_budgets=[5, 15], n_seeds=2)
    assert set(found.scores.frame["n_high"]) == {5, 15}
    assert set(found.scores.frame["problem"]) == {"your table"}


def test_edges(execute_here: Execute, context: Context, tmp_path: Path) -> None:
    """One feature that does not vary, constant targets, repeated points, rows outside of the box, many columns."""
    base = own_data.table(20, 6)[["angle", "fidelity", "y"]]
    cases = {
        "flat": base.assign(angle=1.0),
        "constant": base.assign(y=2.0),
        "ties": pd.concat([base, base.assign(y=base["y"] + 1)]),
        "wide": pd.concat([base, pd.DataFrame(np.random.default_rng(0).random((26, 16))).add_prefix("w")], axis=1),
    }
    for name, frame in cases.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        found = execute_here(table_uri=str(tmp_path / f"{name}.csv"))
        assert np.isfinite(found.predictions.frame["mean"]).all(), name
    assert any("no feature varies" in text for text in context.warnings)
    assert any("different y" in text for text in context.warnings)
    pd.DataFrame({"angle": [1.0, 50.0]}).to_csv(tmp_path / "q.csv", index=False)
    execute_here(table_uri=str(tmp_path / "ties.csv"), query_uri=str(tmp_path / "q.csv"))
    assert any("50% of the query's rows lie outside" in text for text in context.warnings)


def test_the_sample_says_who_wins(execute_here: Execute) -> None:
    found = execute_here(n_seeds=2, problems=["forrester", "branin"], hf_budgets=[6, 12])
    assert len(found.claims) == 7
    assert found.claims[-1].verdict is Verdict.NOT_MEASURED
    assert "geometric mean" in found.report.summary
    ranked = found.scores.frame["method"].nunique()
    assert found.metrics.rank_nrmse is not None
    assert 1 <= found.metrics.rank_nrmse <= ranked


def test_with_a_thousand_cheap_rows_time_is_compared(execute_here: Execute) -> None:
    found = execute_here(problems=["forrester"], n_low=1_000, hf_budgets=[5], n_seeds=1)
    assert found.claims[-1].value is not None
