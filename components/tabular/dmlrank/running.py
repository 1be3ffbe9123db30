"""From validated inputs to what was found: a user's ranking, or the sample's draws with known truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.dmlrank import baselines, estimating, plans, sample
from kfp_methods.components.tabular.dmlrank.baselines import Classical
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons
from kfp_methods.components.tabular.dmlrank.estimating import Nuisances, Scores, Settings
from kfp_methods.components.tabular.dmlrank.pairs import Floats
from kfp_methods.errors import InputError, Problem
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dmlrank.component import DmlrankInputs
    from kfp_methods.components.tabular.dmlrank.user_data import UserData
    from kfp_methods.context import Context

WORLD = 7  # the sample's world; draws differ by the run's seed
_GROUPS = 4
_JUDGES = {"none": None, "good": 0.2, "useless": 1.0}
_BUDGETS = (1.0, 2.0)
_CYCLE = ((0, 1), (1, 2), (2, 0))


@dataclass(frozen=True)
class Plan:
    """probability [n, P] of labelling, one draw of it, the factor lambda, and variance / that of uniform labelling."""

    probability: Floats
    drawn: np.ndarray
    lam: float
    ratio: float


@dataclass(frozen=True)
class Found:
    """title, data, nuisances, scores: of what is ranked. draws: of the sample, one row for each draw and score.

    rate: errors by number of contexts, group and score. judged: standard errors on digits by draw and judge. ratios: of
    predicted variances. cycles: a row for each draw.
    """

    title: str
    data: Comparisons
    nuisances: Nuisances
    scores: list[Scores]
    classical: Classical
    plan: Plan | None = None
    truth: Floats | None = None
    draws: pd.DataFrame = field(default_factory=pd.DataFrame)
    rate: pd.DataFrame = field(default_factory=pd.DataFrame)
    digits: pd.DataFrame = field(default_factory=pd.DataFrame)
    ratios: dict[str, float] = field(default_factory=dict)
    cycles: pd.DataFrame = field(default_factory=pd.DataFrame)


def settings_of(inputs: DmlrankInputs, device: str = "cpu") -> Settings:
    """As the inputs have them."""
    return Settings(
        functionals=tuple(dict.fromkeys(inputs.functional)),
        link=inputs.bt_link,
        model=inputs.mu_model,
        n_folds=inputs.n_folds,
        mu_floor=inputs.mu_floor,
        pi_floor=inputs.pi_floor,
        alpha=inputs.alpha_level,
        seed=inputs.seed,
        device=device,
    )


def ranked(data: Comparisons, settings: Settings) -> tuple[Nuisances, list[Scores]]:
    """Nuisances and all scores."""
    nuisances = estimating.cross_fit(data, settings)
    return nuisances, [estimating.debiased(data, nuisances, name, settings) for name in settings.functionals]


def on_users(inputs: DmlrankInputs, data: UserData, context: Context) -> Found:
    """Ranks the user's models, and plans further labels where there is a budget."""
    settings = settings_of(inputs, context.device if inputs.mu_model == "mlp" else "cpu")
    comparisons = data.comparisons
    nuisances = estimating.cross_fit(
        comparisons, settings, lambda folds: context.progress(folds, "folds of cross-fitting")
    )
    scores = [
        estimating.debiased(comparisons, nuisances, name, settings)
        for name in context.progress(settings.functionals, "scores")
    ]
    if nuisances.clipped_pi > 0.01:
        context.warn(
            f"{nuisances.clipped_pi:.1%} of the labelling probabilities are below pi_floor={settings.pi_floor:g}: some "
            "pairs were hardly ever labelled, and intervals lean on the model of verdicts"
        )
    classical = baselines.classical(comparisons, inputs.seed)
    plan = _plan(inputs, data, nuisances, settings) if inputs.plan_budget else None
    return Found("your models", comparisons, nuisances, scores, classical, plan)


def _plan(inputs: DmlrankInputs, data: UserData, nuisances: Nuisances, settings: Settings) -> Plan:
    comparisons, costs = data.comparisons, data.costs
    used = np.isfinite(costs)
    budget = float(inputs.plan_budget or 0) / len(comparisons.contexts)
    least, most = inputs.plan_alpha * costs[used].sum(), costs[used].sum()
    if not least <= budget <= most:
        n = len(comparisons.contexts)
        remedy = f"Give {least * n:.4g} to {most * n:.4g}, or another plan_alpha"
        problem = f"is {budget:.4g} for each context, outside what probabilities of {inputs.plan_alpha:g} to 1 cost"
        raise InputError(Problem("plan_budget", inputs.plan_budget, problem, remedy))
    _, J = settings.of(settings.functionals[0], comparisons)
    info = plans.information(comparisons.pairs, nuisances.mu, J)[:, used]
    chosen, lam = plans.a_optimal(info, costs[used], budget, inputs.plan_alpha)
    probability = np.zeros(comparisons.verdict.shape)
    probability[:, used] = chosen
    uniform = np.full_like(chosen, budget / costs[used].sum())
    drawn = np.random.default_rng([inputs.seed, 8]).random(probability.shape) < probability
    return Plan(probability, drawn, lam, plans.variance(info, chosen) / plans.variance(info, uniform))


