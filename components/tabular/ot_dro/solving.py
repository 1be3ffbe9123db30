"""One table: the learned set beside the other balls, their decisions, certificates and losses on other rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from kfp_methods.components.tabular.ot_dro import ambiguity, cones, learning
from kfp_methods.components.tabular.ot_dro.choices import BALLS, PORTFOLIOS, Problem, UpperObjective
from kfp_methods.components.tabular.ot_dro.cones import Data, Floats
from kfp_methods.components.tabular.ot_dro.learning import Learned, Settings

_FRESH = 500
_VALIDATION = 0.3  # of the rows, the last ones, where the upper level minimises the loss on rows held out


@dataclass(frozen=True)
class Setup:
    """The lower level's and the bootstraps' settings."""

    problem: Problem
    p: int = 1
    beta: float = 0.05
    lower: float = 0.0
    upper: float = 1.0
    n_bootstrap: int = 50
    standardise: bool = True
    upper_objective: UpperObjective = "certificate"


@dataclass(frozen=True)
class Decision:
    """w [k]; certificate: the worst case over its ball, None where it has none; test: the loss on other rows."""

    w: Floats
    certificate: float | None
    test: float | None


@dataclass(frozen=True)
class Solved:
    """All that was found on one table.

    Attributes:
        L: the learned metric in the data's units [k, k].
        decisions: by ball.
        outside, fresh: share of bootstraps outside the learned set, of those that it was learned on and of others.
        seconds: of learning; round_seconds: of one solution with the round ball.
    """

    setup: Setup
    eps: float
    L: Floats
    learned: Learned
    decisions: dict[str, Decision]
    outside: float
    fresh: float
    seconds: float
    round_seconds: float
    rows: Floats
    shifts: Floats

    @property
    def seconds_per_iteration(self) -> float:
        """Of learning."""
        return self.seconds / max(1, self.learned.iterations)


def loss(setup: Setup, w: Floats, rows: Floats) -> float:
    """Mean loss of a decision on rows [n, k]: minus the return, its CVaR, absolute or squared error."""
    if setup.problem in PORTFOLIOS:
        losses = -rows @ w
        if setup.problem == "po_mean":
            return float(losses.mean())
        # The mean of the worst share beta; the row at its edge counts in part (Rockafellar and Uryasev 2000).
        ordered = np.sort(losses)[::-1]
        weights = np.clip(setup.beta * len(losses) - np.arange(len(losses)), 0, 1)
        return float(weights @ ordered / weights.sum())
    errors = rows[:, -1] - rows[:, :-1] @ w
    return float(np.abs(errors).mean() if setup.problem == "reg_abs" else (errors**2).mean())


def solve(
    rows: Floats,
    setup: Setup,
    settings: Settings,
    seed: int,
    test: Floats | None = None,
    follow: Callable[[range], Iterable[int]] = iter,
) -> Solved:
    """Learns the set on rows [N, k] and judges all decisions on `test`.

    Raises:
        ValueError: every bootstrap equals the reference, so that the radius is 0.
        NotSolvedError: a cone program could not be solved.
    """
    with threadpool_limits(1):  # the matrices are small: threads would only wait for each other
        return _solve(rows, setup, settings, seed, test, follow)


def _solve(
    rows: Floats,
    setup: Setup,
    settings: Settings,
    seed: int,
    test: Floats | None,
    follow: Callable[[range], Iterable[int]],
) -> Solved:
    sample = ambiguity.Sample.of(rows, standardise=setup.standardise)
    problem, fit = _problem(rows, sample, setup, settings, seed)
    started = time.perf_counter()
    learned = learning.learn(problem, settings, follow)
    seconds = time.perf_counter() - started
    k = problem.data.dimension
    calibrated = ambiguity.calibrated(learned.L, problem.distances, problem.eps, settings.gamma)
    mahalanobis = ambiguity.calibrated(ambiguity.mahalanobis(fit), problem.distances, problem.eps, settings.gamma)
    started = time.perf_counter()
    cones.solve(problem.program(np.eye(k)))
    round_seconds = time.perf_counter() - started
    metrics: dict[str, Floats] = {
        "learned": learned.L, "calibrated": calibrated, "round": np.eye(k), "mahalanobis": mahalanobis,
    }  # fmt: skip
    decisions = {name: _robust(problem, L, test, setup) for name, L in metrics.items()}
    decisions |= _plain(problem.data, fit.rows, test, setup)
    others = ambiguity.counts(len(fit.rows), _FRESH, np.random.default_rng([seed, 2]))
    fresh = ambiguity.distances(fit, setup.problem, setup.p, others).values(learned.L)
    resamples = _resamples(len(fit.rows), setup, seed)
    return Solved(
        setup=setup,
        eps=problem.eps,
        L=problem.raw(learned.L),
        learned=learned,
        decisions=decisions,
        outside=float((problem.distances.values(learned.L) > problem.eps).mean()),
        fresh=float((fresh > problem.eps).mean()),
        seconds=seconds,
        round_seconds=round_seconds,
        rows=fit.rows,
        shifts=resamples @ fit.rows - fit.rows.mean(0),
    )


def _resamples(N: int, setup: Setup, seed: int) -> Floats:
    return ambiguity.counts(N, setup.n_bootstrap, np.random.default_rng([seed, 1]))


def _problem(
    rows: Floats, sample: ambiguity.Sample, setup: Setup, settings: Settings, seed: int
) -> tuple[learning.Problem, ambiguity.Sample]:
    """The bilevel problem, and the rows that it is fitted on."""
    fit, objective = sample, None
    if setup.upper_objective == "validation_loss":
        cut = len(rows) - max(1, round(_VALIDATION * len(rows)))
        fit, objective = replace(sample, rows=rows[:cut]), _on_rows(setup, rows[cut:])
    data = ambiguity.data_of(setup.problem, fit.rows, setup.beta, setup.lower, setup.upper)
    distances = ambiguity.distances(fit, setup.problem, setup.p, _resamples(len(fit.rows), setup, seed))
    eps = ambiguity.radius(distances, data.dimension, settings.gamma)
    if eps <= 0:
        raise ValueError("the radius is 0")
    sds = fit.rows.std(0, ddof=1)
    unit = float(sds.mean() if setup.problem in PORTFOLIOS else sds[-1]) if setup.standardise else 1.0
    return learning.Problem(data, distances, eps, fit.sd, unit, objective), fit


def _on_rows(setup: Setup, rows: Floats) -> learning.Objective:
    """Loss on rows held out and its gradient over w: what the certificate bounds, without a ball."""

    def objective(w: Floats) -> tuple[float, Floats]:
        if setup.problem in PORTFOLIOS:
            mean, covariance = ambiguity.moments(rows, np.full(len(rows), 1 / len(rows)))
            if setup.problem == "po_mean":
                return float(-mean @ w), -mean
            tail, sd = float(np.sqrt((1 - setup.beta) / setup.beta)), float(np.sqrt(w @ covariance @ w))
            return float(-mean @ w) + tail * sd, -mean + tail / sd * covariance @ w
        X, errors = rows[:, :-1], rows[:, -1] - rows[:, :-1] @ w
        if setup.problem == "reg_abs":
            return float(np.abs(errors).mean()), -X.T @ np.sign(errors) / len(rows)
        root = float(np.sqrt((errors**2).mean()))
        return root, -X.T @ errors / (len(rows) * root)

    return objective


def certificate(data: Data, value: float) -> float:
    """Of a program's value: squared for reg_sq."""
    return value**2 if data.problem == "reg_sq" else value


