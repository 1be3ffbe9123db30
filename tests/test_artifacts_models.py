"""Models are weights; what would run on loading is refused, whatever it is called."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import joblib  # type: ignore[import-untyped]
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from kfp_methods.artifacts import huggingface_folder, onnx_session, refuse_program
from kfp_methods.errors import InputError


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def _script(path: Path) -> None:
    torch.jit.script(Net()).save(path)


def _export(path: Path) -> None:
    torch.export.save(torch.export.export(Net(), (torch.ones(1, 2),)), path)


PROGRAMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickle": (lambda path: path.write_bytes(pickle.dumps({"a": 1})), "a pickle"),
    "pickle_protocol_0": (lambda path: path.write_bytes(pickle.dumps({"a": [1, 2]}, 0)), "a pickle"),
    "pickle_protocol_1": (lambda path: path.write_bytes(pickle.dumps({"a": [1, 2]}, 1)), "a pickle"),
    "gzipped_pickle": (lambda path: path.write_bytes(gzip.compress(pickle.dumps([1]))), "a pickle"),
    "joblib": (lambda path: joblib.dump({"w": np.ones(9)}, path), "a pickle"),
    "joblib_zlib": (lambda path: joblib.dump({"w": np.ones(9)}, path, compress=("zlib", 3)), "a pickle"),
    "joblib_gzip": (lambda path: joblib.dump({"w": np.ones(9)}, path, compress=("gzip", 3)), "a pickle"),
    "joblib_bz2": (lambda path: joblib.dump({"w": np.ones(9)}, path, compress=("bz2", 3)), "a pickle"),
    "joblib_xz": (lambda path: joblib.dump({"w": np.ones(9)}, path, compress=("xz", 3)), "a pickle"),
    "joblib_lzma": (lambda path: joblib.dump({"w": np.ones(9)}, path, compress=("lzma", 3)), "a pickle"),
    "checkpoint": (lambda path: torch.save(Net().state_dict(), path), "a PyTorch checkpoint"),
    "old_checkpoint": (
        lambda path: torch.save(Net().state_dict(), path, _use_new_zipfile_serialization=False),
        "a pickle",
    ),
    "torchscript": (_script, "a TorchScript archive"),
    "torch_export": (_export, "a torch.export (.pt2) archive"),
}


@pytest.mark.parametrize("name", ["model.safetensors", "data"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_program_is_recognised_by_its_content(program: str, name: str, tmp_path: Path) -> None:
    write, what = PROGRAMS[program]
    write(tmp_path / name)
    for path in (tmp_path / name, tmp_path):
        with pytest.raises(InputError) as caught:
            refuse_program(path, field="model")
        message = str(caught.value)
        assert f"is {what}" in message
        assert "safe_serialization=True" in message
        assert message.startswith("model=")


@pytest.mark.parametrize(
    "content",
    [
        b"0.5,1.0\n2.5,1\n",
        b"x,y\n1,2\n",
        b"(a)\n(b)\n",
        b"I1\n",
        b"NaN\n",
        b"x^2\n1\n",
        b'{"a": 1}\n',
        b"city\nUlm\n",
    ],
)
def test_data_is_not_taken_for_a_program(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(content)
    refuse_program(path, field="model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"], "n_layer": 1}))
    (path / "tokenizer.json").write_text("{}")
    save_file({"w": np.ones(2)}, path / "model.safetensors")
    return path


def test_sound_folder_passes(folder: Path) -> None:
    architectures = ("LlamaForCausalLM", "GPT2LMHeadModel")
    assert huggingface_folder(folder, field="model", architectures=architectures, tokenizer=True) == folder


def _edit_config(**entries: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(entries))


def _pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(Net().state_dict(), folder / "pytorch_model.bin")


def _index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../../etc/passwd"}}))


def _nested(folder: Path) -> None:
    (folder / "config.json").rename(folder / "x.json")
    (folder / "checkpoint").mkdir()
    (folder / "x.json").rename(folder / "checkpoint" / "config.json")


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lambda f: (f / "config.json").unlink(), ["holds no config.json", "save_pretrained"]),
        (_nested, ["holds no config.json", "Give its folder checkpoint"]),
        (lambda f: (f / "config.json").write_text("{"), ["is not JSON"]),
        (lambda f: (f / "config.json").write_text("[" * 100_000), ["is not JSON"]),
        (lambda f: (f / "config.json").write_text("[]"), ["is not a JSON object"]),
        (_edit_config(auto_map={"AutoModel": "evil.Model"}), ["code of the model's own", "'auto_map'"]),
        (_edit_config(text_config={"auto_map": {"a": "b"}}), ["code of the model's own"]),
        (_edit_config(_attn_implementation="someone/kernel"), ["a kernel from a hub"]),
        (
            lambda f: (f / "tokenizer_config.json").write_text('{"auto\\u005fmap": {"AutoTokenizer": ["x", null]}}'),
            ["tokenizer_config.json", "code of the model's own"],
        ),
        (
            _edit_config(architectures=["GPT2LMHead"]),
            ["architecture is 'GPT2LMHead'", "perhaps GPT2LMHeadModel"],
        ),
        (_edit_config(), ["architecture is none", "Give one of GPT2LMHeadModel"]),
        (_pickled_weights, ["weights are pickled ('pytorch_model.bin')", "safe_serialization=True"]),
        (lambda f: (f / "model.safetensors").unlink(), ["holds no *.safetensors weights"]),
        (lambda f: (f / "model.safetensors").write_bytes(b"junk" * 9), ["'model.safetensors' is damaged"]),
        (_index, ["names '../../etc/passwd', which the folder does not hold"]),
        (lambda f: (f / "tokenizer.json").unlink(), ["holds no tokenizer", "tokenizer.save_pretrained"]),
        (lambda f: (f / "more.safetensors").symlink_to("/etc/passwd"), ["leads outside it", "cp -rL"]),
    ],
)
def test_folder_error_says_what_is_wrong(damage: Callable[[Path], object], parts: list[str], folder: Path) -> None:
    damage(folder)
    with pytest.raises(InputError) as caught:
        huggingface_folder(folder, field="model", architectures=("GPT2LMHeadModel",), tokenizer=True)
    for part in parts:
        assert part in str(caught.value)


def test_file_in_place_of_a_folder_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="is a file where a model folder is expected"):
        huggingface_folder(folder / "config.json", field="model")


def _linear(weight: onnx.TensorProto) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "linear", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _weight(location: str | None = None) -> onnx.TensorProto:
    weight = numpy_helper.from_array(np.array([[2.0], [3.0]], np.float32), "w")
    if location is not None:
        onnx.external_data_helper.set_external_data(weight, location)
        weight.ClearField("raw_data")
    return weight


def test_onnx_model_computes(tmp_path: Path) -> None:
    onnx.save(_linear(_weight()), tmp_path / "m.onnx")
    for path in (tmp_path / "m.onnx", tmp_path):
        session = onnx_session(path, field="model")
        (y,) = session.run(None, {"x": np.array([[1, 1], [2, 0]], np.float32)})
        np.testing.assert_array_equal(y, [[5], [4]])


def test_onnx_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.array([2, 3], np.float32).tobytes())
    (tmp_path / "m.onnx").write_bytes(_linear(_weight("w.bin")).SerializeToString())
    session = onnx_session(tmp_path / "m.onnx", field="model")
    (y,) = session.run(None, {"x": np.ones((1, 2), np.float32)})
    assert y.tolist() == [[5]]
    with pytest.raises(InputError, match="with its weights is"):
        onnx_session(tmp_path / "m.onnx", field="model", max_bytes=(tmp_path / "m.onnx").stat().st_size)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "link.bin"])
def test_onnx_weights_outside_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "m.onnx").write_bytes(_linear(_weight(location)).SerializeToString())
    with pytest.raises(InputError, match="weights lie outside its folder"):
        onnx_session(folder / "m.onnx", field="model")


def test_onnx_weights_in_a_branch_are_found(tmp_path: Path) -> None:
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["b"], value=_weight("../secret.bin"))],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 1])],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1])],
    )
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(InputError, match="weights lie outside its folder"):
        onnx_session(tmp_path / "m.onnx", field="model")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"not a model at all", "is no ONNX model"),
        (pickle.dumps([1]), "is a program"),
        (_linear(_weight("gone.bin")).SerializeToString(), "its weights 'gone.bin' are missing"),
        (
            helper.make_model(
                helper.make_graph([helper.make_node("Nonsense", [], ["y"], domain="no.such")], "g", [], [])
            ).SerializeToString(),
            "onnxruntime cannot load it",
        ),
    ],
)
def test_onnx_error_says_what_is_wrong(content: bytes, part: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(InputError, match=part):
        onnx_session(path, field="model")


def test_onnx_provider_that_is_not_there_is_named(tmp_path: Path) -> None:
    onnx.save(_linear(_weight()), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"lacks TensorrtExecutionProvider.*CPUExecutionProvider"):
        onnx_session(tmp_path / "m.onnx", field="model", providers=["TensorrtExecutionProvider"])
