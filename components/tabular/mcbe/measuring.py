"""Accuracy, complexity, interventions and formulas of trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
import torch

from kfp_methods.components.tabular.mcbe import formulas
from kfp_methods.components.tabular.mcbe.data import Data, Floats, Ints, Tensors
from kfp_methods.components.tabular.mcbe.networks import BlackBox, FormulaExperts, LinearExperts, Mixture, chosen
from kfp_methods.components.tabular.mcbe.training import Trained

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Predicted:
    """On the rows of a part: outputs in the target's units or as logits [n, O], concepts in theirs [n, K], and which
    expert decided each output [n, O] (None without experts).
    """

    outputs: Floats
    concepts: Floats
    expert: Ints | None


@dataclass
class Measured:
    """One model.

    Attributes:
        kind, M: which; seed.
        score, clipped, with_true: R2 or accuracy on test rows; with outputs clipped to the training range; with true
            concepts.
        error: mean absolute error, or 1 - macro F1.
        concept: R2 or accuracy of concepts, None without any.
        complexity, total: nodes of the chosen formulas, mean over rows, and of all in use; None for no formula.
        experts: formulas in use, by (expert, output), with the share of test rows each decides.
    """

    kind: str
    M: int
    seed: int
    trained: Trained
    score: float
    clipped: float
    with_true: float | None
    error: float
    concept: float | None
    complexity: float | None = None
    total: int | None = None
    experts: dict[tuple[int, int], tuple[sympy.Expr, float]] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)


@torch.no_grad()
def predict(model: Any, data: Data, part: int, device: str, true: Floats | None = None) -> Predicted:
    """Of all rows of a part; `true`: whether each row's concepts are given instead of predicted [n]."""
    rows, scale = Tensors.of(data, part, device), data.scale
    model.eval()
    if isinstance(model, BlackBox):
        outputs = model(rows.x)
        return Predicted(_in_units(outputs, data), np.zeros((len(rows.x), 0)), None)
    logits, rest = model.encode(rows.x)
    c = torch.where(model.binary, logits.sigmoid(), logits)
    concepts = c.cpu().double().numpy() * scale.c_sd + scale.c_mean
    if true is not None:
        c = torch.where(torch.tensor(true, device=device)[:, None] > 0, rows.c, c)
    if isinstance(model, Mixture):
        p = chosen(rest)
        return Predicted(_in_units(model.decide(c, p), data), concepts, p.argmax(1).cpu().numpy())
    return Predicted(_in_units(model.decide(c, rest), data), concepts, None)


def _in_units(outputs: torch.Tensor, data: Data) -> Floats:
    return np.asarray(outputs.cpu().double().numpy() * data.scale.y_sd + data.scale.y_mean)


def classes_of(outputs: Floats) -> Ints:
    """Of logits [n, O]; one logit is that of the second of two classes."""
    return np.asarray(outputs[:, 0] > 0, np.int64) if outputs.shape[1] == 1 else outputs.argmax(1)


def score(outputs: Floats, data: Data, part: int = 2) -> float:
    """R2, mean over targets, or accuracy."""
    y = data.y[data.rows(part)]
    if data.classes:
        return float((classes_of(outputs) == y).mean())
    residual, spread = ((y - outputs) ** 2).mean(0), y.var(0)
    return float(np.mean(1 - residual / np.maximum(spread, 1e-300)))


def measure(
    kind: str, M: int, seed: int, trained: Trained, data: Data, device: str
) -> Measured:  # fmt: skip
    """On the test rows."""
    from sklearn.metrics import f1_score

    model = trained.model
    found = predict(model, data, 2, device)
    test = data.rows(2)
    y = data.y[test]
    everywhere = np.ones(len(test))
    has_concepts = not isinstance(model, BlackBox)
    train = data.y[data.rows(0)]
    clipped = found.outputs if data.classes else np.clip(found.outputs, train.min(0), train.max(0))
    error = (
        1 - float(f1_score(y, classes_of(found.outputs), average="macro", zero_division=0))
        if data.classes
        else float(np.abs(y - found.outputs).mean())
    )
    one = Measured(
        kind=kind,
        M=M,
        seed=seed,
        trained=trained,
        score=score(found.outputs, data),
        clipped=score(clipped, data),
        with_true=score(predict(model, data, 2, device, everywhere).outputs, data) if has_concepts else None,
        error=error,
        concept=_concepts(found.concepts, data) if has_concepts else None,
    )
    if isinstance(model, Mixture):
        _formulas(one, found, data)
        one.curve = interventions(model, data, device, seed)
    return one


