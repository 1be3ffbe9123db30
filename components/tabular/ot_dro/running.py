"""From validated inputs to what was found: one table of the user's, or the sample's draws, years and regressions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.ot_dro import sample, solving
from kfp_methods.components.tabular.ot_dro.choices import PORTFOLIOS
from kfp_methods.components.tabular.ot_dro.combinations import order
from kfp_methods.components.tabular.ot_dro.cones import Floats, NotSolvedError
from kfp_methods.components.tabular.ot_dro.learning import Settings
from kfp_methods.components.tabular.ot_dro.solving import Setup, Solved
from kfp_methods.errors import InputError, Problem
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.ot_dro.component import OtDroInputs
    from kfp_methods.components.tabular.ot_dro.user_data import UserData
    from kfp_methods.context import Context


@dataclass(frozen=True)
class Drawn:
    """A draw of the discrete law: seed, rows, bootstraps, and what was solved on it; its losses are the true ones."""

    seed: int
    N: int
    B: int
    solved: Solved


@dataclass(frozen=True)
class Found:
    """main: what metrics and most figures are of, its columns' names; the rest is of the sample.

    Attributes:
        title: of main, in words.
        centre: what was taken off a regression's columns [k].
        years: by year that the set was learned on.
        others: regressions and CVaR, by name.
    """

    title: str
    names: tuple[str, ...]
    main: Solved
    centre: Floats
    drawn: list[Drawn] = field(default_factory=list)
    years: dict[int, Solved] = field(default_factory=dict)
    others: dict[str, Solved] = field(default_factory=dict)


def settings_of(inputs: OtDroInputs) -> Settings:
    """Of learning."""
    return Settings(
        gamma=inputs.gamma,
        penalty=inputs.lambda_pen,
        eta=inputs.eta,
        lr=inputs.lr,
        iterations=inputs.max_iter,
        tolerance=inputs.tol,
        gradient=inputs.gradient,
    )


def setup_of(inputs: OtDroInputs) -> Setup:
    """Of the decision."""
    return Setup(
        problem=inputs.problem,
        p=order(inputs),
        beta=inputs.beta,
        lower=-inputs.max_weight if inputs.short_allowed else 0.0,
        upper=inputs.max_weight,
        n_bootstrap=inputs.n_bootstrap,
        standardise=inputs.standardise,
        upper_objective=inputs.upper_objective,
    )


def on_users(inputs: OtDroInputs, data: UserData, context: Context) -> Found:
    """Learns the set on the user's rows.

    Raises:
        InputError: the solver fails on them.
    """
    try:
        solved = solving.solve(
            data.rows,
            setup_of(inputs),
            settings_of(inputs),
            inputs.seed,
            data.test,
            lambda steps: context.progress(steps, "learning the set"),
        )
    except NotSolvedError as error:
        assert inputs.data is not None  # noqa: S101
        problem = f"the cone program of {inputs.problem} cannot be solved on it (Clarabel: {error})"
        remedy = "Look for columns of very different sizes, or for copies of columns"
        raise InputError(Problem(inputs.data.field, None, problem, remedy)) from error
    for name, value in (("certificate", "f"), ("share outside", "outside")):
        for step, number in enumerate(solved.learned.history[value]):
            context.metric(name, number, step)
    return Found("your data", data.names, solved, data.centre)


def on_sample(inputs: OtDroInputs, context: Context) -> Found:
    """The parts of the sample that were asked for; the last year of stocks is what metrics are of."""
    settings, parts = settings_of(inputs), dict.fromkeys(inputs.sample_parts)
    drawn = _draws(inputs, settings, context) if "discrete" in parts else []
    years = _years(inputs, settings, context) if "stocks" in parts else {}
    others = _others(inputs, settings, context, stocks="stocks" in parts) if "regression" in parts else {}
    if years:
        last = max(years)
        names = tuple(map(str, sample.stocks().columns))
        return Found(
            f"stocks of {last}, tested on {last + 1}", names, years[last], np.zeros(len(names)), drawn, years, others
        )
    if drawn:
        names = ("asset 1", "asset 2", "asset 3")
        return Found("the first draw of the discrete law", names, drawn[0].solved, np.zeros(3), drawn, years, others)
    name = next(iter(others))
    return Found(name, ("age", "sex", "bmi", "progression"), others[name], np.zeros(4), drawn, years, others)


def _draws(inputs: OtDroInputs, settings: Settings, context: Context) -> list[Drawn]:
    """In the law's own units, as the paper has it; the test rows are its support, weighted: true losses."""
    todo = [
        (seed, N, B)
        for N in sorted(set(inputs.sample_sizes))
        for B in sorted(set(inputs.sample_bootstraps))
        for seed in range(inputs.seed, inputs.seed + inputs.n_seeds)
    ]
    # The law's probabilities are multiples of 1/20: twenty rows have its expectations exactly.
    law = np.repeat(sample.SUPPORT, np.round(20 * sample.PROBABILITIES).astype(int), axis=0)
    found = []
    for seed, N, B in context.progress(todo, "draws of the discrete law"):
        setup = replace(setup_of(inputs), n_bootstrap=B, standardise=False)
        found.append(Drawn(seed, N, B, solving.solve(sample.draw(N, seed), setup, settings, seed, law)))
        _keep(context, Found("", (), found[0].solved, np.zeros(0), drawn=found))
    return found


