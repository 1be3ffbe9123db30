"""Every method on the same rows, and how good each was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.fire import baselines
from kfp_methods.components.tabular.fire.measures import score
from kfp_methods.components.tabular.fire.predictive import Backend, Floats, Predictive, TooManyColumnsError
from kfp_methods.components.tabular.fire.problems import Draw
from kfp_methods.components.tabular.fire.scaling import Scaling
from kfp_methods.components.tabular.fire.two_stage import Fire, Options, Rows

FIRE, MEAN_ONLY, ALONE, POOLED = "FIRE", "FIRE, mean only", "costly rows alone", "all rows, one table"
AR1, RESIDUAL, NARGP = "AR1", "ResGP", "NARGP"
Solve = Callable[[Rows], baselines.Predictor]


@dataclass(frozen=True)
class Cell:
    """One problem at one number of costly rows, and one seed."""

    problem: str
    n_high: int
    seed: int


def by(name: str, regressor: str) -> str:
    """FIRE or one of its variants with the regressor that was not chosen: `FIRE (gp)`."""
    stem, comma, rest = name.partition(",")
    return f"{stem} ({regressor}){comma}{rest}"


def methods(backend: Backend, second: Backend, options: Options) -> dict[str, Solve]:
    """FIRE and all that it is compared with, on scaled rows; `second`: a regressor that it is tried with too."""

    def fire(regressor: Backend, chosen: Options) -> Solve:
        return lambda rows: Fire(regressor, chosen).fit(rows).predict

    mean_only = replace(options, conditioning="mean")
    others: dict[str, Solve] = {
        AR1: baselines.autoregressive,
        RESIDUAL: baselines.residual_process,
        NARGP: baselines.nonlinear_autoregressive,
    }

    def variants(regressor: Backend) -> dict[str, Solve]:
        return {
            FIRE: fire(regressor, options),
            MEAN_ONLY: fire(regressor, mean_only),
            ALONE: lambda rows: baselines.target_only(regressor, rows),
            POOLED: lambda rows: baselines.pooled(regressor, rows),
        }

    return variants(backend) | {by(name, second.name): solve for name, solve in variants(second).items()} | others


def predictions(rows: Rows, X: Floats, solve: Solve) -> tuple[Predictive, float]:
    """In the rows' own units, and the seconds it took."""
    scaling = Scaling.of(rows)
    started = time.perf_counter()
    found = solve(scaling.rows(rows))(scaling.features(X))
    return scaling.restored(found), time.perf_counter() - started


def evaluate(task: Draw, solvers: dict[str, Solve]) -> Iterator[dict[str, object]]:
    """One row of scores for each method that can be used on it.

    nll_scaled: with targets in units of the test targets' standard deviation, so that problems compare.
    """
    spread = float(np.std(task.y_test)) or 1.0
    for name, solve in solvers.items():
        try:
            found, seconds = predictions(task.training, task.X_test, solve)
        except TooManyColumnsError:
            continue
        scores = score(found, task.y_test)
        scaled = scores.nll - float(np.log(spread))
        yield {"method": name, **asdict(scores), "nll_scaled": scaled, "fit_predict_seconds": seconds}


def benchmark(cells: Iterable[Cell], draw: Callable[[Cell], Draw], solvers: dict[str, Solve]) -> pd.DataFrame:
    """Scores of every method in every cell."""
    return pd.DataFrame([{**asdict(cell), **scores} for cell in cells for scores in evaluate(draw(cell), solvers)])


def paired(scores: pd.DataFrame, value: str, first: str, second: str) -> pd.DataFrame:
    """Both methods' `value` in each cell (mean over seeds) where both have one; columns first, second."""
    wanted = scores[scores["method"].isin([first, second])]
    table = wanted.pivot_table(value, ["problem", "n_high"], "method", sort=False)
    return table.reindex(columns=[first, second]).dropna()


def ranks(scores: pd.DataFrame, value: str) -> pd.DataFrame:
    """Rank of each ranked method in each cell [cells, methods], 1 for the least; cells where all have a value."""
    table = scores.pivot_table(value, ["problem", "n_high"], "method", sort=False)
    return (
        table[[name for name in table if not str(name).endswith("mean only")]]
        .dropna(axis=1, how="all")
        .dropna()
        .rank(axis=1)
    )
