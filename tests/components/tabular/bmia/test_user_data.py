"""A user's files become an audit's data, whatever their form; what does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file, save_file

from kfp_methods.components.tabular.bmia.component import BmiaInputs
from kfp_methods.components.tabular.bmia.sample import Split
from kfp_methods.components.tabular.bmia.scores import hinge
from kfp_methods.components.tabular.bmia.user_data import UserData, load
from kfp_methods.context import Context
from kfp_methods.errors import InputError

TARGET = {
    "target_arch": "mlp",
    "hidden": [64],
    "target_logits_uri": "",
    "validation_uri": "",
    "validation_logits_uri": "",
}


def read(context: Context, parameters: dict[str, Any], **changed: Any) -> UserData:
    return load(BmiaInputs.parse({"preset": "smoke", **parameters, **changed}), context)


def table(path: Path, frame: pd.DataFrame) -> str:
    frame.to_csv(path, index=False)
    return str(path)


def to_onnx(
    path: Path, tensors: dict[str, torch.Tensor], shape: list[Any], *, softmax: bool = False, inputs: int = 1
) -> str:
    """The two-layer target as ONNX, its input of `shape`."""
    weights = [numpy_helper.from_array(t.numpy(), name) for name, t in tensors.items()]
    nodes = [
        helper.make_node("Flatten", ["x0"], ["flat"]),
        helper.make_node("Gemm", ["flat", "1.weight", "1.bias"], ["before"], transB=1),
        helper.make_node("Relu", ["before"], ["features"]),
        helper.make_node("Gemm", ["features", "3.weight", "3.bias"], ["logits"], transB=1),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    given = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i in range(inputs)]
    matrix = helper.make_tensor_value_info("probabilities" if softmax else "logits", TensorProto.FLOAT, [shape[0], 10])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [shape[0]])
    graph = helper.make_graph(nodes, "target", given, [label, matrix], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.fixture
def arrays(tmp_path: Path, parts: Split) -> dict[str, Any]:
    """The records as images in NPZ files."""
    audit, reference = tmp_path / "audit.npz", tmp_path / "reference.npz"
    np.savez(audit, x=parts.audit.x.numpy(), y=parts.audit.y.numpy(), member=parts.member)
    np.savez(reference, x=parts.reference.x.numpy(), y=parts.reference.y.numpy())
    return {"audit_uri": str(audit), "reference_uri": str(reference)}


def test_tables_and_logits_are_read(context: Context, files: dict[str, Any], parts: Split) -> None:
    data = read(context, files)
    assert (data.n_classes, len(data.audit), len(data.validation or ())) == (10, 719, 359)
    assert data.member is not None
    assert data.member.tolist() == parts.member.tolist()
    assert data.target_logits.dtype == torch.float64
    assert torch.equal(data.audit.y, parts.audit.y)
    torch.testing.assert_close(data.audit.x * data.scale + data.center, parts.audit.x.flatten(1), atol=1e-5, rtol=0)


def test_the_references_inputs_are_standardised_and_constant_ones_only_centred(
    context: Context, files: dict[str, Any]
) -> None:
    data = read(context, files)
    sd = data.reference.x.double().std(0, correction=0)
    torch.testing.assert_close(data.reference.x.double().mean(0), torch.zeros_like(sd), atol=1e-5, rtol=0)
    assert ((sd - 1).abs() < 1e-4).logical_or(sd == 0).all()
    assert (sd == 0).any(), "digits have pixels that are always dark"
    assert torch.equal(data.scale[sd == 0], torch.ones(int((sd == 0).sum())))
    raw = read(context, files, standardise=False)
    assert raw.scale == 1
    assert raw.center == 0


def test_inputs_of_any_finite_size_are_standardised(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    audit, reference = pd.read_csv(files["audit_uri"]), pd.read_parquet(files["reference_uri"])
    pixels = [name for name in audit if name.startswith("pixel")]
    for frame in (audit, reference):
        frame[pixels] *= 1e30
    large = {"audit_uri": table(tmp_path / "a.csv", audit), "reference_uri": table(tmp_path / "r.csv", reference)}
    small = files | {"validation_uri": "", "validation_logits_uri": ""}
    torch.testing.assert_close(read(context, small | large).reference.x, read(Context(tmp_path), small).reference.x)
    audit[pixels] *= 1e10
    with pytest.raises(InputError, match=r"audit_uri: some inputs are beyond .*float32"):
        read(Context(tmp_path), small | large, audit_uri=table(tmp_path / "b.csv", audit))


def test_columns_are_matched_by_name(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    shuffled = pd.read_parquet(files["reference_uri"]).sample(axis=1, frac=1, random_state=0)
    shuffled_uri = table(tmp_path / "shuffled.csv", shuffled)
    assert torch.equal(
        read(context, files).reference.x, read(Context(tmp_path), files, reference_uri=shuffled_uri).reference.x
    )
    other = table(tmp_path / "other.csv", shuffled.rename(columns={"pixel_7": "pixel_x"}))
    with pytest.raises(InputError, match=r"reference_uri: .*lacks \['pixel_7'\] and adds \['pixel_x'\]"):
        read(Context(tmp_path), files, reference_uri=other)


def test_references_may_not_be_members(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    marked = pd.read_parquet(files["reference_uri"]).assign(member=[1, 1, *[0] * 717])
    with pytest.raises(InputError, match="reference_uri: 2 of its 719 records are marked as members"):
        read(context, files, reference_uri=table(tmp_path / "marked.csv", marked))
    assert len(
        read(Context(tmp_path), files, reference_uri=table(tmp_path / "no.csv", marked.assign(member=0))).reference
    )


def test_validation_records_may_not_be_reference_records(
    context: Context, files: dict[str, Any], tmp_path: Path
) -> None:
    validation = pd.read_parquet(files["reference_uri"]).head(359)
    with pytest.raises(InputError, match="validation_uri: 359 of its 359 records are also in the reference set"):
        read(context, files, validation_uri=table(tmp_path / "v.csv", validation))


@pytest.mark.parametrize(("label", "words"), [("cat", "label"), (-1, "at least 0"), (2.5, "whole"), (2**70, "label")])
def test_labels_are_class_numbers(
    context: Context, files: dict[str, Any], tmp_path: Path, label: Any, words: str
) -> None:
    audit = pd.read_csv(files["audit_uri"]).astype({"label": object})
    audit.loc[3, "label"] = label
    with pytest.raises(InputError, match=f"audit_uri.*label.*{words}" if words != "label" else "audit_uri.*label"):
        read(context, files, audit_uri=table(tmp_path / "labels.csv", audit))


@pytest.mark.parametrize(("x", "y"), [((5,), 5), ((5, 2), 4), ((0, 2), 0), ((5, 0), 5)])
def test_arrays_that_do_not_fit_together_are_refused(
    context: Context, files: dict[str, Any], tmp_path: Path, x: tuple[int, ...], y: int
) -> None:
    np.savez(tmp_path / "bad.npz", x=np.zeros(x), y=np.zeros(y, int))
    with pytest.raises(InputError, match=r"audit_uri=bad.npz: the arrays do not fit together"):
        read(context, files, audit_uri=str(tmp_path / "bad.npz"))


def test_probabilities_are_taken_as_logits_with_a_warning(
    context: Context, files: dict[str, Any], tmp_path: Path
) -> None:
    logits = read(context, files)
    for name in ("logits", "validation_logits"):
        values = np.load(Path(files["audit_uri"]).with_name(f"{name}.npz"))["logits"]
        shifted = np.exp(values - values.max(1, keepdims=True))
        np.savez(tmp_path / f"{name}.npz", logits=shifted / shifted.sum(1, keepdims=True))
    given = {
        "target_logits_uri": str(tmp_path / "logits.npz"),
        "validation_logits_uri": str(tmp_path / "validation_logits.npz"),
    }
    again = Context(tmp_path)
    data = read(again, files, **given)
    assert [warning.split(":")[0] for warning in again.warnings] == ["target_logits_uri", "validation_logits_uri"]
    expected = hinge(logits.target_logits, logits.audit.y)
    torch.testing.assert_close(hinge(data.target_logits, data.audit.y), expected, atol=1e-3, rtol=0)


def test_rounded_probabilities_are_known_as_such(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    logits = np.load(files["target_logits_uri"])["logits"]
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    np.savez(tmp_path / "p.npz", logits=np.round(shifted / shifted.sum(1, keepdims=True), 3))
    data = read(context, files, target_logits_uri=str(tmp_path / "p.npz"))
    assert context.warnings[0].startswith("target_logits_uri: the rows are probabilities, not logits")
    assert data.target_logits.isfinite().all()


def test_outputs_that_are_mostly_tied_are_warned_of(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    logits = np.load(files["target_logits_uri"])["logits"]
    read(context, files)
    assert context.warnings == []
    np.savez(tmp_path / "saturated.npz", logits=np.sign(logits))
    again = Context(tmp_path)
    read(again, files, target_logits_uri=str(tmp_path / "saturated.npz"))
    assert "of the records have one and the same score" in again.warnings[0]


@pytest.mark.parametrize("scale", [1, 10.0, -3])
def test_decisions_are_no_logits(context: Context, files: dict[str, Any], tmp_path: Path, scale: float) -> None:
    decided = np.load(files["target_logits_uri"])["logits"].argmax(1)
    np.savez(tmp_path / "hard.npz", logits=scale * np.eye(10)[decided])
    with pytest.raises(InputError, match=r"target_logits_uri.*the rows hold decisions, not logits"):
        read(context, files, target_logits_uri=str(tmp_path / "hard.npz"))


def test_a_target_that_says_the_same_of_every_record_is_refused_whatever_its_form(
    context: Context, arrays: dict[str, Any], files: dict[str, Any], safetensors: str, tmp_path: Path
) -> None:
    tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(safetensors).items()}
    save_file(tensors, tmp_path / "zero.safetensors")
    for uri in (str(tmp_path / "zero.safetensors"), to_onnx(tmp_path / "zero.onnx", tensors, ["n", 8, 8])):
        with pytest.raises(InputError, match=r"target_uri.*every record has the same output"):
            read(Context(tmp_path / "cache"), arrays | TARGET, target_uri=uri)
    np.savez(tmp_path / "same.npz", logits=np.tile(np.arange(10.0), (359, 1)))
    with pytest.raises(InputError, match=r"validation_logits_uri.*every record has the same output"):
        read(context, files, validation_logits_uri=str(tmp_path / "same.npz"))


def test_classes_are_blamed_on_the_file_that_differs(files: dict[str, Any], tmp_path: Path) -> None:
    """Logits against both files' labels; a file's labels against the logits and the other file's."""
    rng, alone = np.random.default_rng(0), {"validation_uri": "", "validation_logits_uri": ""}
    for C in (9, 12):
        np.savez(tmp_path / f"{C}.npz", logits=rng.normal(size=(719, C)))
        words = rf"target_logits_uri: its output has {C} classes, but the labels run to 9 \(audit\) and 9"
        with pytest.raises(InputError, match=words):
            read(Context(tmp_path), files, **alone, target_logits_uri=str(tmp_path / f"{C}.npz"))
    reference = pd.read_parquet(files["reference_uri"])
    more = table(tmp_path / "more.csv", reference.assign(label=reference["label"] + 3))
    with pytest.raises(InputError, match=r"reference_uri: .* labels outside 0\.\.9"):
        read(Context(tmp_path), files, reference_uri=more)
    fewer = table(tmp_path / "fewer.csv", reference[reference["label"] < 9])
    with pytest.raises(InputError, match="reference_uri: class 9 has 0 records"):
        read(Context(tmp_path), files, reference_uri=fewer)