def _robust(problem: learning.Problem, L: Floats, test: Floats | None, setup: Setup) -> Decision:
    program = problem.program(L)
    solution = cones.solve(program)
    return _decision(solution.x[program.w], certificate(problem.data, solution.value), test, setup)


def _decision(w: Floats, value: float | None, test: Floats | None, setup: Setup) -> Decision:
    if setup.problem in PORTFOLIOS:  # an interior point method leaves weights a little off their bounds
        w = np.clip(w, setup.lower, setup.upper)
        w = w / w.sum() if setup.lower == 0 else w
    return Decision(w, value, None if test is None else loss(setup, w, test))


def _plain(data: Data, rows: Floats, test: Floats | None, setup: Setup) -> dict[str, Decision]:
    """Decisions that know no ball; their value is that on their own rows."""
    program = cones.build(data, np.eye(data.dimension), 0.0)
    solution = cones.solve(program)
    found: dict[str, Decision] = {
        "none": _decision(solution.x[program.w], certificate(data, solution.value), test, setup)
    }
    if setup.problem in PORTFOLIOS:
        k = data.size
        found["equal"] = _decision(np.full(k, 1 / k), None, test, setup)
        variance = replace(data, problem="po_cvar", mean=np.zeros(k))
        program = cones.build(variance, np.eye(k), 0.0)
        found["min_variance"] = _decision(cones.solve(program).x[program.w], None, test, setup)
    return found


def table(solved: Solved) -> pd.DataFrame:
    """A row for each set: what it promises, and what came out."""
    return pd.DataFrame(
        [
            {"set": BALLS[ball], "certificate": one.certificate, "loss_on_test": one.test}
            for ball, one in solved.decisions.items()
        ]
    )
