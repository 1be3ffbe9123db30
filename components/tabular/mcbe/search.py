"""Symbolic regression by operon: the front of error and length, and the formula that it is worth taking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
import torch
from numpy.typing import NDArray

from kfp_methods.components.tabular.mcbe import formulas
from kfp_methods.components.tabular.mcbe.choices import OPERON

Floats = NDArray[np.float64]
_FLOOR = 1e-12
_APART = 0.01  # share by which a formula's error, computed anew, may differ from the one reported


@dataclass(frozen=True)
class Settings:
    """operators: of the vocabulary, as users write them. The rest is operon's."""

    operators: tuple[str, ...] = ("+", "-", "*", "/")
    max_length: int = 15
    generations: int = 80
    population: int = 500
    seed: int = 0


@dataclass(frozen=True)
class Entry:
    """A formula of the front: operon's length, and the mean squared error on the rows."""

    formula: sympy.Expr
    length: int
    mse: float


def evaluate(formula: sympy.Expr, c: Floats) -> Floats:
    """Values [n] on concepts [n, K], in double precision."""
    with torch.no_grad():
        module = formulas.Formula(formula, torch.float64)
        return np.asarray(module(torch.tensor(c, dtype=torch.float64)).numpy())


def front(c: Floats, y: Floats, settings: Settings) -> list[Entry]:
    """Formulas y ~ f(c) on rows [n, K], [n], each with less error than any shorter one. One thread: repeatable."""
    from pyoperon.sklearn import SymbolicRegressor

    symbols = ",".join([*(OPERON[name] for name in settings.operators), "constant", "variable"])
    model: Any = SymbolicRegressor(
        allowed_symbols=symbols, objectives=["mse", "length"], population_size=settings.population,
        generations=settings.generations, max_length=settings.max_length, max_depth=6, optimizer_iterations=5,
        n_threads=1, random_state=settings.seed,
    )  # fmt: skip
    model.fit(c, y)
    found = []
    for entry in model.pareto_front_:
        # The front's own text is cut at six decimals, which may leave nonsense.
        text = model.get_model_string(entry["tree"], precision=17)
        formula = formulas.read(text)
        mse = float(np.mean((evaluate(formula, c) - y) ** 2))
        reported = float(entry["mean_squared_error"])
        if math.isfinite(mse) and abs(mse - reported) <= _APART * reported + _FLOOR * max(1.0, float(y.var())):
            found.append(Entry(formula, int(entry["length"]), mse))
    kept: list[Entry] = []
    for one in sorted(found, key=lambda e: (e.length, e.mse)):
        if not kept or one.mse < kept[-1].mse:
            kept.append(one)
    return kept


def scores(lengths: Sequence[int], errors: Sequence[float], variance: float) -> list[float]:
    """-d log(error / variance) / d length between neighbours of the front; the first scores 0."""
    logs = [math.log(max(error / variance, _FLOOR)) for error in errors]
    rises = [-(logs[i] - logs[i - 1]) / (lengths[i] - lengths[i - 1]) for i in range(1, len(logs))]
    return [0.0, *rises]


def choose(c: Floats, y: Floats, settings: Settings) -> tuple[sympy.Expr, list[Entry]]:
    """The formula of the highest score, tidied, and the front; the mean where nothing varies or nothing is found."""
    if len(y) < 2 or np.ptp(y) == 0:
        return sympy.Float(float(y.mean()) if len(y) else 0.0), []
    entries = front(c, y, settings)
    if not entries:
        return sympy.Float(float(y.mean())), []
    found = scores([e.length for e in entries], [e.mse for e in entries], float(y.var()))
    best = entries[int(np.argmax(found))]
    tidy = formulas.tidied(best.formula, float(y.std()))
    worse = np.mean((evaluate(tidy, c) - y) ** 2) > 1.01 * best.mse + 1e-9 * float(y.var())
    return (best.formula if worse else tidy), entries
