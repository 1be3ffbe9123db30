"""Runs on a user's events, releases, and the sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.dp_distinct_elements.choices import MECHANISMS
from kfp_methods.components.tabular.dp_distinct_elements.component import METHOD, DpDistinctElementsOutputs
from tests.components.tabular.dp_distinct_elements import own_data

Execute = Callable[..., DpDistinctElementsOutputs]


@pytest.fixture
def execute_here(execute: Execute) -> Execute:
    return partial(execute, METHOD)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return own_data.make(tmp_path)


def daily_truth() -> list[int]:
    """By pandas: the running sum of both kinds, at the end of each day."""
    frame = own_data.events()
    change = np.where(frame["op"] == "insert", 1, -1)
    return pd.Series(change, frame["t"].to_numpy()).resample("1D").sum().cumsum().tolist()


def test_a_users_log_is_counted_day_by_day(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files, reveal_truth=True)
    counts = found.private_counts.frame
    tree = counts[counts["mechanism"] == "tree_linear"]
    assert tree["true_count"].tolist() == daily_truth()
    assert str(tree["t"].iloc[0]) == "2025-03-01 00:00:00"
    assert np.abs(tree["count"] - tree["true_count"]).max() < 6 * tree["std"].max()
    assert found.metrics.rmse == pytest.approx(np.sqrt(np.mean((tree["count"] - tree["true_count"]) ** 2)))
    assert "for the owner of the data alone" in found.report.summary
    assert "smallest budget tried" in found.report.summary or "no budget tried" in found.report.summary


def test_the_truth_is_not_told_unasked(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files)
    assert "true_count" not in found.private_counts.frame
    assert {"rmse", "max_error", "left_out_rms"}.isdisjoint(found.frontier.frame.columns)
    assert found.metrics.rmse is None
    assert {"rmse"}.isdisjoint(found.budgets.frame.columns)


def test_a_release_holds_nothing_but_noisy_counts(execute_here: Execute, files: dict[str, Any]) -> None:
    one, two = (execute_here(**files, publish=True, mechanism=["tree_linear"], horizon=64) for _ in range(2))
    assert list(one.private_counts.frame.columns) == ["mechanism", "t", "count", "std"]
    assert not np.allclose(one.private_counts.frame["count"], two.private_counts.frame["count"])  # whatever the seed
    assert one.frontier.frame.empty
    assert one.attacks.frame.empty
    assert one.metrics.peak_bits is None
    assert one.metrics.audit_mu is None
    assert one.metrics.sigma_node == two.metrics.sigma_node
    assert {result.verdict for result in one.claims} == {Verdict.NOT_MEASURED}
    assert "(5, 1e-6)-differentially private" in one.privacy_report
    assert "may be published" in one.report.summary


@pytest.mark.parametrize("name", ["sample_hold", "tree_linear_auto"])
def test_the_other_private_mechanisms_publish_too(
    execute_here: Execute, files: dict[str, Any], name: str, warned: list[str]
) -> None:
    found = execute_here(**files, publish=True, mechanism=[name])
    assert len(found.private_counts.frame) == len(daily_truth())
    assert any("horizon is taken from the events" in text for text in warned)


def test_every_mechanism_runs_and_the_broken_ones_are_told(execute_here: Execute, tmp_path: Path) -> None:
    t = np.arange(600)
    pd.DataFrame({"t": t, "user": np.where(t < 500, "bot", "x"), "op": np.where(t % 2, -1, 1)}).to_parquet(
        tmp_path / "bot.parquet"
    )
    names = list(MECHANISMS)
    found = execute_here(events_uri=str(tmp_path / "bot.parquet"), mechanism=names, memory_budget_entries=1)
    assert set(found.private_counts.frame["mechanism"]) == set(names)
    table = found.attacks.frame.set_index("mechanism")["passed"]
    assert table["tree_linear"]
    assert table["sample_hold"]
    assert not table["nocap"]
    assert "breaks its promise" in found.report.summary


def test_whole_numbers_and_multisets(execute_here: Execute, tmp_path: Path) -> None:
    frame = pd.DataFrame({"t": [1, 1, 2, 5, 5, 9], "user": [7, 7, 8, 7, 7, 8], "op": [1, 1, 1, -1, -1, -1]})
    frame.to_json(tmp_path / "m.jsonl", orient="records", lines=True)
    found = execute_here(
        events_uri=str(tmp_path / "m.jsonl"),
        step="1",
        frequency_mode="multiset",
        mechanism=["tree_linear", "exact"],
        reveal_truth=True,
    )
    exact = found.private_counts.frame.query("mechanism == 'exact'")
    assert exact["t"].tolist() == list(range(1, 10))
    assert exact["count"].tolist() == [1, 2, 2, 2, 1, 1, 1, 1, 0]


def test_a_multiset_by_sketches(execute_here: Execute, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"t": range(120), "user": rng.integers(0, 30, 120), "op": 1})
    frame.to_csv(tmp_path / "s.csv", index=False)
    asked = {"events_uri": str(tmp_path / "s.csv"), "frequency_mode": "multiset", "epsilon": 500.0}
    found = execute_here(**asked, mechanism=["sample_hold", "exact"], reveal_truth=True)
    held = found.private_counts.frame.query("mechanism == 'sample_hold'")
    assert (np.abs(held["count"] - held["true_count"]) < 8 * held["std"] + 1).mean() > 0.9
    assert found.attacks.frame.empty
    released = execute_here(**asked, mechanism=["sample_hold"], publish=True)
    assert len(released.private_counts.frame) == 120


def test_rows_out_of_order_are_sorted_and_told(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path, warned: list[str]
) -> None:
    frame = own_data.events().sort_values("t", ascending=False, kind="stable")
    frame.to_csv(tmp_path / "back.csv", index=False)
    found = execute_here(**files | {"events_uri": str(tmp_path / "back.csv")}, reveal_truth=True)
    tree = found.private_counts.frame.query("mechanism == 'tree_linear'")
    assert tree["true_count"].tolist() == daily_truth()
    assert any("sorted" in text for text in warned)


def test_thinning_leaves_the_noise_as_it_is(execute_here: Execute, files: dict[str, Any]) -> None:
    every, seventh = (execute_here(**files, release_every=n).private_counts.frame for n in (1, 7))
    every, seventh = (frame[frame["mechanism"] == "tree_linear"].reset_index(drop=True) for frame in (every, seventh))
    assert seventh["count"].tolist() == every["count"].iloc[6::7].tolist()


def test_edges(execute_here: Execute, tmp_path: Path) -> None:
    """One event, one user who never leaves, a million events."""
    for n in (1, 5):
        frame = pd.DataFrame({"t": range(n), "user": [f"u{i}" for i in range(n)], "op": 1})
        frame.to_csv(tmp_path / "e.csv", index=False)
        found = execute_here(events_uri=str(tmp_path / "e.csv"), reveal_truth=True)
        assert len(found.private_counts.frame) == 4 * n
    n = 1_000_000
    rng = np.random.default_rng(0)
    user = np.repeat(rng.integers(0, 100_000, n // 2), 2)
    frame = pd.DataFrame({"t": np.arange(n) // 100, "user": user, "op": np.tile([1, -1], n // 2)})
    frame.to_parquet(tmp_path / "m.parquet")
    found = execute_here(events_uri=str(tmp_path / "m.parquet"), step="1", caps=[4], audit_trials=0)
    assert len(found.private_counts.frame) == 4 * 10_000


def test_the_sample_shows_every_claim_and_the_same_numbers_twice(execute_here: Execute) -> None:
    found, again = (execute_here() for _ in range(2))
    assert found.private_counts.frame.equals(again.private_counts.frame)
    assert found.metrics == again.metrics
    assert {result.claim.id for result in found.claims if result.verdict is Verdict.NOT_MEASURED} == set()
    assert found.metrics.sigma_node == pytest.approx(38.58, abs=0.01)
