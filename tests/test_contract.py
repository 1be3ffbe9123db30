"""The contract: validation, presets, artifacts by URI, and one error for each wrong field."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_methods import catalogue
from kfp_methods.contract import Dataset, Inputs, Metrics, by_preset, parameter
from kfp_methods.errors import InputError, Problem

NOOP = catalogue.load("noop")


def problems_of(raw: dict[str, object]) -> dict[str, Problem]:
    with pytest.raises(InputError) as caught:
        NOOP.inputs.parse(raw)
    return {problem.field: problem for problem in caught.value.problems}


def test_every_wrong_field_is_reported_at_once_with_value_and_remedy() -> None:
    found = problems_of({"preset": "huge", "steps": 0, "weights": [], "seed": "x", "pause": math.nan, "stpes": 3})
    assert set(found) == {"preset", "steps", "weights", "seed", "pause", "stpes"}
    assert str(found["steps"]) == "steps=0: is too small. Give at least 1."
    assert "one of 'smoke', 'sample' or 'gpu'" in found["preset"].remedy
    assert found["stpes"].remedy == "Did you mean steps?"
    assert "whole number" in found["seed"].problem


def test_each_problem_is_one_line_whatever_the_value_holds() -> None:
    with pytest.raises(InputError) as caught:
        NOOP.inputs.parse({"seed": "a\nb\x00" + "c" * 10_000, "steps": -1})
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all(len(line) < 300 for line in lines)


def test_a_union_complains_once() -> None:
    found = problems_of({"scale": "fast"})
    assert str(found["scale"]) == "scale=fast: is not of a type that this input takes. Give a number or one of 'auto'."


def test_cross_field_checks_name_their_field() -> None:
    found = problems_of({"steps": 1, "weights": [1.0] * 12})
    assert found["weights"].remedy == "Give fewer"


@pytest.mark.parametrize(("preset", "steps"), [("smoke", 1), ("sample", 2), ("gpu", 3)])
def test_the_preset_chooses_what_is_not_given(preset: str, steps: int) -> None:
    assert NOOP.inputs.parse({"preset": preset}).steps == steps
    assert NOOP.inputs.parse({"preset": preset, "steps": None}).steps == steps
    assert NOOP.inputs.parse({"preset": preset, "steps": 7}).steps == 7


def test_an_artifact_comes_by_uri_or_from_upstream_but_not_both() -> None:
    by_uri = NOOP.inputs.parse({"data_uri": " data.csv "})
    assert by_uri.data == Dataset(field="data_uri", uri="data.csv")
    assert not by_uri.uses_sample
    upstream = NOOP.inputs.parse({"data": {"uri": "s3://b/k", "path": "/s3/b/k"}, "data_uri": ""})
    assert str(upstream.data.path) == "/s3/b/k"
    both = problems_of({"data": {"uri": "s3://b/k", "path": "/s3/b/k"}, "data_uri": "data.csv"})
    assert both["data_uri"].remedy == "Give one of the two"
    assert NOOP.inputs.parse({"data_uri": ""}).uses_sample


def test_a_uri_of_the_wrong_type_is_reported_with_the_other_fields() -> None:
    assert set(problems_of({"data_uri": 5, "steps": 0})) == {"data_uri", "steps"}


def test_inputs_cannot_be_changed_after_validation() -> None:
    inputs = NOOP.inputs.parse({})
    with pytest.raises(ValueError, match="frozen"):
        inputs.seed = 1


def test_parameters_are_plain_json_that_parse_restores() -> None:
    inputs = NOOP.inputs.parse({"preset": "smoke", "data_uri": "ünï cödé.csv", "labels": {"a": "b"}, "scale": 2})
    plain = json.loads(json.dumps(inputs.parameters()))
    assert NOOP.inputs.parse(plain) == inputs


def test_metrics_refuse_what_json_cannot_say() -> None:
    class Own(Metrics):
        value: float

    with pytest.raises(ValueError, match="finite"):
        Own(value=math.inf)


def test_an_interface_that_kubeflow_cannot_carry_is_the_authors_error() -> None:
    class Wrong(Inputs):
        shape: set[int] = parameter({1}, "A set.")

    with pytest.raises(TypeError, match="'shape'"):
        Wrong.kinds()


def test_descriptions_say_what_is_accepted() -> None:
    class Own(Inputs):
        rank: int = by_preset("Rank", smoke=1, sample=2, gpu=4, ge=1, le=64)

    assert Own.kinds()["rank"].description == "Rank [≥ 1; ≤ 64; chosen by preset: smoke 1, sample 2, gpu 4]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from([kind.parameter_name for kind in NOOP.inputs.kinds().values()]) | st.text(max_size=8)


@given(st.dictionaries(field_names, json_values, max_size=6))
def test_whatever_is_given_is_accepted_or_explained(raw: dict[str, object]) -> None:
    inputs, error = None, None
    try:
        inputs = NOOP.inputs.parse(raw)
    except InputError as caught:
        error = caught
    if inputs is not None:
        assert NOOP.inputs.parse(inputs.parameters()) == inputs
    if error is not None:
        assert 1 <= len(error.problems) == len(str(error).splitlines())