def on_sample(inputs: DmlrankInputs, context: Context) -> Found:
    """The parts of the sample; what is ranked is the first draw of digits, or of the made world."""
    settings, parts = settings_of(inputs), dict.fromkeys(inputs.sample_parts)
    draws = _validity(inputs, settings, context) if "validity" in parts else pd.DataFrame()
    rate = _rate(inputs, settings, context) if "rate" in parts else pd.DataFrame()
    digits = _digits(inputs, settings, context) if "digits" in parts else pd.DataFrame()
    cycles = _cycles(inputs, settings, context) if "cycles" in parts else pd.DataFrame()
    ratios = _ratios(settings) if "plans" in parts else {}
    if "digits" in parts:
        title, data, truth = "classifiers of digits", sample.digits().draw(inputs.seed), sample.digits().borda
    else:
        world = sample.World.drawn(WORLD)
        title, data, truth = "the made world's models", world.draw(inputs.n_contexts, inputs.seed), None
    nuisances, scores = ranked(data, settings)
    classical = baselines.classical(data, inputs.seed)
    shown = truth if settings.functionals[0] == "borda" else None
    return Found(title, data, nuisances, scores, classical, None, shown, draws, rate, digits, ratios, cycles)


def _seeds(inputs: DmlrankInputs) -> range:
    return range(inputs.seed, inputs.seed + inputs.n_draws)


def _truths(world: sample.World, settings: Settings) -> dict[str, Floats]:
    return {name: world.truth(settings.of(name, world.draw(1, 0))[0]) for name in settings.functionals}


def _validity(inputs: DmlrankInputs, settings: Settings, context: Context) -> pd.DataFrame:
    world = sample.World.drawn(WORLD)
    truths, rows = _truths(world, settings), list[dict[str, Any]]()
    for seed in context.progress(_seeds(inputs), "draws of the made world"):
        nuisances, scores = ranked(world.draw(inputs.n_contexts, seed), settings)
        for one in scores:
            truth = truths[one.name]
            rows.append(
                {
                    "seed": seed,
                    "score": one.name,
                    "coverage_debiased": one.covers(truth).mean(),
                    "coverage_plugin": one.plugin_covers(truth).mean(),
                    "error_debiased": np.abs(one.theta - truth).mean(),
                    "error_plugin": np.abs(one.plugin - truth).mean(),
                    "se_debiased": one.se.mean(),
                    "se_plugin": one.plugin_se.mean(),
                    "mu_model": nuisances.picked.most_common(1)[0][0],
                }
            )
    return _kept(context, "validity", "The made world, by draw", rows)


def _kept(context: Context, name: str, title: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Known even if the run is interrupted later."""
    frame = pd.DataFrame(rows)
    context.keep(Table(name, title, frame))
    return frame


def _rate(inputs: DmlrankInputs, settings: Settings, context: Context) -> pd.DataFrame:
    """With the logistic model, which `auto` takes here: many draws, in groups, whose mean errors have a slope each."""
    world, plain = sample.World.drawn(WORLD), replace(settings, model="logistic")
    truths, rows = _truths(world, plain), list[dict[str, Any]]()
    sizes = sorted(set(inputs.rate_sizes))
    todo = [(n, seed) for n in sizes for seed in _seeds(inputs)]
    for n, seed in context.progress(todo, "draws for the rate"):
        for one in ranked(world.draw(n, seed), plain)[1]:
            error = np.abs(one.theta - truths[one.name]).mean()
            rows.append({"n": n, "group": seed % _GROUPS, "score": one.name, "error": error})
    return _kept(context, "rate", "Errors by number of contexts", rows)


def _digits(inputs: DmlrankInputs, settings: Settings, context: Context) -> pd.DataFrame:
    """Borda only: of one-hot verdicts the truth is known for what is linear in them."""
    digits, rows = sample.digits(), list[dict[str, Any]]()
    for seed in context.progress(_seeds(inputs)[: max(2, inputs.n_draws // 3)], "draws of digits"):
        row: dict[str, Any] = {"seed": seed}
        for name, error in _JUDGES.items():
            data = digits.draw(seed)
            if error is not None:
                data = replace(data, judge=digits.judge(seed, error))
            nuisances = estimating.cross_fit(data, settings)
            one = estimating.debiased(data, nuisances, "borda", settings)
            row |= {f"se_{name}": one.se.mean(), f"coverage_{name}": one.covers(digits.borda).mean()}
            if error is None:
                row["coverage_plugin"] = one.plugin_covers(digits.borda).mean()
        rows.append(row)
    return _kept(context, "digits", "Classifiers of digits, by draw", rows)


def _ratios(settings: Settings) -> dict[str, float]:
    """Predicted variance of A-optimal / of uniform labelling at the world's true probabilities."""
    world, found = sample.World.drawn(WORLD), {}
    data = world.draw(1_000, 0)
    mu, costs = world.mu(data.x), np.ones(data.pairs.size)
    for name in settings.functionals:
        info = plans.information(data.pairs, mu, settings.of(name, data)[1])
        for budget in _BUDGETS:
            chosen, _ = plans.a_optimal(info, costs, budget, 0.01)
            uniform = np.full_like(chosen, budget / data.pairs.size)
            found[f"{name}, {budget:g} a context"] = plans.variance(info, chosen) / plans.variance(info, uniform)
    return found


def _cycles(inputs: DmlrankInputs, settings: Settings, context: Context) -> pd.DataFrame:
    """Three ways to label: one pair of the cycle six times as often as the others."""
    plain = replace(settings, functionals=("borda", "rank_centrality"))
    rows = []
    for seed in context.progress(_seeds(inputs), "draws of the cycle"):
        leaders, covered = [], []
        for often in _CYCLE:
            data = sample.cycle(inputs.n_contexts, seed, often=often)
            leaders.append(int(np.argmax(baselines.classical(data, seed, draws=2).strength)))
            for one in ranked(data, plain)[1]:
                truth = plain.of(one.name, data)[0](data.pairs, sample.cycle_mu())[0]
                covered.append(one.covers(truth).mean())
        rows.append({"seed": seed, "leaders": len(set(leaders)), "coverage": float(np.mean(covered))})
    return _kept(context, "cycles", "The cycle, by draw", rows)
