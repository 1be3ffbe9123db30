"""A user's files become the records, target logits and reference pool of an audit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from kfp_methods.components.tabular.bmia.architectures import build
from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.records import (
    Records,
    check_disjoint,
    check_labels,
    check_population,
)
from kfp_methods.components.tabular.bmia.scores import are_probabilities, logits_of_probabilities
from kfp_methods.components.tabular.bmia.training import derived_seed, outputs
from torch import Tensor

from kfp_methods import artifacts
from kfp_methods.artifacts import Array, Column, Format
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.component import BmiaInputs

    from kfp_methods.context import Context
    from kfp_methods.contract import Dataset, Model

VALIDATION_SHARE = 0.2
_TABLES = (Format.TEXT, Format.JSONL, Format.PARQUET, Format.GZIP)
_ONNX_ROWS = 1_000
_LAYER_BIAS = re.compile(r"\d+\.bias")


@dataclass(frozen=True)
class UserData:
    """What an audit of a user's own target starts from; inputs are scaled for the references.

    Attributes:
        audit: records to audit.
        member: true membership [n]; None when unknown.
        target_logits: the target's logits on `audit` [n, C].
        reference: pool that references are trained on.
        validation: known non-members; None when there are none with logits.
        validation_logits: the target's logits on them [v, C].
        n_classes: number of classes C.
        center: what was subtracted from every record's inputs.
        scale: what they were divided by.
    """

    audit: Records
    member: Flags | None
    target_logits: Tensor
    reference: Records
    validation: Records | None
    validation_logits: Tensor | None
    n_classes: int
    center: Tensor
    scale: Tensor


def load(inputs: BmiaInputs, context: Context) -> UserData:
    """Reads and checks every file that was given.

    Raises:
        InputError: a file cannot be used, or the files do not fit together.
    """
    assert inputs.audit is not None and inputs.reference is not None  # noqa: S101 (the contract requires both)
    audit, member = _read_records(context.fetch(inputs.audit), inputs.audit.field)
    reference, _ = _read_records(context.fetch(inputs.reference), inputs.reference.field)
    _same_shape(inputs.reference.field, reference, audit)
    given, reference = _validation(inputs, context, reference, audit)
    asked = [audit] if given is None else [audit, given]
    logits = _target_logits(inputs, context, asked)
    C = logits[0].shape[1]
    check_labels(inputs.audit.field, audit, C)
    check_labels(inputs.reference.field, reference, C)
    check_population(inputs.reference.field, reference, C)
    check_disjoint(inputs.reference.field, reference, audit)
    if given is not None:
        field = inputs.validation.field if inputs.validation else inputs.reference.field
        check_labels(field, given, C)
        check_disjoint(field, given, audit)
    center, scale = _scaling(reference) if inputs.standardise else (torch.zeros(()), torch.ones(()))
    scaled = [Records((part.x - center) / scale, part.y) for part in (*asked, reference)]
    return UserData(
        audit=scaled[0],
        member=member,
        target_logits=logits[0],
        reference=scaled[-1],
        validation=scaled[1] if given is not None else None,
        validation_logits=logits[1] if given is not None else None,
        n_classes=C,
        center=center,
        scale=scale,
    )


def _read_records(path: Path, field: str) -> tuple[Records, Flags | None]:
    """Records with membership where the file has it: NPZ with x, y, member, or a table with label, member, features."""
    found = None if path.is_dir() else artifacts.format_of(path)
    if found in _TABLES:
        return _read_table(path, field)
    arrays = [
        Array("x"),
        Array("y", ndim=1, kind="int"),
        Array("member", ndim=1, kind="bool", required=False),
    ]
    values = artifacts.read_arrays(path, field=field, arrays=arrays)
    lengths = {
        name: len(values[name]) if values[name].ndim else 0 for name in values if name in ("x", "y", "member")
    }
    if len(set(lengths.values())) > 1 or values["x"].ndim < 2 or not lengths["x"]:
        shapes = ", ".join(f"{name} {values[name].shape}" for name in lengths)
        remedy = "Give x of shape (n, features…) with n labels y"
        raise InputError(Problem(field, path.name, f"the arrays do not fit together ({shapes})", remedy))
    member = values["member"].astype(bool) if "member" in values else None
    return Records.from_arrays(values["x"], values["y"]), member


def _read_table(path: Path, field: str) -> tuple[Records, Flags | None]:
    columns = [Column("label", "int", ge=0), Column("member", "bool", required=False)]
    frame = artifacts.read_table(path, field=field, columns=columns, extra=Column("", "float"))
    features = frame.drop(columns=["label", "member"], errors="ignore")
    if features.shape[1] == 0:
        problem = "has no feature columns beside label and member"
        raise InputError(
            Problem(field, path.name, problem, "Add the numeric columns that the classifier sees")
        )
    member = frame["member"].to_numpy(bool) if "member" in frame else None
    return Records.from_arrays(features.to_numpy(np.float32), frame["label"].to_numpy(np.int64)), member


def _validation(
    inputs: BmiaInputs, context: Context, reference: Records, audit: Records
) -> tuple[Records | None, Records]:
    """Known non-members and what stays of the reference pool: the user's, or a share of the pool for a runnable target."""
    if inputs.validation is not None:
        given, _ = _read_records(context.fetch(inputs.validation), inputs.validation.field)
        _same_shape(inputs.validation.field, given, audit)
        return given, reference
    if inputs.target is None:
        return None, reference
    rows = np.random.default_rng(derived_seed(inputs.seed, 2)).permutation(len(reference))
    cut = round(VALIDATION_SHARE * len(rows))
    return reference.take(rows[:cut]), reference.take(rows[cut:])


