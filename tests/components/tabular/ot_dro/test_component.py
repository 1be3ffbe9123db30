"""Runs on a user's tables and on the sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.ot_dro.component import METHOD, OtDroOutputs, load_model
from tests.components.tabular.ot_dro import own_data

Execute = Callable[..., OtDroOutputs]


@pytest.fixture
def execute_here(execute: Execute) -> Execute:
    return partial(execute, METHOD)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return own_data.make(tmp_path)


def test_a_users_prices_become_a_portfolio(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    found = execute_here(**files)
    weights = found.weights.frame.set_index("name")
    assert weights.sum().to_numpy() == pytest.approx(np.ones(7), abs=1e-6)
    assert (weights >= -1e-9).all(axis=None)
    returns = own_data.prices().drop(columns="date").pct_change().iloc[1:]
    table = found.decisions.frame.set_index("set")
    by_hand = -(returns.iloc[60:] @ weights["learned set"]).mean()
    assert table.loc["learned set", "loss_on_test"] == pytest.approx(by_hand)
    assert table.loc["no robustness", "certificate"] == pytest.approx(-returns.iloc[:60].mean().max())
    assert found.report.summary.startswith("Portfolio, expected return, your data. Hold ")
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    predicted = found.decision.predict(returns)["portfolio_return"]
    assert -predicted.iloc[60:].mean() == pytest.approx(by_hand)
    found.decision.save(tmp_path)
    metric = np.load(tmp_path / "L.npy", allow_pickle=False)
    assert metric == pytest.approx(found.transport.frame.drop(columns="column").to_numpy())
    back = load_model(tmp_path)
    pd.testing.assert_frame_equal(back.predict(returns), found.decision.predict(returns))
    with pytest.raises(ValueError, match="missing columns"):
        back.predict(returns.drop(columns="gold"))


@pytest.mark.parametrize("problem", ["reg_abs", "reg_sq"])
def test_a_users_regression_has_an_intercept(execute_here: Execute, tmp_path: Path, problem: str) -> None:
    own_data.table().to_parquet(tmp_path / "t.parquet")
    found = execute_here(data_uri=str(tmp_path / "t.parquet"), problem=problem)
    coefficients = found.weights.frame.set_index("name")["no robustness"]
    assert coefficients["a"] == pytest.approx(2, abs=0.3)
    assert coefficients["b"] == pytest.approx(-1, abs=0.3)
    predicted = found.decision.predict(own_data.table())["y"]
    assert predicted.mean() == pytest.approx(50, abs=1)
    errors = (own_data.table()["y"] - predicted).iloc[40:]
    loss = errors.abs().mean() if problem == "reg_abs" else (errors**2).mean()
    assert found.metrics.oos_loss == pytest.approx(loss)


def test_rows_by_date_and_returns_over_several_rows(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path, warned: list[str]
) -> None:
    own_data.prices().sort_values("gold").to_csv(tmp_path / "mixed.csv", index=False)
    one = execute_here(**files, return_horizon=5)
    two = execute_here(**files | {"data_uri": str(tmp_path / "mixed.csv")}, return_horizon=5)
    assert one.metrics.oos_loss == two.metrics.oos_loss
    assert any("sorted" in text for text in warned)


def test_suspicious_tables_are_pointed_at(execute_here: Execute, files: dict[str, Any], warned: list[str]) -> None:
    del files["input_kind"]
    execute_here(**files | {"n_bootstrap": 5})
    assert any("input_kind=prices" in text for text in warned)
    assert any("gamma * n_bootstrap" in text for text in warned)


def test_a_test_file_and_no_test_at_all(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    later = own_data.prices(seed=5).assign(date=pd.bdate_range("2026-01-01", periods=121).strftime("%Y-%m-%d"))
    later.to_csv(tmp_path / "later.csv", index=False)
    found = execute_here(**files, test_data_uri=str(tmp_path / "later.csv"))
    assert found.metrics.oos_loss is not None
    without = execute_here(**files, test_fraction=0.0)
    assert without.metrics.oos_loss is None
    assert without.metrics.certificate == pytest.approx(found.metrics.certificate)


@pytest.mark.parametrize("problem", ["po_mean", "po_cvar"])
def test_edges(execute_here: Execute, tmp_path: Path, problem: str) -> None:
    """One asset; copies of an asset; more assets than rows; missing rows."""
    returns = own_data.prices().drop(columns="date").pct_change().iloc[1:]
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(24, 30))).add_prefix("asset ")
    holes = returns.copy()
    holes.iloc[::20] = np.nan
    for frame in (returns[["gold"]], returns.assign(copy=returns["gold"]), wide, holes):
        frame.to_csv(tmp_path / "edge.csv", index=False)
        found = execute_here(data_uri=str(tmp_path / "edge.csv"), problem=problem, n_bootstrap=10)
        assert found.weights.frame["learned set"].sum() == pytest.approx(1, abs=1e-6)


def test_short_positions(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files, short_allowed=True, gamma=0.9)
    weights = found.weights.frame["no robustness"]
    assert weights.min() == pytest.approx(-1, abs=1e-4)
    assert weights.sum() == pytest.approx(1, abs=1e-4)


def test_the_sample_gives_the_same_numbers_twice(execute_here: Execute) -> None:
    found, again = (execute_here(max_iter=10) for _ in range(2))
    assert found.decisions.frame.equals(again.decisions.frame)
    assert found.runs.frame.equals(again.runs.frame)
    assert found.claims[0].verdict is not Verdict.NOT_MEASURED


def test_every_part_of_the_sample_runs(execute_here: Execute) -> None:
    found = execute_here(sample_parts=["discrete", "stocks", "regression"], max_iter=5, n_years=2, n_seeds=1)
    assert {result.verdict for result in found.claims}.isdisjoint({Verdict.NOT_MEASURED})
    assert set(found.runs.frame["problem"]) == {"po_mean", "po_cvar", "reg_abs", "reg_sq"}
    assert "years of stocks the certificate held in" in found.report.summary
    alone = execute_here(sample_parts=["regression"], max_iter=5)
    assert alone.report.summary.startswith("Regression, absolute error")
