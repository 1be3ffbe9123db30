"""A user's benchmark table and target evidence become risks and losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Array, Column
from kfp_methods.components.tabular.weak_monotonicity.frontier import Floats
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import listed, token

if TYPE_CHECKING:
    from kfp_methods.components.tabular.weak_monotonicity.component import WeakMonotonicityInputs
    from kfp_methods.context import Context

MOST_MODELS = 5_000
_OPPOSED = -0.3


@dataclass(frozen=True)
class UserData:
    """R [models, tasks]; losses of the target [models, examples], None without evidence; predictions [models, examples]
    or [models, examples, classes] with y, where these were given.
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    R: Floats
    losses: Floats | None
    predictions: Floats | None = None
    y: Floats | None = None


def load(inputs: WeakMonotonicityInputs, context: Context) -> UserData:
    """Reads and checks the tables.

    Raises:
        InputError: a table cannot be used, or they do not fit together.
    """
    assert inputs.benchmarks is not None  # noqa: S101 (the contract requires it)
    models, tasks, R = _benchmarks(inputs, context)
    _warn_of_directions(tasks, R, context)
    if inputs.target_losses is not None:
        return UserData(models, tasks, R, _losses(inputs, context, models))
    if inputs.target_predictions is not None:
        predictions, y = _predictions(inputs, context, models)
        return UserData(models, tasks, R, _loss_of(predictions, y, inputs), predictions, y)
    context.warn("without target_losses or target_predictions only rules that need no labels can pick")
    return UserData(models, tasks, R, None)


def _benchmarks(inputs: WeakMonotonicityInputs, context: Context) -> tuple[tuple[str, ...], tuple[str, ...], Floats]:
    assert inputs.benchmarks is not None  # noqa: S101
    field, path = inputs.benchmarks.field, context.fetch(inputs.benchmarks)
    columns = [Column("model", "str", unique=True)]
    rest = Column("", "float", nullable=inputs.drop_incomplete)
    frame = artifacts.read_table(path, field=field, columns=columns, extra=rest, max_rows=MOST_MODELS)
    names = frame.pop("model")
    frame = frame.set_axis(pd.Index(names.astype(str)), axis=0)
    if not frame.shape[1]:
        raise InputError(
            Problem(field, None, "has no column of a task beside 'model'", "Give one column for each task")
        )
    incomplete = frame.index[frame.isna().any(axis=1)]
    if len(incomplete):
        context.warn(f"models with missing cells are left out: {listed(list(incomplete), 5)}")
        frame = frame.drop(index=incomplete)
    if len(frame) < 2:
        raise InputError(Problem(field, None, "has fewer than 2 models to choose from", "Give 2 or more"))
    risks = _risks(frame, inputs, field)
    if not inputs.higher_is_better and float((risks.min() > 0.5).mean()) > 0.5:
        context.warn("the best risk is above 0.5 on most tasks: if these are accuracies, give higher_is_better=true")
    return tuple(map(str, frame.index)), tuple(map(str, frame.columns)), risks.to_numpy(np.float64)


def _risks(frame: pd.DataFrame, inputs: WeakMonotonicityInputs, field: str) -> pd.DataFrame:
    scales = inputs.task_max
    if unknown := [name for name in scales if name not in frame]:
        problem, remedy = f"no task is named {listed(unknown, 5)}", f"The tasks: {listed([*frame.columns], 10)}"
        raise InputError(Problem("task_max", None, problem, remedy))
    scaled = frame.div(pd.Series({name: scales.get(str(name), 1.0) for name in frame.columns}))
    wrong = (scaled < 0) | (scaled > 1)
    if wrong.any(axis=None):
        column = str(wrong.any().idxmax())
        model = str(wrong[column].idxmax())
        problem = f"column {token(column)}: {float(frame[column][model]):g} of model {token(model)} is outside 0 to 1"
        remedy = "Give risks or scores between 0 and 1, or their scale in task_max"
        raise InputError(Problem(field, None, problem, remedy))
    return 1 - scaled if inputs.higher_is_better else scaled


