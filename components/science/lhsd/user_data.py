"""A user's files become training points, points to score and, perhaps, a score model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfp_methods import artifacts
from kfp_methods.artifacts import Array, Column, Format
from kfp_methods.components.science import score_files
from kfp_methods.components.science.lhsd import running
from kfp_methods.components.science.lhsd.assessment import Floats, Question
from kfp_methods.components.science.score_models import ScoreModel
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.science.lhsd.component import LhsdInputs
    from kfp_methods.context import Context
    from kfp_methods.contract import Artifact

MIN_TRAINING = 50
_TABLES = (Format.TEXT, Format.JSONL, Format.PARQUET, Format.GZIP)
_LARGEST = 1e30  # squares of larger numbers overflow float32


@dataclass(frozen=True)
class UserData:
    """What a run on a user's files starts from.

    Attributes:
        question: the points to score.
        training: points that a score model is made of [N, D]; None when a model is given.
        model: the user's; None when one is to be made.
        columns: names of a table's columns; () for arrays.
    """

    question: Question
    training: Tensor | None
    model: ScoreModel | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class _File:
    """Points x [N, D] of one file, the shape of each, and what the file knows of them."""

    field: str
    x: Tensor
    shape: tuple[int, ...]
    columns: tuple[str, ...]
    lid_true: Floats | None
    memorised: NDArray[np.bool_] | None


def load(inputs: LhsdInputs, context: Context) -> UserData:
    """Reads and checks every file that was given, before anything is trained.

    Raises:
        InputError: a file cannot be used, or the files do not fit together.
    """
    data = _read(context, inputs.data)
    points = _aligned(_read(context, inputs.points), data)
    model = _model(inputs, context)
    if model is None:
        assert data is not None  # noqa: S101 (the contract requires it)
        check_training(data.field, data.x)
    asked = points or data
    assert asked is not None  # noqa: S101 (the contract requires one of the two)
    _check_features(inputs, asked, data if points else None, model)
    rows = np.arange(len(asked.x)) if points else _some_rows(len(asked.x), inputs)
    picked = torch.from_numpy(rows)
    if model is None:
        running.architecture_of(inputs, asked.shape, context.device)
    else:
        running.check_sigma(model, inputs.sigma if isinstance(inputs.sigma, float) else None)
    question = Question(
        "points",
        asked.x[picked],
        getattr(model, "shape", asked.shape),
        rows,
        None if data is None else data.x,
        None if asked.lid_true is None else asked.lid_true[rows],
        None if asked.memorised is None else asked.memorised[rows],
    )
    return UserData(question, data.x if data is not None and model is None else None, model, asked.columns)


def check_training(field: str, x: Tensor) -> None:
    """Raises InputError unless x [N, D] are enough different points to learn a density from."""
    n, remedy = len(x), f"Give at least {MIN_TRAINING} different points"
    if n < MIN_TRAINING:
        raise InputError(Problem(field, None, f"{n} points are too few to train on", remedy))
    distinct = len(torch.unique(x, dim=0))
    if distinct == 1:
        raise InputError(Problem(field, None, "all points are equal (zero variance)", remedy))
    if distinct < MIN_TRAINING:
        problem = f"its {n} points are copies of {distinct} different ones"
        raise InputError(Problem(field, None, problem, remedy))


def _read(context: Context, given: Artifact | None) -> _File | None:
    if given is None:
        return None
    path = context.fetch(given)
    if not path.is_dir() and artifacts.format_of(path) in _TABLES:
        return _read_table(path, given.field)
    arrays = [
        Array("x"),
        Array("lid_true", ndim=1, ge=0, required=False),
        Array("is_memorised", ndim=1, kind="bool", required=False),
    ]
    values = artifacts.read_arrays(path, field=given.field, arrays=arrays)
    x = values["x"]
    lengths = {name: values[name].shape for name in ("x", "lid_true", "is_memorised") if name in values}
    if not 2 <= x.ndim <= 4 or 0 in x.shape or len({shape[0] for shape in lengths.values()}) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in lengths.items())
        remedy = "Give x of shape (n, d), (n, height, width) or (n, channels, height, width), the others (n)"
        raise InputError(Problem(given.field, path.name, f"the arrays do not fit together ({listed})", remedy))
    flat = _points(given.field, x.reshape(len(x), -1))
    _check_truth(given.field, values.get("lid_true"), flat.shape[1])
    return _File(given.field, flat, x.shape[1:], (), values.get("lid_true"), values.get("is_memorised"))


def _read_table(path: Path, field: str) -> _File:
    columns = [Column("lid_true", "float", ge=0, required=False), Column("is_memorised", "bool", required=False)]
    frame = artifacts.read_table(path, field=field, columns=columns, extra=Column("", "float"))
    features = frame.drop(columns=["lid_true", "is_memorised"], errors="ignore")
    x = _points(field, features.to_numpy(np.float64))

    def known(name: str, kind: Any) -> Any:
        return frame[name].to_numpy(kind) if name in frame else None

    names = tuple(map(str, features.columns))
    _check_truth(field, known("lid_true", np.float64), x.shape[1])
    return _File(field, x, (len(names),), names, known("lid_true", np.float64), known("is_memorised", bool))


def _check_truth(field: str, lid_true: Floats | None, d: int) -> None:
    if lid_true is not None and lid_true.max() > d:
        problem = f"lid_true is {lid_true.max():g} where points have {d} features: no dimension is larger"
        raise InputError(Problem(field, None, problem, "Give the true dimension of each point"))


def _points(field: str, x: NDArray[Any]) -> Tensor:
    if x.shape[1] < 2:
        problem = f"points of {x.shape[1]} feature{'s' * (x.shape[1] != 1)} have no dimension to count"
        raise InputError(Problem(field, None, problem, "Give at least 2 numeric features"))
    if np.abs(x).max() > _LARGEST:
        raise InputError(Problem(field, None, f"some numbers are beyond ±{_LARGEST:g}", "Give them in another unit"))
    return torch.from_numpy(x.astype(np.float32))


def _aligned(points: _File | None, data: _File | None) -> _File | None:
    """The points with a table's columns in the order of the data's."""
    if points is None or data is None or not (points.columns and data.columns):
        return points
    if set(points.columns) != set(data.columns):
        lacking = [name for name in data.columns if name not in points.columns]
        surplus = [name for name in points.columns if name not in data.columns]
        words = [f"{what} {names[:5]}" for what, names in (("lacks", lacking), ("adds", surplus)) if names]
        problem = f"its columns are not the data's: it {' and '.join(words)}"
        raise InputError(Problem(points.field, None, problem, "Give the same columns in both"))
    order = [points.columns.index(name) for name in data.columns]
    return _File(points.field, points.x[:, order], data.shape, data.columns, points.lid_true, points.memorised)


def _check_features(inputs: LhsdInputs, asked: _File, data: _File | None, model: ScoreModel | None) -> None:
    D = asked.x.shape[1]
    if model is not None and model.n_features not in (None, D):
        problem = f"its points have {D} features, the model takes {model.n_features}"
        raise InputError(Problem(asked.field, None, problem, "Give points of the model's shape"))
    if data is not None and data.x.shape[1] != D:
        problem = f"its points have {D} features, the data's {data.x.shape[1]}"
        raise InputError(Problem(asked.field, None, problem, "Give the same features in both"))
    running.check_steps(inputs, D)


def _model(inputs: LhsdInputs, context: Context) -> ScoreModel | None:
    if inputs.model is None:
        return None
    folder, field = context.fetch(inputs.model), inputs.model.field
    if inputs.model_kind == "diffusers":
        from kfp_methods.components.science import score_diffusers

        prediction = None if inputs.prediction == "auto" else inputs.prediction
        return score_diffusers.load(folder, field=field, prediction=prediction)
    return score_files.load(folder, field=field)


def _some_rows(n: int, inputs: LhsdInputs) -> NDArray[np.int64]:
    """Which of n points of the data are scored: all, or a random sample in their order."""
    if n <= inputs.n_points:
        return np.arange(n)
    return np.sort(np.random.default_rng([inputs.seed, 2]).choice(n, inputs.n_points, replace=False))
