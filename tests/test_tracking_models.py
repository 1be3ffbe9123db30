"""The signature of a logged model takes the frames that users have, and MLflow serves what it predicts."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.tracking.models import build, signature_of
from tests.tracked_runs import TOY, saved_model

EXAMPLE = pd.DataFrame({"label": [0, 1], "age": [30.5, 41.0], "name": ["a", "b"], "flag": [True, False]})
PREDICTED = pd.DataFrame({"t": [0.5, 1.5], "member": pd.array([True, None], dtype="boolean")})


def enforced(frame: pd.DataFrame, example: pd.DataFrame = EXAMPLE) -> pd.DataFrame:
    from mlflow.models.utils import _enforce_schema

    return _enforce_schema(frame, signature_of(example, PREDICTED).inputs)


@pytest.mark.parametrize("label", [[0, 1], [0.0, 1.0], [np.nan, 1.0]], ids=str)
@pytest.mark.parametrize("age", [[30, 41], [30.5, 41.0], [1e300, np.nan]], ids=str)
def test_a_column_of_numbers_takes_numbers_of_any_type(label: list[Any], age: list[Any]) -> None:
    frame = EXAMPLE.assign(label=label, age=age)
    pd.testing.assert_frame_equal(enforced(frame), frame)


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8", "float32", "float64", "Int64"])
def test_whatever_type_the_examples_numbers_have(kind: str) -> None:
    example = EXAMPLE.assign(label=EXAMPLE["label"].astype(kind))
    assert enforced(EXAMPLE.assign(label=[5, 6]), example)["label"].tolist() == [5, 6]


def test_text_and_flags_stay_typed_and_columns_are_taken_by_name() -> None:
    shuffled = EXAMPLE[["flag", "name", "age", "label"]].assign(member=1)
    assert list(enforced(shuffled)) == list(EXAMPLE), "in the model's order, and nothing else"
    with pytest.raises(Exception, match="flag"):
        enforced(EXAMPLE.assign(flag=["yes", "no"]))
    with pytest.raises(Exception, match="age"):
        enforced(EXAMPLE.drop(columns="age"))


def test_outputs_are_described_as_they_are_and_nothing_is_hinted_at() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = signature_of(EXAMPLE, PREDICTED).outputs
    assert [(column.name, str(column.type), column.required) for column in outputs] == [
        ("t", "DataType.double", True),
        ("member", "DataType.boolean", False),
    ]


@pytest.mark.slow
def test_a_served_model_answers_requests_of_whole_numbers_and_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow.pyfunc.scoring_server import invocations  # what `mlflow models serve` does with a request

    monkeypatch.setattr("kfp_methods.catalogue.load", lambda name: TOY)
    made = saved_model(tmp_path / "m")
    place, logged = SimpleNamespace(run_id="r"), SimpleNamespace(artifact_location="a", model_id="m-1")
    target = tmp_path / "served"
    build(SimpleNamespace(method="toy", version="0"), place, made["model"], made["model_folder"], target, logged)  # type: ignore[arg-type]
    model = mlflow.pyfunc.load_model(str(target))
    body = json.dumps({"dataframe_records": [{"other": "a", "x": 2}, {"other": "b", "x": 2.5}]})
    answer = invocations(body, "application/json", model, model.metadata.get_input_schema())
    assert (answer.status, json.loads(answer.response)) == (200, {"predictions": [{"y": 6.0}, {"y": 7.5}]})