def _concepts(found: Floats, data: Data) -> float:
    """Mean over concepts of R2 (numeric) or accuracy (binary)."""
    c = data.c[data.rows(2)]
    values = [
        float(((found[:, k] > 0.5) == (c[:, k] > 0.5)).mean())
        if binary
        else float(1 - ((found[:, k] - c[:, k]) ** 2).mean() / max(c[:, k].var(), 1e-300))
        for k, binary in enumerate(data.binary)
    ]
    return float(np.mean(values))


def interventions(model: Mixture, data: Data, device: str, seed: int) -> list[float]:
    """Scores with true concepts in a growing share of the test rows."""
    order = np.random.default_rng([seed, 7]).permutation(len(data.rows(2))) / max(1, len(data.rows(2)))
    return [score(predict(model, data, 2, device, (order < share).astype(float)).outputs, data) for share in SHARES]


def expressions(model: Mixture, data: Data) -> list[list[sympy.Expr]] | None:
    """Formulas of concepts in their units for outputs in theirs [M][O]; None for MLP experts."""
    if isinstance(model.experts, FormulaExperts):
        return model.experts.current()
    if not isinstance(model.experts, LinearExperts):
        return None
    scale = data.scale
    with torch.no_grad():
        W = model.experts.weights().cpu().double().numpy()
    found = []
    for row in W:
        formulas_of_row = []
        for o, weights in enumerate(row):
            slopes = weights[:-1] * scale.y_sd[o] / scale.c_sd
            bias = weights[-1] * scale.y_sd[o] + scale.y_mean[o] - float(slopes @ scale.c_mean)
            formulas_of_row.append(formulas.linear(slopes.tolist(), bias))
        found.append(formulas_of_row)
    return found


def _formulas(one: Measured, found: Predicted, data: Data) -> None:
    """Which formulas decide, how often, and how long they are."""
    written = expressions(one.trained.model, data)
    assert found.expert is not None  # noqa: S101 (mixtures have experts)
    if written is None:
        return
    outputs = found.expert.shape[1]
    sizes = np.array([[formulas.nodes(written[m][o]) for o in range(outputs)] for m in range(one.M)])
    one.complexity = float(sizes[found.expert, np.arange(outputs)].sum(1).mean())
    for o in range(outputs):
        for m in range(one.M):
            share = float((found.expert[:, o] == m).mean())
            if share > 0:
                one.experts[m, o] = (written[m][o], share)
    one.total = int(sum(sizes[m, o] for m, o in one.experts))


def matches(one: Measured, data: Data, truths: Sequence[Floats], within: float = 0.01) -> int:
    """How many of the true targets [n] an expert's formula equals on the rows where it is meant.

    truths: of each group, on the test rows.
    """
    from kfp_methods.components.tabular.mcbe.search import evaluate

    assert data.group is not None  # noqa: S101
    test = data.rows(2)
    c, group, sd = data.c[test], data.group[test], float(data.y[data.rows(0)].std())
    count = 0
    for number, target in enumerate(truths):
        at = group == number
        errors = [np.sqrt(np.mean((evaluate(f, c[at]) - target[at]) ** 2)) for f, _ in one.experts.values()]
        count += bool(errors) and min(errors) < within * sd
    return count


def routing(one: Measured, data: Data, device: str) -> Floats | None:
    """Share of each group's test rows that each expert decides [groups, M]; None where groups are not known."""
    if data.group is None or not isinstance(one.trained.model, Mixture):
        return None
    expert = predict(one.trained.model, data, 2, device).expert
    assert expert is not None  # noqa: S101
    table = np.zeros((len(data.groups), one.M))
    np.add.at(table, (data.group[data.rows(2)], expert[:, 0]), 1)
    return table / np.maximum(table.sum(1, keepdims=True), 1)