def _target_logits(inputs: BmiaInputs, context: Context, asked: Sequence[Records]) -> list[Tensor]:
    """The target's logits on each set of records, from the user's file or by running the user's model."""
    if inputs.target is not None:
        path, field = context.fetch(inputs.target), inputs.target.field
        values = [_run_target(inputs, path, field, records.x.numpy()) for records in asked]
    else:
        values = [
            _read_logits(context, given)
            for given in (inputs.target_logits, inputs.validation_logits)
            if given
        ]
    fields = [f for f in (inputs.target_logits, inputs.validation_logits) if f] or [inputs.target] * len(
        asked
    )
    checked = [_checked_logits(context, v, r, f) for v, r, f in zip(values, asked, fields, strict=True)]
    if len({logits.shape[1] for logits in checked}) > 1:
        problem = "has another number of classes than target_logits"
        raise InputError(Problem("validation_logits_uri", None, problem, "Give logits of the same model"))
    return checked


def _checked_logits(
    context: Context, values: Floats, records: Records, source: Dataset | Model | None
) -> Tensor:
    field = source.field if source else "target"
    if values.ndim != 2 or values.shape[1] < 2 or len(values) != len(records):
        problem = f"logits have the shape {values.shape}, for {len(records)} records"
        raise InputError(
            Problem(
                field, None, problem, f"Give {len(records)} rows with one column for each class (at least 2)"
            )
        )
    if are_probabilities(values):
        context.warn(f"{field}: the rows are probabilities, not logits; their logarithms are used")
        values = logits_of_probabilities(values)
    return torch.from_numpy(np.ascontiguousarray(values, np.float64))


def _read_logits(context: Context, source: Dataset) -> Floats:
    arrays = artifacts.read_arrays(
        context.fetch(source), field=source.field, arrays=[Array("logits", ndim=2)]
    )
    return arrays["logits"]


def _run_target(inputs: BmiaInputs, path: Path, field: str, x: Floats) -> Floats:
    """The target's outputs on records [n, ...]: an ONNX model, or safetensors of a known architecture."""
    if path.suffix == ".safetensors" or (path.is_file() and artifacts.format_of(path) is Format.SAFETENSORS):
        return _run_safetensors(inputs, path, field, x)
    session = artifacts.onnx_session(path, field=field)
    (entry, *others) = session.get_inputs()
    if others:
        raise InputError(
            Problem(field, path.name, f"has {len(others) + 1} inputs", "Export a model with one input")
        )
    blocks = np.array_split(x.astype(np.float32), max(1, -(-len(x) // _ONNX_ROWS)))
    try:
        return np.concatenate([session.run(None, {entry.name: block})[0] for block in blocks]).astype(
            np.float64
        )
    except Exception as error:
        problem = f"does not run on the audit records, whose shape is {x.shape[1:]} ({_first_line(error)})"
        raise InputError(
            Problem(field, path.name, problem, f"Export it for inputs named {entry.name}{entry.shape}")
        ) from None


def _run_safetensors(inputs: BmiaInputs, path: Path, field: str, x: Floats) -> Floats:
    tensors = {
        name: torch.from_numpy(array) for name, array in artifacts.read_tensors(path, field=field).items()
    }
    last = {
        int(name.removesuffix(".bias")): len(tensor)
        for name, tensor in tensors.items()
        if _LAYER_BIAS.fullmatch(name)
    }
    C = last[max(last)] if last else 2
    try:
        model = build(inputs.target_arch, x.shape[1:], C, seed=0, hidden=tuple(inputs.hidden))
    except InputError as error:
        raise InputError(replace(problem, field="target_arch") for problem in error.problems) from None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        problem = f"does not fit the architecture {inputs.target_arch} ({_first_line(error, 1)})"
        wanted = ", ".join(model.state_dict())
        raise InputError(
            Problem(field, path.name, problem, f"Give tensors named {wanted}, or the model as ONNX")
        ) from None
    return outputs(model.eval(), torch.from_numpy(x.astype(np.float32)))[1].double().numpy()


def _same_shape(field: str, records: Records, audit: Records) -> None:
    if records.x.shape[1:] != audit.x.shape[1:]:
        problem = (
            f"its records have the shape {tuple(records.x.shape[1:])}, the audit's {tuple(audit.x.shape[1:])}"
        )
        raise InputError(Problem(field, None, problem, "Give the same features in the same order"))


def _scaling(reference: Records) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each input over the pool; constant inputs are left as they are."""
    scale = reference.x.std(0, correction=0)
    return reference.x.mean(0), torch.where(scale > 0, scale, torch.ones_like(scale))


def _first_line(error: Exception, skip: int = 0) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[skip:] or lines or [type(error).__name__])[0][:160]
