"""The audited model's logits: read from a user's file, or by running a user's ONNX or safetensors model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kfp_methods import artifacts
from kfp_methods.artifacts import Array, Format
from kfp_methods.components.tabular.bmia.architectures import build
from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.logits import checked_logits
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.training import outputs
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    import onnxruntime

    from kfp_methods.components.tabular.bmia.component import BmiaInputs
    from kfp_methods.context import Context
    from kfp_methods.contract import Dataset, Model

_ONNX_ROWS = 1_000
_ONNX_FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
_LAYER = re.compile(r"\d+\.weight")


def target_logits(inputs: BmiaInputs, context: Context, asked: Sequence[Records]) -> list[Tensor]:
    """The target's logits on each set of records, float64 [n, C]: those given, or by running the target given.

    Args:
        inputs: `target`, or `target_logits` with as many further files as there are further sets of records.
        context: gives the files, and takes warnings of what they hold.
        asked: the audit records and, perhaps, the validation records.

    Raises:
        InputError: a file cannot be used.
    """
    if inputs.target is not None:
        fields = [inputs.target.field] * len(asked)
        values = _run(inputs, inputs.target, context, [records.x for records in asked])
    else:
        files = [file for file in (inputs.target_logits, inputs.validation_logits) if file]
        fields = [file.field for file in files]
        values = [_read(context, file) for file in files]
    found = [checked_logits(context, *three) for three in zip(fields, values, asked, strict=True)]
    if len({logits.shape[1] for logits in found}) > 1:
        problem = "has another number of classes than target_logits"
        raise InputError(Problem(fields[1], None, problem, "Give logits of the same model"))
    return found


def _read(context: Context, file: Dataset) -> Floats:
    path = context.fetch(file)
    return artifacts.read_arrays(path, field=file.field, arrays=[Array("logits")])["logits"]


def _run(inputs: BmiaInputs, target: Model, context: Context, asked: Sequence[Tensor]) -> list[Floats]:
    """The target's outputs on each set of inputs [n, ...]."""
    path, field = context.fetch(target), target.field
    if _is_safetensors(path):
        model = _model_of_tensors(inputs, path, field, asked[0].shape[1:]).to(context.device)
        return [outputs(model, x)[1].cpu().numpy() for x in asked]
    session = artifacts.onnx_session(path, field=field)
    return [_run_onnx(session, Problem(field, path.name, "", ""), x.numpy()) for x in asked]


def _is_safetensors(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob("*.safetensors"))
    return path.suffix == ".safetensors" or artifacts.format_of(path) is Format.SAFETENSORS


def _run_onnx(session: onnxruntime.InferenceSession, problem: Problem, x: Floats) -> Floats:
    """The first two-dimensional output of a model with one input; `problem` says which file, for errors."""
    (entry, *others) = session.get_inputs()
    if others or entry.type not in _ONNX_FLOATS:
        words = f"has {len(others) + 1} inputs, the first of type {entry.type}"
        remedy = "Export a model with one input of floating-point numbers"
        raise InputError(replace(problem, problem=words, remedy=remedy))
    matrices = [one.name for one in session.get_outputs() if one.type in _ONNX_FLOATS and len(one.shape) == 2]
    if not matrices:
        words = "has no output of shape (n, classes)"
        remedy = "Export its logits or probabilities as one matrix (skl2onnx: options={'zipmap': False})"
        raise InputError(replace(problem, problem=words, remedy=remedy))
    x = _in_shape(x.astype(_ONNX_FLOATS[entry.type]), entry.shape[1:])
    rows = entry.shape[0] if isinstance(entry.shape[0], int) else _ONNX_ROWS
    try:
        return np.concatenate(
            [_block(session, entry, matrices[:1], x[start : start + rows]) for start in range(0, len(x), rows)]
        )
    except Exception as error:  # onnxruntime's exceptions derive from Exception alone
        words = f"does not run on records of shape {x.shape[1:]} ({_line(error)})"
        remedy = f"Give x as the model's input {entry.name} wants it: {entry.shape}"
        raise InputError(replace(problem, problem=words, remedy=remedy)) from None


def _block(session: onnxruntime.InferenceSession, entry: Any, names: list[str], x: Floats) -> Floats:
    """Outputs on a block of records, repeated up to the batch size where the model was exported for a fixed one."""
    rows = entry.shape[0] if isinstance(entry.shape[0], int) else len(x)
    return session.run(names, {entry.name: np.resize(x, (rows, *x.shape[1:]))})[0][: len(x)]


def _in_shape(x: Floats, wanted: Sequence[int | str | None]) -> Floats:
    """Adds or drops axes of length 1, such as a grey image's channel, where the model wants that; nothing else."""
    known = [length for length in wanted if isinstance(length, int)]
    if len(known) == len(wanted) and [d for d in known if d != 1] == [d for d in x.shape[1:] if d != 1]:
        return x.reshape(-1, *known)
    return x


def _model_of_tensors(inputs: BmiaInputs, path: Path, field: str, shape: Sequence[int]) -> torch.nn.Sequential:
    """A model of `target_arch` with the file's tensors, in evaluation mode."""
    tensors = {name: torch.from_numpy(values) for name, values in artifacts.read_tensors(path, field=field).items()}
    layers = {int(name.removesuffix(".weight")): len(t) for name, t in tensors.items() if _LAYER.fullmatch(name)}
    C = layers[max(layers)] if layers else 2
    try:
        model = build(inputs.target_arch, shape, C, seed=0, hidden=tuple(inputs.hidden))
    except InputError as error:
        raise InputError(replace(problem, field="target_arch") for problem in error.problems) from None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        problem = f"does not fit the architecture {inputs.target_arch} ({_line(error, 1)})"
        own = "; --hidden gives an MLP's widths" if inputs.target_arch == "mlp" else ""
        remedy = f"Give tensors named {', '.join(model.state_dict())}{own}, or the model as ONNX"
        raise InputError(Problem(field, path.name, problem, remedy)) from None
    return model.eval()


def _line(error: Exception, number: int = 0) -> str:
    """One line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[min(number, len(lines) - 1)][:160]
