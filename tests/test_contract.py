"""The contract: validation, presets, artifacts by URI, and one error for each wrong field."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from kfp_methods import catalogue
from kfp_methods.artifacts import Source, digest
from kfp_methods.context import Context
from kfp_methods.contract import Dataset, Inputs, Method, Metrics, ModelInputs, artifact, by_preset, parameter
from kfp_methods.errors import InputError, Problem

NOOP = catalogue.load("noop")


def problems_of(raw: dict[str, object]) -> dict[str, Problem]:
    with pytest.raises(InputError) as caught:
        NOOP.inputs.parse(raw)
    return {problem.field: problem for problem in caught.value.problems}


def test_every_wrong_field_is_reported_at_once_with_value_and_remedy() -> None:
    found = problems_of({"preset": "huge", "steps": 0, "weights": [], "seed": "x", "pause": math.nan, "stpes": 3})
    assert set(found) == {"preset", "steps", "weights", "seed", "pause", "stpes"}
    assert str(found["steps"]) == "steps=0: is too small. Give at least 1 and at most 100000."
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
    assert both["data_uri"].remedy == "Leave one of the two out"
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


class ListInputs(ModelInputs):
    """Lists and mappings whose entries have constraints of their own."""

    rates: list[Annotated[float, Field(gt=0, lt=1)]] = parameter([0.1], "Rates.", min_length=1, max_length=3)
    kinds_of: list[Literal["a", "b"]] = parameter(["a"], "Kinds.")
    sizes: dict[str, int] = parameter({}, "Sizes.")
    flag: bool = parameter(False, "A switch.")
    width: int = parameter(3, "A width.", ge=1, le=9)
    word: Literal["up", "down"] = parameter("up", "A direction.")
    files: list[Dataset] | None = artifact("Files.")


def list_problem(raw: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        ListInputs.parse(raw)
    (problem,) = caught.value.problems
    return str(problem)


def test_own_fields_come_before_those_of_the_classes_they_derive_from() -> None:
    names = list(ListInputs.kinds())
    assert names[:7] == ["rates", "kinds_of", "sizes", "flag", "width", "word", "files"]
    assert names[7:9] == ["register_as", "preset"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (
            {"rates": [0.1, 2, 3]},
            "rates=2: entry 2 is too large, and so is 1 more entry. Give more than 0 and less than 1.",
        ),
        (
            {"rates": "0.1"},
            "rates=0.1: is not a list. Give a list, its entries between commas (in a YAML file in brackets).",
        ),
        ({"rates": [0.1, "x"]}, "rates=x: entry 2 is not a number. Give a number, more than 0 and less than 1."),
        ({"rates": []}, "rates=[]: has too few entries. Give at least 1 and at most 3 entries."),
        ({"kinds_of": ["a", "c"]}, "kinds_of=c: entry 2 is not one of the choices. Give one of 'a' or 'b'."),
        (
            {"sizes": {"list": 1, "int": "x"}},
            "sizes=x: entry 'int' is not a whole number. Give a whole number.",
        ),
        ({"sizes": {3: 1}}, "sizes=3: the name of entry 3 is not a text. Give a text, in a YAML file in quotes."),
        ({"width": 12}, "width=12: is too large. Give at least 1 and at most 9."),
        ({"width": True}, "width=true: is not a whole number. Give a whole number, at least 1 and at most 9."),
        ({"rates": [True]}, "rates=true: entry 1 is not a number. Give a number, more than 0 and less than 1."),
        (
            {"register_as": "a/b"},
            "register_as=a/b: does not have the right form. Give a name of at most 200 characters without / and :.",
        ),
        ({"experiment": "\udcff"}, "experiment=\ufffd: holds bytes that are not UTF-8. Give text in UTF-8."),
        ({"word": "left"}, "word=left: is not one of the choices. Give one of 'up' or 'down'."),
    ],
)
def test_errors_name_the_entry_and_every_limit(raw: dict[str, object], told: str) -> None:
    assert list_problem(raw) == told


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"width": 3.0}, {"width": 3}),  # KFP's number
        ({"width": "5"}, {"width": 5}),
        ({"flag": "true"}, {"flag": True}),
        ({"flag": "yes"}, {"flag": True}),
        ({"width": "", "flag": "", "word": "", "sizes": "", "rates": ""}, {}),  # emptied in a form
        ({"width": None, "rates": None, "register_as": None}, {}),
        ({"register_as": ""}, {"register_as": ""}),
    ],
)
def test_values_as_clients_of_kubeflow_send_them(given: dict[str, object], means: dict[str, object]) -> None:
    assert ListInputs.parse(given) == ListInputs.parse(means)


@pytest.mark.parametrize("given", [{"data": "a.csv"}, {"data": {"uri": "s3://b/k", "path": "/s3/b/k"}}])
def test_an_input_given_in_both_forms_is_refused_beside_other_problems(given: dict[str, object]) -> None:
    found = problems_of({**given, "data_uri": "b.csv", "steps": 0})
    assert str(found["data_uri"]).startswith("data_uri=b.csv: data is given too, and both name the same input. Leave")
    assert set(found) == {"data_uri", "steps"}


def test_entries_constraints_are_in_the_description() -> None:
    assert ListInputs.kinds()["rates"].description == "Rates. [length ≥ 1; length ≤ 3; each > 0; each < 1]"


def test_a_file_whose_name_is_no_text_reaches_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9 100%.csv")
    (tmp_path / name).write_text("x\n1\n")
    for path in (name, f"./{name}", str(tmp_path / name)):
        inputs = NOOP.inputs.parse(json.loads(json.dumps({"data_uri": path})))
        json.dumps(inputs.parameters(), ensure_ascii=False).encode()
        context = Context(tmp_path / "scratch")
        assert NOOP.read(inputs, context)["x"].tolist() == [1.0]
        assert digest(context.fetched["data_uri"]) == digest(tmp_path / name)
    (tmp_path / name).write_text("y\n1\n")
    with pytest.raises(InputError) as caught:
        NOOP.read(inputs, Context(tmp_path / "scratch"))
    str(caught.value).encode()


def test_a_long_path_keeps_its_end_which_names_the_file() -> None:
    told = str(Problem("data_uri", f"/{'folder/' * 60}people.csv", "is empty", "Give another"))
    assert "people.csv: is empty" in told
    assert len(told) < 200


def made(load: Callable[..., Any]) -> Method[Any, Any, Any]:
    return Method("made", NOOP.inputs, NOOP.outputs, load, NOOP.run)


@pytest.mark.parametrize(
    ("problem", "value"),
    [
        (Problem("data_uri", 7, "a label is not in 0..2, first in line 3", "Number them from 0"), "t.csv"),
        (Problem("data_uri", None, "is too short", "Give more"), "t.csv"),
        (Problem("data", None, "is too short", "Give more"), "t.csv"),
        (Problem("pause", None, "is too long", "Give less"), 0.5),
        (Problem("steps", 4, "is odd", "Give less"), 4),
        (Problem("labels", None, "lack a name", "Give it"), {}),
        (Problem("elsewhere", None, "is wrong", "Mend it"), None),
    ],
)
def test_a_methods_error_names_what_the_user_gave(problem: Problem, value: object, tmp_path: Path) -> None:
    def load(inputs: Inputs, context: Context) -> None:
        raise InputError(problem)

    inputs = NOOP.inputs.parse({"data_uri": "t.csv", "pause": 0.5})
    method = made(load)
    with pytest.raises(InputError) as caught:
        method.read(inputs, Context(tmp_path))
    assert caught.value.problems == (replace(problem, value=value),)
    with pytest.raises(InputError) as caught:
        replace(method, run=lambda inputs, data, context: load(inputs, context)).compute(
            inputs, None, Context(tmp_path)
        )
    assert caught.value.problems == (replace(problem, value=value),)


def test_a_reader_s_error_names_the_uri_and_the_file_in_a_folder(tmp_path: Path) -> None:
    def load(inputs: Any, context: Context) -> None:
        folder = context.fetch(inputs.data)
        raise Source(folder / "sub" / "config.json", inputs.data.field).error("is not JSON", "Mend it")

    copy = tmp_path / "cached"
    (copy / "sub").mkdir(parents=True)
    inputs = NOOP.inputs.parse({"data": {"uri": "s3://bucket/model?key=secret", "path": str(copy)}})
    with pytest.raises(InputError) as caught:
        made(load).read(inputs, Context(tmp_path))
    assert str(caught.value) == "data=s3://bucket/model?…/sub/config.json: is not JSON. Mend it."


def test_a_missing_device_is_found_before_the_data_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    read = []
    method = made(lambda inputs, context: read.append(inputs))
    for device in ("cuda", "cpu"):
        inputs = NOOP.inputs.parse({"device": device})
        context = Context(tmp_path, device)
        if device == "cuda":
            with pytest.raises(InputError, match="device=cuda: this machine has no CUDA device"):
                method.read(inputs, context)
        else:
            monkeypatch.setitem(sys.modules, "torch", None)  # importing it would fail
            method.read(inputs, context)
    assert [inputs.device for inputs in read] == ["cpu"]


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