def test_features_may_not_be_named_as_the_targets_outputs(
    context: Context, files: dict[str, Any], tmp_path: Path
) -> None:
    renamed = {"pixel_3": "logit3"}
    audit = table(tmp_path / "a.csv", pd.read_csv(files["audit_uri"]).rename(columns=renamed))
    pool = table(tmp_path / "r.csv", pd.read_parquet(files["reference_uri"]).rename(columns=renamed))
    with pytest.raises(InputError, match=r"audit_uri: a feature column is named 'logit3'"):
        read(context, files, audit_uri=audit, reference_uri=pool, validation_uri="", validation_logits_uri="")


def test_a_single_column_of_logits_is_explained(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", logits=np.zeros((719, 1)))
    with pytest.raises(InputError, match="a single logit z becomes 0 and z"):
        read(context, files, target_logits_uri=str(tmp_path / "one.npz"))


def test_validation_logits_are_of_the_same_classes(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "nine.npz", logits=np.random.default_rng(0).normal(size=(359, 9)))
    with pytest.raises(InputError, match="validation_logits_uri: has another number of classes"):
        read(context, files, validation_logits_uri=str(tmp_path / "nine.npz"))


def test_a_target_runs_whatever_its_form(
    context: Context, arrays: dict[str, Any], files: dict[str, Any], safetensors: str, tmp_path: Path
) -> None:
    expected = torch.from_numpy(np.load(Path(safetensors).with_name("logits.npz"))["logits"]).double()
    tensors = load_file(safetensors)
    (tmp_path / "folder").mkdir()
    save_file(tensors, tmp_path / "folder" / "model.safetensors")
    targets = {
        "tensors": safetensors,
        "folder of tensors": str(tmp_path / "folder"),
        "onnx": to_onnx(tmp_path / "any.onnx", tensors, ["n", 8, 8]),
        "with a channel axis": to_onnx(tmp_path / "channel.onnx", tensors, ["n", 1, 8, 8]),
        "of a fixed batch": to_onnx(tmp_path / "batch.onnx", tensors, [100, 8, 8]),
    }
    for name, uri in targets.items():
        data = read(Context(tmp_path / "cache"), arrays | TARGET, target_uri=uri)
        torch.testing.assert_close(data.target_logits, expected, atol=1e-4, rtol=1e-4, msg=name)
        assert data.validation is not None
        assert (len(data.validation), len(data.reference)) == (144, 575)
    probabilities = to_onnx(tmp_path / "softmax.onnx", tensors, ["n", 8, 8], softmax=True)
    data = read(context, arrays | TARGET, target_uri=probabilities)
    assert context.warnings
    margin = hinge(expected, data.audit.y)
    torch.testing.assert_close(hinge(data.target_logits, data.audit.y), margin, atol=1e-3, rtol=1e-3)


def test_a_repeated_pool_record_is_not_on_both_sides_of_the_split(
    context: Context, arrays: dict[str, Any], safetensors: str, parts: Split, tmp_path: Path
) -> None:
    twice = {"x": parts.reference.x.repeat(2, 1, 1).numpy(), "y": parts.reference.y.repeat(2).numpy()}
    np.savez(tmp_path / "twice.npz", **twice)
    data = read(context, arrays | TARGET, target_uri=safetensors, reference_uri=str(tmp_path / "twice.npz"))
    assert data.validation is not None
    rows = [{row.numpy().tobytes() for row in part.x} for part in (data.validation, data.reference)]
    assert not rows[0] & rows[1]


def test_targets_that_cannot_be_run_are_explained(
    context: Context, arrays: dict[str, Any], safetensors: str, tmp_path: Path
) -> None:
    tensors = load_file(safetensors)
    for_larger = tensors | {"1.weight": torch.zeros(64, 81)}
    not_finite = {name: torch.full_like(tensor, torch.inf) for name, tensor in tensors.items()}
    wrong = {
        to_onnx(tmp_path / "two.onnx", tensors, ["n", 8, 8], inputs=2): "has 2 inputs",
        to_onnx(
            tmp_path / "wide.onnx", for_larger, ["n", 9, 9]
        ): r"wide.onnx: does not run on records of shape \(8, 8\)",
        to_onnx(tmp_path / "inf.onnx", not_finite, ["n", 8, 8]): "output is not finite, first on record 1 of",
    }
    model = onnx.load(tmp_path / "two.onnx")
    del model.graph.output[1], model.graph.input[1]
    onnx.save(model, tmp_path / "label.onnx")
    wrong[str(tmp_path / "label.onnx")] = "no output of shape"
    for uri, words in wrong.items():
        with pytest.raises(InputError, match=words):
            read(Context(tmp_path / "cache"), arrays | TARGET, target_uri=uri)
    with pytest.raises(InputError, match="does not fit the architecture mlp"):
        read(context, arrays | TARGET, target_uri=safetensors, hidden=[32])


def test_a_single_record_can_be_audited(context: Context, files: dict[str, Any], tmp_path: Path) -> None:
    one = table(tmp_path / "one.csv", pd.read_csv(files["audit_uri"]).head(1))
    np.savez(tmp_path / "one.npz", logits=np.arange(10.0)[None])
    data = read(context, files, audit_uri=one, target_logits_uri=str(tmp_path / "one.npz"))
    assert len(data.audit) == 1
    assert data.target_logits.tolist() == [list(range(10))]
