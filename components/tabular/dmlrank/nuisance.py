"""Models of the verdicts' probabilities mu and of the labelling probabilities pi.

With 40 trees LightGBM under-fits: then the second-order bias of Bradley-Terry and rank centrality does not vanish, and
coverage falls as contexts are added. Hence 200, and `auto`, which takes whichever predicts held-out contexts better.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from kfp_methods.components.tabular.dmlrank.choices import MuModel
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons, hashed_order
from kfp_methods.components.tabular.dmlrank.functionals import canonical
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Ints, Pairs, swapped

_TREES: dict[str, Any] = {
    "n_estimators": 200, "num_leaves": 8, "min_child_samples": 20, "learning_rate": 0.1, "verbose": -1, "n_jobs": 1,
    "deterministic": True, "force_row_wise": True,
}  # fmt: skip
_HELD_OUT = 0.2
_MOST_PAIRS = 60  # with more, labelling is modelled pair by pair
_MOST_ROWS = 1_000_000  # that a model of labelling is fitted on
_BLOCK = 200_000

# Contexts and pairs [m] to class probabilities [m, C].
Predictor = Callable[[Comparisons, Ints, Ints], Floats]


def design(data: Comparisons, rows: Ints, at: Ints, kind: Literal["logistic", "trees"]) -> Floats:
    """Features of contexts `rows` and pairs `at` [m]: [x, e_j, e_k], or signs, pairs and products; and the judge's."""
    pairs, m = data.pairs, len(rows)
    first, second, each = np.zeros((m, pairs.K)), np.zeros((m, pairs.K)), np.arange(m)
    first[each, pairs.j[at]] = second[each, pairs.k[at]] = 1.0
    x = data.x[rows]
    if kind == "trees":
        parts = [x, first, second]
    else:
        sign = first - second
        # A term for each pair, or no cycle of preferences could be said.
        pair = np.zeros((m, pairs.size // 2))
        pair[each, _unordered(pairs)[at]] = np.where(pairs.rising[at], 1.0, -1.0)
        parts = [sign, np.abs(sign), pair, (x[:, :, None] * sign[:, None, :]).reshape(m, -1)]
    if data.judge is not None:
        parts.append(data.judge[rows, at])
    return np.hstack(parts)


def _unordered(pairs: Pairs) -> Ints:
    """Number of each pair without its order [P]."""
    number = np.cumsum(pairs.rising) - 1
    return np.where(pairs.rising, number, number[pairs.mirror])


def fit_mu(data: Comparisons, model: MuModel, seed: int, device: str) -> tuple[Predictor, str]:
    """A predictor fitted on the labelled pairs, and which model it is.

    auto: fits both on 80% of the contexts, by hash, keeps the one of lower log loss on the rest, and fits that on all.
    """
    if model != "auto":
        return _fit(data, model, seed, device), model
    rank = hashed_order(data.contexts, seed + 1)
    cut = round((1 - _HELD_OUT) * len(rank))
    part, rest = data.take(np.flatnonzero(rank < cut)), data.take(np.flatnonzero(rank >= cut))
    losses: dict[MuModel, float] = {}
    for name in ("logistic", "lightgbm"):
        losses[name] = log_loss(rest, _fit(part, name, seed, device))
    best = min(losses, key=losses.__getitem__)
    return _fit(data, best, seed, device), best


def log_loss(data: Comparisons, predict: Predictor) -> float:
    """Mean of -ln of the probability of what was said, on labelled pairs; 0 without any."""
    rows, at = np.nonzero(data.labelled)
    if not len(rows):
        return 0.0
    found = predict(data, rows, at)[np.arange(len(rows)), data.verdict[rows, at]]
    return float(-np.log(np.maximum(found, 1e-6)).mean())


def _fit(data: Comparisons, model: MuModel, seed: int, device: str) -> Predictor:
    rows, at = np.nonzero(data.labelled)
    y = data.verdict[rows, at].astype(np.int64)
    if not data.ordered:  # without positions a pair says the same from either side
        rows, at, y = np.r_[rows, rows], np.r_[at, data.pairs.mirror[at]], np.r_[y, np.array([1, 0, 2, 3])[y]]
        data = _both_sides(data)
    kind: Literal["logistic", "trees"] = "trees" if model == "lightgbm" else "logistic"
    X = design(data, rows, at, kind)
    fitted, scale = _fitted(X, y, model, seed, device)

    def predict(other: Comparisons, rows: Ints, at: Ints) -> Floats:
        other = other if other.ordered else _both_sides(other)
        found = np.zeros((len(rows), data.classes))
        for begin in range(0, len(rows), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            found[part][:, fitted.classes_] = fitted.predict_proba(design(other, rows[part], at[part], kind) / scale)
        return found

    return predict


def _both_sides(data: Comparisons) -> Comparisons:
    """The judge's opinion of (k, j) as that of (j, k) with wins and losses exchanged."""
    return data if data.judge is None else replace(data, judge=canonical(data.pairs, data.judge))


def _fitted(X: Floats, y: Ints, model: MuModel, seed: int, device: str) -> tuple[Any, Floats]:
    scale = np.ones(X.shape[1])
    if len(np.unique(y)) == 1:
        from sklearn.dummy import DummyClassifier

        return DummyClassifier().fit(X, y), scale
    if model == "lightgbm":
        from lightgbm import LGBMClassifier

        return _Trees(LGBMClassifier(**_TREES, random_state=seed).fit(X, y)), scale
    scale = np.maximum(np.sqrt((X**2).mean(0)), 1e-9)
    if model == "mlp":
        from kfp_methods.components.tabular.dmlrank.mlp import Perceptron

        return Perceptron.fit(X / scale, y, seed, device), scale
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a last digit that did not converge
        return LogisticRegression(C=1.0, max_iter=300).fit(X / scale, y), scale


class _Trees:
    """LightGBM without its remarks about names of columns."""

    def __init__(self, model: Any) -> None:
        self.model, self.classes_ = model, model.classes_

    def predict_proba(self, X: Floats) -> Floats:
        return (
            np.asarray(self.model.booster_.predict(X)).reshape(len(X), -1) if len(self.classes_) > 2 else self._two(X)
        )

    def _two(self, X: Floats) -> Floats:
        second = np.asarray(self.model.booster_.predict(X))
        return np.column_stack([1 - second, second])


def predict_all(data: Comparisons, predict: Predictor) -> Floats:
    """Of every pair of every context [n, P, C]."""
    n, P = data.verdict.shape
    rows, at = np.repeat(np.arange(n), P), np.tile(np.arange(P), n)
    return predict(data, rows, at).reshape(n, P, data.classes)


def floored(mu: Floats, floor: float) -> tuple[Floats, float]:
    """max(mu, floor), renormalised, and the share that was below."""
    clipped = np.maximum(mu, floor)
    return clipped / clipped.sum(-1, keepdims=True), float((mu < floor).mean())


def fit_pi(data: Comparisons, seed: int) -> Callable[[Comparisons], Floats]:
    """A predictor [n, P] of the probability that a pair is labelled, from x.

    One comparison for each context and few models: a multinomial model over pairs. Else a binary one of (x, j, k).
    """
    from lightgbm import LGBMClassifier

    S = data.labelled
    used = np.arange(S.shape[1]) if data.ordered else np.flatnonzero(data.pairs.rising)
    if (S.sum(1) == 1).all() and len(used) <= _MOST_PAIRS and len(np.unique(S.argmax(1))) > 2:
        model = _Trees(LGBMClassifier(**_TREES, random_state=seed).fit(data.x, S.argmax(1)))

        def of_pairs(other: Comparisons) -> Floats:
            found = np.zeros(other.verdict.shape)
            found[:, model.classes_] = model.predict_proba(other.x)
            return found

        return of_pairs
    rows, at = (part.ravel() for part in np.meshgrid(np.arange(len(S)), used, indexing="ij"))
    if len(rows) > _MOST_ROWS:
        chosen = np.random.default_rng([seed, 4]).choice(len(rows), _MOST_ROWS, replace=False)
        rows, at = rows[chosen], at[chosen]
    plain = _without_judge(data)
    y = S[rows, at].astype(np.int64)
    if len(np.unique(y)) == 1:
        return lambda other: (
            np.where(np.isin(np.arange(S.shape[1]), used), float(y[0]), 0.0) * np.ones(other.verdict.shape)
        )
    binary = _Trees(LGBMClassifier(**_TREES, random_state=seed).fit(design(plain, rows, at, "trees"), y))

    def of_each(other: Comparisons) -> Floats:
        found, where = np.zeros(other.verdict.shape), _without_judge(other)
        i, p = (part.ravel() for part in np.meshgrid(np.arange(len(found)), used, indexing="ij"))
        for begin in range(0, len(i), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            found[i[part], p[part]] = binary.predict_proba(design(where, i[part], p[part], "trees"))[:, 1]
        return found

    return of_each


def _without_judge(data: Comparisons) -> Comparisons:
    return replace(data, judge=None)


def symmetric(mu: Floats, pairs: Pairs) -> Floats:
    """Without positions: the mean of both sides' probabilities."""
    return np.asarray(0.5 * (mu + swapped(mu[:, pairs.mirror])))
