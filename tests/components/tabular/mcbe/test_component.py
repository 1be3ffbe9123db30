"""Runs on a user's table and arrays and on the sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.mcbe.component import METHOD, McbeOutputs, load_model
from tests.components.tabular.mcbe import own_data

Execute = Callable[..., McbeOutputs]


@pytest.fixture
def execute_here(execute: Execute) -> Execute:
    return partial(execute, METHOD)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return own_data.make(tmp_path)


def test_a_users_table_is_explained(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    found = execute_here(**files, epochs=40, lr=3e-3, variant="linear")
    assert found.metrics.score > 0.5
    assert found.metrics.concept_score is not None
    assert found.metrics.concept_score > 0.8
    assert "Last (kN)" in " ".join(found.experts.frame["formula"])
    assert "decide y from the concepts exp, Last (kN), __import__('os')" in found.report.summary
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    rows = found.predictions.frame
    assert len(rows) == 45
    found.model.save(tmp_path)
    back = load_model(tmp_path)
    frame = own_data.table().head(20)
    one, two = found.model.predict(frame), back.predict(frame)
    assert one["prediction"].to_numpy() == pytest.approx(two["prediction"].to_numpy(), rel=1e-4)
    assert one["expert"].tolist() == two["expert"].tolist()
    about = json.loads((tmp_path / "experts.json").read_text(encoding="utf-8"))
    assert about["concepts"] == ["exp", "Last (kN)", "__import__('os')"]
    with pytest.raises(ValueError, match="columns x_"):
        back.predict(frame.drop(columns="x_0"))


def test_a_tampered_bundle_runs_nothing(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    execute_here(**files, variant="linear", epochs=1).model.save(tmp_path)
    about = json.loads((tmp_path / "experts.json").read_text(encoding="utf-8"))
    about["experts"][0][0] = ["__import__('os').system", "X1"]
    (tmp_path / "experts.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(ValueError, match="no tree of a formula"):
        load_model(tmp_path)


@pytest.mark.parametrize("variant", ["linear", "symbolic", "both"])
def test_arrays_with_classes(execute_here: Execute, tmp_path: Path, variant: str) -> None:
    np.savez(tmp_path / "a.npz", **own_data.arrays())  # type: ignore[arg-type]
    found = execute_here(
        data_uri=str(tmp_path / "a.npz"), variant=variant, epochs=40, lr=3e-3, n_experts=[1, 2], operators=[]
    )
    assert found.metrics.score > 0.8
    assert set(found.predictions.frame["prediction"]) <= {"0", "1"}
    assert set(found.models.frame["model"]) >= {"black box", "linear by row (LICEM)", "concept embeddings (CEM)"}


def test_text_classes_several_targets_and_a_split(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    frame = own_data.table()
    parts = np.resize(["train", "train", "train", "val", "test"], len(frame))
    classes = pd.cut(frame["y"], 3, labels=["low", "middle", "high"]).astype(str)
    frame.assign(y=classes, split=parts).to_csv(tmp_path / "c.csv", index=False)
    found = execute_here(**files | {"data_uri": str(tmp_path / "c.csv")}, variant="linear")
    assert set(found.predictions.frame["true"]) <= {"low", "middle", "high"}
    assert len(found.predictions.frame) == 60
    frame.assign(y_second=frame["y"] ** 2, split=parts).rename(columns={"y": "y_first"}).to_csv(
        tmp_path / "t.csv", index=False
    )
    found = execute_here(**files | {"data_uri": str(tmp_path / "t.csv")}, clip_to_range=True)
    assert {"prediction_first", "prediction_second"} <= set(found.predictions.frame.columns)
    assert found.predictions.frame["prediction_second"].min() >= (frame["y"] ** 2).min() - 1e-6


def test_edges(execute_here: Execute, files: dict[str, Any], tmp_path: Path, warned: list[str]) -> None:
    """One concept, a constant one, inputs that never vary, and images."""
    frame = own_data.table(60)
    narrow = frame[["x_0", "c_exp", "y"]].assign(x_1=1.0, c_flat=5.0)
    narrow.to_csv(tmp_path / "n.csv", index=False)
    found = execute_here(**files | {"data_uri": str(tmp_path / "n.csv")})
    assert np.isfinite(found.metrics.score)
    assert any("'flat'" in text for text in warned)
    rng = np.random.default_rng(0)
    c = rng.normal(size=(60, 2))
    np.savez(tmp_path / "i.npz", x=rng.normal(size=(60, 1, 6, 7)).astype(np.float32), c=c, y=c.sum(1))
    found = execute_here(data_uri=str(tmp_path / "i.npz"), n_experts=[1, 2])
    assert found.predictions.frame["true_concept_concept 1"].to_numpy().size == 9
    assert len(found.model.predict(found.model.example())) == 1


def test_the_sample_gives_the_same_numbers_twice(execute_here: Execute) -> None:
    found, again = (execute_here() for _ in range(2))
    assert found.predictions.frame.equals(again.predictions.frame)
    assert found.metrics.score == again.metrics.score
    assert {result.verdict for result in found.claims}.isdisjoint({Verdict.NOT_MEASURED})
