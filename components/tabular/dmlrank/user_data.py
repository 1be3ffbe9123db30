"""A user's tables become comparisons by context and pair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods import artifacts
from kfp_methods.artifacts import Column
from kfp_methods.components.tabular.dmlrank import text
from kfp_methods.components.tabular.dmlrank.choices import BOTH_BAD, LOSS, TIE, WIN
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Ints, Pairs
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, listed, token

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dmlrank.component import DmlrankInputs
    from kfp_methods.context import Context

MIN_CONTEXTS, MAX_MODELS, MAX_CELLS = 50, 100, 50_000_000
_SPELLINGS = {
    "a": WIN, "model_a": WIN, "b": LOSS, "model_b": LOSS, "tie": TIE, "both_bad": BOTH_BAD,
    "tie (bothbad)": BOTH_BAD, "bothbad": BOTH_BAD,
}  # fmt: skip
_JUDGED = ("judge_a", "judge_b", "judge_tie")
_LARGEST = 1e6


@dataclass(frozen=True)
class UserData:
    """comparisons: the user's. costs [P]: of labelling each pair."""

    comparisons: Comparisons
    costs: Floats


def load(inputs: DmlrankInputs, context: Context) -> UserData:
    """Reads and checks the tables.

    Raises:
        InputError: a table cannot be used, or they do not fit together.
    """
    assert inputs.comparisons is not None  # noqa: S101 (the contract requires it)
    text.check(inputs.text_features)
    field, path = inputs.comparisons.field, context.fetch(inputs.comparisons)
    frame = _read(path, field, inputs)
    models = _models(frame, field, path)
    verdict = _verdicts(frame, field, path)
    features = [name for name in frame.columns if str(name).startswith("x_")]
    per_context = _contexts(frame, features, field, inputs, context)
    ids = per_context.index.to_numpy(object)
    pairs = Pairs(len(models))
    if len(ids) * pairs.size > MAX_CELLS:
        problem = f"has {len(ids):,} contexts of {len(models)} models, {len(ids) * pairs.size:,} pairs"
        raise InputError(Problem(field, None, problem, f"Give fewer: {MAX_CELLS:,} pairs at most"))
    rows = pd.Index(ids).get_indexer(frame["context_id"])
    codes = {name: number for number, name in enumerate(models)}
    a, b = (np.asarray(frame[name].map(codes), np.int64) for name in ("model_a", "model_b"))
    if inputs.unordered:
        exchanged = a > b
        a, b = np.minimum(a, b), np.maximum(a, b)
        verdict = np.where(exchanged & (verdict < TIE), 1 - verdict, verdict)
    at = pairs.at(a, b)
    _check_repeats(rows, at, frame, field, path)
    table = np.full((len(ids), pairs.size), -1, np.int8)
    table[rows, at] = verdict
    propensity = _propensity(frame, rows, at, table.shape)
    x = _features(per_context, features, inputs, context)
    classes = 4 if (verdict == BOTH_BAD).any() else 3
    judge = _judge(inputs, context, models, ids, pairs)
    data = Comparisons(models, tuple(ids), x, table, classes, propensity, judge, ordered=not inputs.unordered)
    _check(data, inputs, field, context)
    return UserData(data, _costs(inputs, models, pairs))


def _read(path: Path, field: str, inputs: DmlrankInputs) -> pd.DataFrame:
    named = [Column(name, "str") for name in ("context_id", "model_a", "model_b", "verdict")]
    optional = [Column("propensity", gt=0, le=1, required=False)]
    if inputs.text_features != "none":
        optional.append(Column("prompt", "str"))
    names = [str(name) for name in artifacts.read_table(path, field=field, columns=named).columns]
    wide = [Column(name, "float", ge=-_LARGEST, le=_LARGEST) for name in names if name.startswith("x_")]
    return artifacts.read_table(path, field=field, columns=[*named, *optional, *wide])


