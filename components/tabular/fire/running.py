"""From validated inputs to what was measured: a benchmark, or a user's predictions with their scores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.fire import measuring, problems
from kfp_methods.components.tabular.fire.backends import BackendChoice
from kfp_methods.components.tabular.fire.measuring import ALONE, FIRE, Cell
from kfp_methods.components.tabular.fire.pfn import TRAINED_CONTEXT
from kfp_methods.components.tabular.fire.predictive import Backend, Floats, Predictive, TooManyColumnsError
from kfp_methods.components.tabular.fire.problems import Draw
from kfp_methods.components.tabular.fire.scaling import Scaling
from kfp_methods.components.tabular.fire.two_stage import Fire, Options, Rows
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_methods.components.tabular.fire.component import FireInputs
    from kfp_methods.components.tabular.fire.user_data import UserData
    from kfp_methods.context import Context

_BOOTSTRAP = 2_000
_SHOWN = "forrester"  # the only problem of the sample that can be drawn as a curve


@dataclass(frozen=True)
class Surrogate:
    """FIRE on rows in their own units."""

    fire: Fire
    scaling: Scaling

    def predict(self, X: Floats) -> Predictive:
        """Of rows X [m, d], in the target's units."""
        return self.scaling.restored(self.fire.predict(self.scaling.features(X)))


@dataclass(frozen=True)
class Benchmark:
    """scores: a row for each cell and method; shown: a draw and the predictions of two methods on its test rows."""

    scores: pd.DataFrame
    n_low: int
    shown_problem: str
    shown: Draw
    found: dict[str, Predictive]
    surrogate: Surrogate


@dataclass(frozen=True)
class Predicted:
    """scores: of every method on held-out rows, empty without; found: FIRE's and the costly rows' alone on them;
    gain: log of both errors' ratio with its 95% interval; surrogate: of all rows.
    """

    scores: pd.DataFrame
    found: dict[str, Predictive]
    gain: tuple[float, float, float] | None
    surrogate: Surrogate


def options_of(inputs: FireInputs) -> Options:
    """How FIRE is run."""
    return Options(
        inputs.conditioning,
        tuple(inputs.quantile_levels),
        inputs.lf_strategy,
        inputs.quantile_mode == "convolve",
        inputs.seed,
    )


def backend_of(inputs: FireInputs, checkpoint: Path | None, context: Context) -> Backend:
    """The regressor of the inputs; contexts that it cuts, or was not trained for, are said once."""
    said: set[str] = set()

    def warn(text: str) -> None:
        if text not in said:
            said.add(text)
            context.warn(text)

    device = context.device if inputs.backend != "gp" else "cpu"
    choice = BackendChoice(inputs.backend, inputs.n_estimators, inputs.max_context, device, checkpoint, inputs.seed)
    if inputs.backend == "pfn" and choice.most_rows > TRAINED_CONTEXT and not inputs.uses_sample:
        warn(
            f"the network was trained on {TRAINED_CONTEXT} rows of context at most; it may be shown {choice.most_rows}"
        )
    return choice.make(lambda had, kept: warn(f"a context of {had:,} rows was cut to {kept:,} at random (max_context)"))


def surrogate(rows: Rows, backend: Backend, options: Options) -> Surrogate:
    """FIRE that has seen the rows."""
    scaling = Scaling.of(rows)
    return Surrogate(Fire(backend, options).fit(scaling.rows(rows)), scaling)