def _years(inputs: OtDroInputs, settings: Settings, context: Context) -> dict[int, Solved]:
    numbers = range(sample.LAST_YEAR - inputs.n_years + 1, sample.LAST_YEAR + 1)
    found = {}
    for number in context.progress(numbers, "years of stocks"):
        rows, rest = sample.year(number), sample.year(number + 1)
        found[number] = solving.solve(rows, setup_of(inputs), settings, inputs.seed, rest)
        _keep(context, Found("", (), found[number], np.zeros(0), years=found))
    return found


def _keep(context: Context, so_far: Found) -> None:
    """What is known if the run is interrupted later."""
    name = "stocks" if so_far.years else "draws"
    context.keep(Table(name, f"Runs of the sample: {name}", runs(so_far)))


def _others(inputs: OtDroInputs, settings: Settings, context: Context, *, stocks: bool) -> dict[str, Solved]:
    fit, test = sample.patients()
    tasks: dict[str, tuple[Setup, Floats, Floats]] = {
        "absolute error, diabetes": (replace(setup_of(inputs), problem="reg_abs", p=1), fit, test),
        "squared error, diabetes": (replace(setup_of(inputs), problem="reg_sq", p=2), fit, test),
    }
    if stocks:
        last = sample.LAST_YEAR
        cvar = replace(setup_of(inputs), problem="po_cvar", p=2)
        tasks[f"CVaR, stocks of {last}"] = (cvar, sample.year(last), sample.year(last + 1))
    return {
        name: solving.solve(rows, setup, settings, inputs.seed, rest)
        for name, (setup, rows, rest) in context.progress(list(tasks.items()), "other problems")
    }


def runs(found: Found) -> pd.DataFrame:
    """A row for each draw, year and other problem."""
    named: list[tuple[str, Solved]] = [
        *((f"discrete law, seed {one.seed}, N = {one.N}, B = {one.B}", one.solved) for one in found.drawn),
        *((f"stocks of {year}", solved) for year, solved in found.years.items()),
        *found.others.items(),
    ]
    rows = []
    for name, solved in named:
        row: dict[str, object] = {"run": name, "problem": solved.setup.problem}
        for ball in ("learned", "calibrated", "round", "mahalanobis", "none"):
            row[f"certificate_{ball}"] = solved.decisions[ball].certificate
            row[f"loss_{ball}"] = solved.decisions[ball].test
        if solved.setup.problem in PORTFOLIOS:
            row |= {
                "loss_equal": solved.decisions["equal"].test,
                "loss_min_variance": solved.decisions["min_variance"].test,
            }
        rows.append(row | {"outside": solved.outside, "fresh_outside": solved.fresh})
    return pd.DataFrame(rows)
