"""The fitted attack, saved and loaded, says of a record what the audit said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.components.tabular.bmia.component import BmiaOutputs, load_model
from kfp_methods.contract import FittedModel


def as_asked(files: dict[str, Any]) -> pd.DataFrame:
    """The user's own audit file and logits under the names that `predict` wants."""
    audit = pd.read_csv(files["audit_uri"])
    pixels = audit.filter(like="pixel_").set_axis([f"x{index}" for index in range(64)], axis=1)
    logits = np.load(files["target_logits_uri"])["logits"]
    named = pd.DataFrame(logits, columns=[f"logit{index}" for index in range(10)])
    return pd.concat([pixels, audit["label"], named], axis=1)


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
        found.model.predict(example.drop(columns=["x3"]))
    with pytest.raises(ValueError, match="from 0 to 9"):
        found.model.predict(example.assign(label=10))
    assert len(found.model.predict(example.head(0))) == 0