def benchmark(inputs: FireInputs, data: UserData | None, checkpoint: Path | None, context: Context) -> Benchmark:
    """Every method on the sample's problems, or on parts of the user's rows."""
    backend = backend_of(inputs, checkpoint, context)
    solvers = _solvers(inputs, backend)
    names = ["your table"] if data is not None else list(dict.fromkeys(inputs.problems))
    cells = [
        Cell(name, budget, seed)
        for seed in range(inputs.seed, inputs.seed + inputs.n_seeds)
        for name in names
        for budget in sorted(set(inputs.hf_budgets))
    ]

    def draw(cell: Cell) -> Draw:
        if data is not None:
            return _part(data, cell, inputs)
        return problems.draw(cell.problem, inputs.n_low, cell.n_high, inputs.n_test, cell.seed)

    with _readable_errors(inputs):
        scores = measuring.benchmark(context.progress(cells, "problems"), draw, solvers)
    chosen = next((cell for cell in cells if cell.problem == _SHOWN), cells[0])
    shown = draw(chosen)
    found = {name: measuring.predictions(shown.training, shown.X_test, solvers[name])[0] for name in (FIRE, ALONE)}
    made = surrogate(shown.training, backend, options_of(inputs))
    n_low = inputs.n_low if data is None else int((data.training.level < len(data.levels) - 1).sum())
    return Benchmark(scores, n_low, chosen.problem, shown, found, made)


def _part(data: UserData, cell: Cell, inputs: FireInputs) -> Draw:
    """The user's cheap rows, `n_high` costly ones at random, and the others to test on."""
    rows = data.everything
    high = np.random.default_rng((cell.seed, 2, 1)).permutation(np.flatnonzero(rows.level == rows.level.max()))
    training = np.concatenate([np.flatnonzero(rows.level < rows.level.max()), high[: cell.n_high]])
    test = high[cell.n_high :][: inputs.n_test]
    return Draw(rows.take(training), rows.X[test], rows.y[test])


def predict(inputs: FireInputs, data: UserData, checkpoint: Path | None, context: Context) -> Predicted:
    """Scores on held-out rows, then predictions from all rows."""
    backend, options = backend_of(inputs, checkpoint, context), options_of(inputs)
    solvers, scores, found = _solvers(inputs, backend), pd.DataFrame(), dict[str, Predictive]()
    with _readable_errors(inputs):
        if len(data.y_test):
            task = Draw(data.training, data.X_test, data.y_test)
            one_by_one = context.progress(solvers, "methods on held-out rows")
            scores = pd.DataFrame(
                [row for name in one_by_one for row in measuring.evaluate(task, {name: solvers[name]})]
            )
            found = {
                name: measuring.predictions(data.training, data.X_test, solvers[name])[0] for name in (FIRE, ALONE)
            }
        made = surrogate(data.everything if data.held_out_at_random else data.training, backend, options)
    outside = made.scaling.outside(data.X_query) if len(data.X_query) else 0.0
    if outside:
        context.warn(f"{outside:.0%} of the query's rows lie outside of the box of the table's: extrapolation")
    return Predicted(scores, found, _gain(found, data.y_test, inputs.seed), made)


def _solvers(inputs: FireInputs, backend: Backend) -> dict[str, measuring.Solve]:
    second = BackendChoice("pfn" if inputs.backend == "gp" else "gp", seed=inputs.seed)
    return measuring.methods(backend, second.make(), options_of(inputs))


def _gain(found: dict[str, Predictive], y: Floats, seed: int) -> tuple[float, float, float] | None:
    """Log of FIRE's root mean squared error / that of the costly rows alone, and a bootstrap interval over rows."""
    if len(y) < 5 or not np.ptp(y):
        return None
    ours, alone = ((y - found[name].mean) ** 2 for name in (FIRE, ALONE))
    if not ours.sum() or not alone.sum():
        return None
    picks = np.random.default_rng((seed, 3, 1)).integers(len(y), size=(_BOOTSTRAP, len(y)))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = 0.5 * np.log(ours[picks].sum(1) / alone[picks].sum(1))
    low, high = np.nanquantile(logs, [0.025, 0.975])
    return float(0.5 * np.log(ours.sum() / alone.sum())), float(low), float(high)


@contextlib.contextmanager
def _readable_errors(inputs: FireInputs) -> Iterator[None]:
    """A regressor's refusal in the user's terms."""
    try:
        yield
    except TooManyColumnsError as error:
        remedy = "Leave some out, or give backend=gp, tabpfn or tabicl"
        raise InputError(Problem("backend", inputs.backend, str(error), remedy)) from None
