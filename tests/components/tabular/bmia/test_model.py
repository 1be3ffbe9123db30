"""The fitted attack, saved and loaded, says of a record what the audit said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.components.tabular.bmia.component import BmiaOutputs, load_model
from kfp_methods.contract import FittedModel
from kfp_methods.tracking.models import build


def as_asked(files: dict[str, Any]) -> pd.DataFrame:
    """The user's own audit file, its member column included, with the target's logits beside it."""
    logits = np.load(files["target_logits_uri"])["logits"]
    return pd.read_csv(files["audit_uri"]).join(pd.DataFrame(logits).add_prefix("logit"))


def test_a_loaded_attack_repeats_the_audit(found: BmiaOutputs, files: dict[str, Any], tmp_path: Path) -> None:
    found.model.save(tmp_path)
    predicted = load_model(tmp_path).predict(as_asked(files))
    audited = found.membership.frame.sort_values("row")
    np.testing.assert_allclose(predicted["t"], audited["t"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(predicted["p_value"], audited["p_value"], rtol=1e-4, atol=1e-7)
    assert predicted["member"].tolist() == (audited["decision"] == "member").tolist()


def test_without_a_calibrated_threshold_the_nominal_test_decides(
    execute_here: Callable[..., BmiaOutputs], files: dict[str, Any], tmp_path: Path
) -> None:
    execute_here(**files, decision_rule="t", alpha=0.2).model.save(tmp_path)
    predicted = load_model(tmp_path).predict(as_asked(files))
    assert predicted["member"].tolist() == (predicted["p_value"] < 0.2).tolist()
    assert predicted["member"].any()


def test_columns_are_taken_by_name_in_any_order_and_numbers_of_any_type(
    found: BmiaOutputs, files: dict[str, Any]
) -> None:
    frame = as_asked(files).head(40)
    whole = [f"pixel_{number}" for number in range(20, 30)]
    frame[whole] = frame[whole].round()
    assert list(found.model.example())[:64] == [name for name in frame if name.startswith("pixel_")]
    shuffled = frame.sample(axis=1, frac=1, random_state=0)
    expected = found.model.predict(frame)
    pd.testing.assert_frame_equal(found.model.predict(shuffled), expected)
    retyped = shuffled.astype(dict.fromkeys(whole, int) | {"label": float})
    pd.testing.assert_frame_equal(found.model.predict(retyped), expected)
    pd.testing.assert_frame_equal(found.model.predict(frame.astype(object)), expected)


@pytest.mark.parametrize("column", ["pixel_7", "label", "logit3"])
@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_a_row_with_a_gap_has_no_answer_and_leaves_the_others(
    found: BmiaOutputs, files: dict[str, Any], column: str, gap: float
) -> None:
    frame = as_asked(files).head(20)
    frame.index = pd.Index([f"row {number}" for number in range(20)])
    expected = found.model.predict(frame)
    answer = found.model.predict(
        frame.assign(**{column: frame[column].astype(float).mask(frame.index == "row 4", gap)})
    )
    assert answer.loc["row 4"].isna().all()
    assert answer["member"].dtype == expected["member"].dtype == "boolean"
    pd.testing.assert_frame_equal(answer.drop(index="row 4"), expected.drop(index="row 4"))
    nothing = found.model.predict(frame.assign(**{column: np.nan}))
    assert nothing.isna().all(axis=None)


@pytest.mark.slow
def test_mlflow_serves_the_users_own_frame(found: BmiaOutputs, files: dict[str, Any], tmp_path: Path) -> None:
    """Read from CSV: a member column that is not asked for, whole numbers where a feature or the label has them."""
    import mlflow

    (tmp_path / "saved").mkdir()
    found.model.save(tmp_path / "saved")
    (tmp_path / "saved" / "method.json").write_text(json.dumps({"method": "bmia"}))
    settings, place = SimpleNamespace(method="bmia", version="0"), SimpleNamespace(run_id="r")
    logged = SimpleNamespace(artifact_location="a", model_id="m-1")
    build(settings, place, found.model, tmp_path / "saved", tmp_path / "logged", logged)  # type: ignore[arg-type]
    served = mlflow.pyfunc.load_model(str(tmp_path / "logged"))
    as_asked(files).to_csv(tmp_path / "mine.csv", index=False)
    frame = pd.read_csv(tmp_path / "mine.csv")
    assert frame["label"].dtype.kind == "i"
    expected = found.model.predict(frame)
    pd.testing.assert_frame_equal(served.predict(frame), expected)
    pd.testing.assert_frame_equal(served.predict(frame.head(3)), expected.head(3))
    pd.testing.assert_frame_equal(served.predict(frame.astype({"label": float})), expected)


def test_the_folder_holds_data_only(found: BmiaOutputs, tmp_path: Path) -> None:
    found.model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attack.json", "attack.safetensors"]
    assert json.loads((tmp_path / "attack.json").read_text())["decision_rule"] == "calibrated"


def test_the_example_is_accepted_and_repeats_the_audit(found: BmiaOutputs) -> None:
    assert isinstance(found.model, FittedModel)
    predicted = found.model.predict(found.model.example())
    audited = found.membership.frame.sort_values("row").head(3)
    np.testing.assert_allclose(predicted["t"], audited["t"], rtol=1e-4, atol=1e-4)


def test_probabilities_give_what_logits_give(found: BmiaOutputs, files: dict[str, Any]) -> None:
    frame = as_asked(files)
    names = [name for name in frame if name.startswith("logit")]
    logits = frame[names].to_numpy(np.float64)
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = frame.assign(**dict(zip(names, (shifted / shifted.sum(1, keepdims=True)).T, strict=True)))
    np.testing.assert_allclose(found.model.predict(probabilities)["t"], found.model.predict(frame)["t"], atol=1e-3)


def test_what_is_wrong_with_a_request_is_said(found: BmiaOutputs) -> None:
    example = found.model.example()
    with pytest.raises(ValueError, match="missing columns"):
        found.model.predict(example.drop(columns=["pixel_3"]))
    with pytest.raises(ValueError, match="from 0 to 9"):
        found.model.predict(example.assign(label=10))
    with pytest.raises(ValueError, match="something else than numbers"):
        found.model.predict(example.assign(pixel_3="dark"))
    assert len(found.model.predict(example.head(0))) == 0