def _models(frame: pd.DataFrame, field: str, path: Path) -> tuple[str, ...]:
    for name in ("model_a", "model_b"):
        frame[name] = frame[name].str.strip()
    both = pd.unique(pd.concat([frame["model_a"], frame["model_b"]]))
    plain: dict[str, str] = {}
    for name in sorted(map(str, both)):
        other = plain.setdefault(name.casefold(), name)
        if other != name:
            problem = f"models {token(other)} and {token(name)} differ only in case"
            raise InputError(Problem(field, None, problem, "Write each model's name in one way"))
    same = (frame["model_a"] == frame["model_b"]).to_numpy()
    if same.any():
        row = int(same.argmax())
        problem = (
            f"{token(str(frame['model_a'].iloc[row]))} is compared with itself in {artifacts.row_place(path, row)}"
        )
        raise InputError(Problem(field, None, problem, "Give two different models"))
    if len(both) > MAX_MODELS:
        raise InputError(Problem(field, None, f"has {len(both)} models", f"Give {MAX_MODELS} at most"))
    return tuple(sorted(map(str, both)))


def _verdicts(frame: pd.DataFrame, field: str, path: Path) -> Ints:
    found = frame["verdict"].str.strip().str.lower().map(_SPELLINGS)
    if found.isna().any():
        row = int(found.isna().to_numpy().argmax())
        problem = f"column 'verdict': {token(str(frame['verdict'].iloc[row]))} in {artifacts.row_place(path, row)}"
        raise InputError(Problem(field, None, problem, "Write a, b, tie or both_bad"))
    return np.asarray(found, np.int64)


def _contexts(
    frame: pd.DataFrame, features: list[str], field: str, inputs: DmlrankInputs, context: Context
) -> pd.DataFrame:
    """Features and prompts by context, those without verdicts too, sorted by id."""
    wanted = [*features, *(["prompt"] if inputs.text_features != "none" else [])]
    grouped = frame.groupby("context_id", sort=True)[wanted]
    if wanted:
        spread = grouped.nunique().gt(1).any(axis=1)
        if spread.any():
            problem = f"context {token(str(spread.idxmax()))} has different features in different rows"
            raise InputError(Problem(field, None, problem, "Give a context the same features everywhere"))
    found = grouped.first() if wanted else pd.DataFrame(index=pd.Index(sorted(frame["context_id"].unique())))
    if inputs.contexts is not None:
        other, path = inputs.contexts.field, context.fetch(inputs.contexts)
        columns = [Column("context_id", "str", unique=True)]
        columns += [Column(name, "str") if name == "prompt" else Column(name) for name in wanted]
        more = artifacts.read_table(path, field=other, columns=columns).set_index("context_id")[wanted]
        found = pd.concat([found, more[~more.index.isin(found.index)]]).sort_index()
    return found


def _features(per_context: pd.DataFrame, names: list[str], inputs: DmlrankInputs, context: Context) -> Floats:
    """Standardised; constant ones are left out."""
    parts = [per_context[names].to_numpy(np.float64)]
    if inputs.text_features != "none":
        device = context.device if inputs.text_features == "minilm" else "cpu"
        parts.append(text.features(per_context["prompt"].tolist(), inputs.text_features, device))
    x = np.hstack(parts)
    sd = x.std(0)
    if not (sd > 0).any():
        context.warn("contexts have no features: scores are still valid, but intervals as wide as without a model")
    return (x[:, sd > 0] - x[:, sd > 0].mean(0)) / sd[sd > 0]


def _check_repeats(rows: Ints, at: Ints, frame: pd.DataFrame, field: str, path: Path) -> None:
    repeated = pd.DataFrame({"row": rows, "pair": at}).duplicated().to_numpy()
    if repeated.any():
        row = int(repeated.argmax())
        problem = f"context {token(str(frame['context_id'].iloc[row]))} repeats a comparison in "
        problem += artifacts.row_place(path, row)
        raise InputError(Problem(field, None, problem, "Give each ordered pair of models once for each context"))