def _warn_of_directions(tasks: tuple[str, ...], R: Floats, context: Context) -> None:
    """A task that falls where all others rise was probably given the other way round."""
    if len(tasks) < 3 or len(R) < 3:
        return
    ranks = pd.DataFrame(R).rank()
    if (ranks.nunique() < 2).any():
        return
    correlation = ranks.corr().to_numpy()
    for k, name in enumerate(tasks):
        if (np.delete(correlation[k], k) < _OPPOSED).all():
            context.warn(f"task {name!r} orders the models against all others: is a high value good there?")


def _losses(inputs: WeakMonotonicityInputs, context: Context, models: tuple[str, ...]) -> Floats:
    assert inputs.target_losses is not None  # noqa: S101
    field, path = inputs.target_losses.field, context.fetch(inputs.target_losses)
    frame = artifacts.read_table(path, field=field, columns=[], extra=Column("", "float", ge=0, le=1))
    _same_models(field, [str(name) for name in frame.columns], models)
    return frame[[*models]].to_numpy(np.float64).T


def _same_models(field: str, given: list[str], models: tuple[str, ...]) -> None:
    if lacking := [name for name in models if name not in given]:
        problem = f"lacks {listed(lacking, 5)}, of the benchmarks"
        raise InputError(Problem(field, None, problem, "Give the same models in both, by the same names"))
    if more := [name for name in given if name not in models]:
        problem = f"has {listed(more, 5)}, which the benchmarks lack"
        raise InputError(Problem(field, None, problem, "Give the same models in both, by the same names"))


def _predictions(inputs: WeakMonotonicityInputs, context: Context, models: tuple[str, ...]) -> tuple[Floats, Floats]:
    assert inputs.target_predictions is not None  # noqa: S101
    field, path = inputs.target_predictions.field, context.fetch(inputs.target_predictions)
    arrays = [Array("pred"), Array("y", ndim=1), Array("models", ndim=1, kind="str")]
    values = artifacts.read_arrays(path, field=field, arrays=arrays)
    pred, y, names = values["pred"].astype(np.float64), values["y"].astype(np.float64), values["models"].astype(str)
    if pred.ndim not in (2, 3) or pred.shape[:2] != (len(names), len(y)) or not len(y):
        problem = f"pred {pred.shape}, y {y.shape} and models {names.shape} do not fit together"
        raise InputError(Problem(field, None, problem, "Give pred (M, n) or (M, n, C), y (n) and models (M)"))
    _check_names(field, names)
    _same_models(field, names.tolist(), models)
    order = [names.tolist().index(name) for name in models]
    if pred.ndim == 3:
        _check_classes(field, pred, y)
    return pred[order], y


def _check_names(field: str, names: np.ndarray) -> None:
    found, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        problem = f"models repeats {token(str(found[counts > 1][0]))}"
        raise InputError(Problem(field, None, problem, "Give each model once"))


def _check_classes(field: str, pred: Floats, y: Floats) -> None:
    if (y != np.round(y)).any() or y.min() < 0 or y.max() >= pred.shape[2]:
        problem = f"y holds something else than classes 0 to {pred.shape[2] - 1}"
        raise InputError(Problem(field, None, problem, "Give the number of the class of each example"))
    if (pred < 0).any() or (np.abs(pred.sum(2) - 1) > 1e-3).any():
        remedy = "Give probabilities that sum to 1 over the classes, or (M, n) predictions of a number"
        raise InputError(Problem(field, None, "pred holds no probabilities", remedy))


def _loss_of(predictions: Floats, y: Floats, inputs: WeakMonotonicityInputs) -> Floats:
    """0/1 of the likeliest class; of numbers the squared error, which must be within 1."""
    if predictions.ndim == 3:
        return np.asarray(predictions.argmax(2) != y, np.float64)
    losses = (predictions - y) ** 2
    if losses.max() > 1:
        assert inputs.target_predictions is not None  # noqa: S101
        problem = f"squared errors reach {losses.max():.3g}, above 1"
        remedy = "Scale predictions and y to an interval of length 1, by a range known beforehand"
        raise InputError(Problem(inputs.target_predictions.field, None, problem, remedy))
    return losses
