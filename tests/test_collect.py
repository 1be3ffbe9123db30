"""Joined replicates: means with the method's own words, each seed's numbers, and where its outputs are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfp_methods import claims
from kfp_methods.claims import Claim, judge
from kfp_methods.collect import METHOD, CollectOutputs
from kfp_methods.context import Context
from kfp_methods.report import Table
from tests.conftest import Ended

GAIN = Claim("gain", "It gains", "0.1", "difference", "greater", 0.0)


def replicate(folder: Path, seed: int, metrics: dict[str, Any], about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A replicate's files, and their artifacts as KFP hands them on."""
    place = folder / f"replicate-{seed}"
    place.mkdir()
    (place / "claims").write_text(claims.dumps([judge(GAIN, [1.0 + seed / 10], seeds=[seed])]))
    (place / "metrics").write_text(json.dumps(metrics))
    return {
        "claims": {"uri": str(place / "claims"), "path": place / "claims", "metadata": about},
        "metrics": {"uri": str(place / "metrics"), "path": place / "metrics", "metadata": {}},
    }


def three(folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Not in the order of their seeds, which arrive as KFP's floating-point numbers."""
    return [
        replicate(
            folder,
            seed,
            {"total": 6.0 + seed, "steps_made": 3, "unknown": None},
            {"data": "sample", "seed": float(seed), "mlflow_run_id": f"run-{seed}", "pod": f"pod-{seed}"},
        )
        for seed in (2, 0, 1)
    ]


def joined(
    replicates: list[dict[str, dict[str, Any]]], context: Context, method: str = "noop", **parameters: Any
) -> CollectOutputs:
    inputs = METHOD.inputs.parse(
        {
            "method": method,
            "replicate_claims": [one["claims"] for one in replicates],
            "replicate_metrics": [one["metrics"] for one in replicates],
            **parameters,
        }
    )
    return METHOD.run(inputs, METHOD.load(inputs, context), context)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path)


def tables(outputs: CollectOutputs) -> dict[str, Table]:
    return {part.name: part for part in outputs.report.parts if isinstance(part, Table)}


def test_metrics_are_means_with_the_methods_own_words(tmp_path: Path, context: Context) -> None:
    metrics = joined(three(tmp_path), context).metrics
    assert metrics.model_dump() == {"replicates": 3, "total": 7.0, "steps_made": 3, "unknown": None}
    help_texts = {name: info.description for name, info in type(metrics).model_fields.items()}
    assert help_texts["total"] == "The sum. Mean over the replicates."
    assert help_texts["replicates"] == "Number of replicates."


@pytest.mark.parametrize(("counts", "mean"), [((3, 3), 3), ((2, 4), 3), ((3, 4), 3.5)])
def test_the_mean_of_counts_is_a_count_where_it_is_whole(
    tmp_path: Path, context: Context, counts: tuple[int, int], mean: float
) -> None:
    replicates = [replicate(tmp_path, seed, {"flagged": n}, {}) for seed, n in enumerate(counts)]
    found = joined(replicates, context).metrics.model_dump()["flagged"]
    assert (found, type(found)) == (mean, type(mean))


def test_each_replicate_is_named_by_its_seed_with_its_run_and_its_outputs(tmp_path: Path, context: Context) -> None:
    outputs = joined(three(tmp_path), context)
    by_seed, places = outputs.by_seed.frame, tables(outputs)["places"].frame
    assert by_seed["replicate"].tolist() == places["replicate"].tolist() == ["seed 0", "seed 1", "seed 2"]
    assert by_seed["total"].tolist() == [6.0, 7.0, 8.0]
    assert places["MLflow run"].tolist() == ["run-0", "run-1", "run-2"]
    assert places["pod"].tolist() == ["pod-0", "pod-1", "pod-2"]
    assert places["outputs"].tolist() == [str(tmp_path / f"replicate-{seed}") for seed in range(3)]
    assert outputs.report.summary.startswith("3 replicates of noop (seeds 0, 1, 2) are joined.")
    assert [table.name for table in outputs.report.highlights] == ["spread"]


def test_what_is_not_known_of_a_replicate_is_left_out(tmp_path: Path, context: Context) -> None:
    outputs = joined([replicate(tmp_path, seed, {"total": 1.0}, {}) for seed in (5, 6)], context, method="")
    assert outputs.by_seed.frame["replicate"].tolist() == ["number 1", "number 2"]
    assert list(tables(outputs)["places"].frame.columns) == ["replicate", "outputs"]
    assert "seeds" not in outputs.report.summary


def test_replicates_that_failed_are_named(tmp_path: Path, context: Context) -> None:
    outputs = joined(three(tmp_path), context, wanted_seeds=[0, 1, 2, 3, 7])
    assert "2 failed: seed 3, 7." in outputs.report.summary
    assert context.warnings == ["no results of the replicates with seed 3, 7: they failed"]


def test_no_replicate_failed_where_all_that_were_wanted_are_there(tmp_path: Path, context: Context) -> None:
    assert "failed" not in joined(three(tmp_path), context, wanted_seeds=[0, 1, 2]).report.summary
    assert context.warnings == []


def test_the_spread_counts_who_measured_a_metric(tmp_path: Path, context: Context) -> None:
    rows = {row.pop("metric"): row for row in joined(three(tmp_path), context).spread.frame.to_dict("records")}
    assert rows["total"] == {"n": 3, "mean": 7.0, "sd": 1.0, "min": 6.0, "max": 8.0}
    assert rows["unknown"]["n"] == 0


def test_the_report_is_the_methods_own(tmp_path: Path, execute: Callable[..., Ended]) -> None:
    replicates = three(tmp_path)
    artifacts = {
        f"replicate_{kind}": {
            "artifacts": [
                {"name": kind, "uri": one[kind]["uri"], "metadata": one[kind]["metadata"]} for one in replicates
            ]
        }
        for kind in ("claims", "metrics")
    }
    ended = execute("collect", {"method": "noop"}, artifacts=artifacts)
    assert ended.code == 0, ended.stderr
    page = (ended.folder / "report").read_text()
    assert "<h1>Nothing at all: replicates joined</h1>" in page
    assert '<p class="paper"><code>noop</code>' in page
    assert "The sum. Mean over the replicates." in page
    (table,) = ended.summary["tables"]
    assert table["title"] == "Metrics over the replicates"
    assert table["rows"][0] == ["total", 3, 7.0, 1.0, 6.0, 8.0]
    assert ended.summary["headline"].startswith("3 replicates of noop (seeds 0, 1, 2)")