def _propensity(frame: pd.DataFrame, rows: Ints, at: Ints, shape: tuple[int, int]) -> Floats | None:
    if "propensity" not in frame:
        return None
    found = np.ones(shape)
    found[rows, at] = frame["propensity"].to_numpy(np.float64)
    return found


def _judge(
    inputs: DmlrankInputs, context: Context, models: tuple[str, ...], ids: np.ndarray, pairs: Pairs
) -> Floats | None:
    if inputs.judge is None:
        return None
    field, path = inputs.judge.field, context.fetch(inputs.judge)
    columns = [Column(name, "str") for name in ("context_id", "model_a", "model_b")]
    columns += [Column(name, ge=0, le=1) for name in _JUDGED]
    frame = artifacts.read_table(path, field=field, columns=columns)
    rows = pd.Index(ids).get_indexer(frame["context_id"])
    a, b = (pd.Index(models).get_indexer(pd.Index(frame[name].str.strip())) for name in ("model_a", "model_b"))
    known = (rows >= 0) & (a >= 0) & (b >= 0) & (a != b)
    found = np.full((len(ids), pairs.size, 3), np.nan)
    found[rows[known], pairs.at(a[known], b[known])] = frame.loc[known, [*_JUDGED]].to_numpy(np.float64)
    if inputs.unordered:
        mirrored = found[:, pairs.mirror][..., [1, 0, 2]]
        found = np.where(np.isnan(found), mirrored, found)
    missing = np.isnan(found).any(-1)
    if missing.any():
        row, pair = (int(v[0]) for v in np.nonzero(missing))
        problem = f"lacks {int(missing.sum()):,} pairs, for instance {token(models[pairs.j[pair]])} and "
        problem += f"{token(models[pairs.k[pair]])} of context {token(str(ids[row]))}"
        raise InputError(Problem(field, None, problem, "Judge every ordered pair of every context, labelled or not"))
    return found


def _check(data: Comparisons, inputs: DmlrankInputs, field: str, context: Context) -> None:
    labelled = int(data.labelled.any(1).sum())
    if labelled < MIN_CONTEXTS:
        problem = f"has {counted(labelled, 'context')} with verdicts, too few"
        raise InputError(Problem(field, None, problem, f"Give {MIN_CONTEXTS} or more"))
    if len(data.models) < 2:
        raise InputError(Problem(field, None, "compares fewer than two models", "Give two or more"))
    _check_connected(data, field)
    if len(data.models) == 2 and "rank_centrality" in inputs.functional:
        context.warn("of two models rank_centrality is the share of mutual wins: borda says as much")
    seen = np.asarray(data.labelled.any(0))
    seen = seen | seen[data.pairs.mirror] if not data.ordered else seen
    if not seen.all():
        context.warn(
            f"{int((~seen).sum())} of {data.pairs.size} ordered pairs were never compared: what is said of them rests "
            "on the model of verdicts alone"
        )


def _check_connected(data: Comparisons, field: str) -> None:
    from scipy.sparse.csgraph import connected_components

    played = data.pairs.square(np.asarray(data.labelled.any(0), np.float64))
    count, component = connected_components(played + played.T, directed=False)
    if count > 1:
        groups = [listed([data.models[i] for i in np.flatnonzero(component == c)], 4) for c in range(min(count, 3))]
        problem = f"falls into {count} groups of models that were never compared with each other: {'; '.join(groups)}"
        raise InputError(Problem(field, None, problem, "Compare models across groups, or rank each group alone"))


def _costs(inputs: DmlrankInputs, models: tuple[str, ...], pairs: Pairs) -> Floats:
    if unknown := [name for name in inputs.plan_costs if name not in models]:
        problem = f"no model is named {listed(unknown, 5)}"
        raise InputError(Problem("plan_costs", None, problem, f"The models: {listed(models, 10)}"))
    each = np.array([inputs.plan_costs.get(name, 1.0) for name in models])
    costs = (each[pairs.j] + each[pairs.k]) / 2
    return np.where(pairs.rising, costs, np.inf) if inputs.unordered else costs
