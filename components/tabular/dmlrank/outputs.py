"""From what was found to the method's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.dmlrank import figures, intervals, verdicts
from kfp_methods.components.tabular.dmlrank.choices import FUNCTIONALS, FunctionalName
from kfp_methods.components.tabular.dmlrank.component import DmlrankMetrics, DmlrankOutputs
from kfp_methods.components.tabular.dmlrank.estimating import Scores
from kfp_methods.components.tabular.dmlrank.intervals import Compared
from kfp_methods.components.tabular.dmlrank.running import Found
from kfp_methods.report import Figure, Report, Table, Text, format_number
from kfp_methods.wording import counted

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dmlrank.component import DmlrankInputs

_MOST_PLANNED = 5_000_000
_JUDGED = (
    "With a judge among the features, Borda scores are what they are without. Scores of bt and rank_centrality become "
    "those of preferences given the judge's opinion too, another quantity, and their intervals may widen."
)


def outputs(inputs: DmlrankInputs, found: Found) -> DmlrankOutputs:
    """All that a run leaves."""
    compared = {
        one.name: intervals.compare(one.theta, one.covariance, inputs.alpha_level, inputs.seed) for one in found.scores
    }
    scores = pd.concat([_scores(found, one, compared[one.name]) for one in found.scores], ignore_index=True)
    first = found.scores[0]
    level = f"{1 - inputs.alpha_level:.0%}"
    caption = (
        f"lo, hi: {level} interval of one score; sim: of all at once; rank: by differences beyond doubt, all at once."
    )
    if first.name == "bt":
        caption += f" Link: {inputs.bt_link}."
    shown = ["model", "score", "lo", "hi", "lo_sim", "hi_sim", "rank_lo", "rank_hi"]
    top = scores.loc[scores["functional"] == first.name, shown]
    parts: list[Figure | Table | Text] = [
        Table("ranking", f"{FUNCTIONALS[first.name]}: {found.title}", top, caption, highlight=True),
        *(figures.forest(found, one) for one in found.scores),
    ]
    if found.data.judge is not None:
        parts.insert(1, Text("About the judge", _JUDGED))
    parts += [figures.matrix(found), figures.weights(found)]
    if found.plan is not None:
        parts.append(figures.plan(found))
    parts += _sample_parts(found)
    baselines = _baselines(found)
    parts.append(
        Table("classical", "What leaderboards do today", baselines, "95% intervals by bootstrap over contexts.")
    )
    return DmlrankOutputs(
        report=Report(_summary(inputs, found, compared[first.name]), tuple(parts)),
        metrics=_metrics(found, compared[first.name]),
        claims=verdicts.results(found),
        scores=Table("scores", "Scores", scores),
        pairwise=Table("pairwise", "Differences", _pairwise(found, compared)),
        covariance=Table("covariance", "Covariance of the scores", _covariance(found)),
        plan=Table("plan", "What to label next", _plan(found)),
        baselines=Table("baselines", "Classical scores", baselines),
        draws=Table("draws", "Draws of the sample", found.draws),
    )


def _sample_parts(found: Found) -> list[Figure | Table | Text]:
    parts: list[Figure | Table | Text] = []
    if len(found.draws):
        means = found.draws.groupby("score", sort=False).mean(numeric_only=True).drop(columns="seed").reset_index()
        parts += [figures.coverage(found.draws), Table("validity", "The made world, means over draws", means)]
    if len(found.rate):
        parts.append(figures.rate(found.rate))
    if len(found.digits):
        parts.append(
            Table("digits", "Classifiers of digits, by draw", found.digits, "se: mean standard error by judge.")
        )
    return parts


def _scores(found: Found, one: Scores, compared: Compared) -> pd.DataFrame:
    best, worst = intervals.ranks(compared, len(one.theta))
    columns = {"functional": one.name, "model": list(found.data.models), "score": one.theta, "se": one.se}
    for suffix, quantile in (
        ("", one.pointwise),
        ("_sim", one.simultaneous),
        ("_bonferroni", one.bonferroni),
        ("_ellipsoid", one.chi),
    ):
        columns |= {f"lo{suffix}": one.theta - quantile * one.se, f"hi{suffix}": one.theta + quantile * one.se}
    frame = pd.DataFrame(columns | {"rank_lo": best, "rank_hi": worst})
    return frame.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)


def _pairwise(found: Found, compared: Mapping[FunctionalName, Compared]) -> pd.DataFrame:
    names = np.array(found.data.models, object)
    frames = [
        pd.DataFrame(
            {
                "functional": name,
                "model": names[one.a],
                "other": names[one.b],
                "difference": one.difference,
                "se": one.se,
                "lo_sim": one.difference - one.half,
                "hi_sim": one.difference + one.half,
                "better": np.where(one.better == 1, names[one.a], np.where(one.better == -1, names[one.b], "")),
            }
        )
        for name, one in compared.items()
    ]
    return pd.concat(frames, ignore_index=True)


def _covariance(found: Found) -> pd.DataFrame:
    frames = []
    for one in found.scores:
        frame = pd.DataFrame(one.covariance, columns=list(found.data.models))
        frame.insert(0, "functional", one.name)
        frame.insert(1, "model", list(found.data.models))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _plan(found: Found) -> pd.DataFrame:
    """Pairs with a probability, or of very many those that were drawn."""
    if found.plan is None:
        return pd.DataFrame(columns=["context_id", "model_a", "model_b", "propensity", "drawn"])
    kept = found.plan.probability > 0
    rows, at = np.nonzero(kept if kept.sum() <= _MOST_PLANNED else found.plan.drawn)
    names, pairs = np.array(found.data.models, object), found.data.pairs
    return pd.DataFrame(
        {
            "context_id": np.array(found.data.contexts, object)[rows],
            "model_a": names[pairs.j[at]],
            "model_b": names[pairs.k[at]],
            "propensity": found.plan.probability[rows, at],
            "drawn": found.plan.drawn[rows, at],
        }
    )


def _baselines(found: Found) -> pd.DataFrame:
    one = found.classical
    frame = pd.DataFrame(
        {
            "model": list(found.data.models), "bradley_terry": one.strength, "lo": one.low, "hi": one.high,
            "elo": one.elo, "win_rate": one.win_rate,
        }
    )  # fmt: skip
    return frame.sort_values("bradley_terry", ascending=False, kind="stable").reset_index(drop=True)


def _summary(inputs: DmlrankInputs, found: Found, compared: Compared) -> str:
    one, names = found.scores[0], found.data.models
    order = np.argsort(-one.theta, kind="stable")
    best, _ = intervals.ranks(compared, len(names))
    level = f"{1 - inputs.alpha_level:.0%}"
    leaders = [names[j] for j in order if best[j] == 1]
    first = names[order[0]]
    if len(leaders) == 1:
        text = f"{first} leads {found.title} beyond doubt ({level}, all comparisons at once)"
    else:
        text = (
            f"{first} leads {found.title}, but {counted(len(leaders), 'model')} may be first: {', '.join(leaders[:5])}"
        )
    half = one.pointwise * one.se[order[0]]
    told = int((compared.better != 0).sum())
    sentences = [
        f"{text}; the score '{FUNCTIONALS[one.name]}' is {format_number(float(one.theta[order[0]]))} ± "
        f"{format_number(float(half))}. {told} of {counted(len(compared.better), 'pair')} of models are told apart, "
        f"from {int(found.data.labelled.sum()):,} verdicts on {len(found.data.contexts):,} contexts."
    ]
    sentences.append(_next(found, compared, order, best))
    if (ratio := _width_ratio(one)) is not None:
        sentences.append(
            f"Intervals that trust the model of verdicts (plug-in) would be {ratio:.0%} as wide, too short."
        )
    if len(found.draws):
        plugin, covered = found.draws[["coverage_plugin", "coverage_debiased"]].mean()
        sentences.append(
            f"On a made world 95% intervals hold the truth in {covered:.0%}, plug-in ones in {plugin:.0%}."
        )
    return " ".join(sentences)


def _width_ratio(one: Scores) -> float | None:
    """Of the plug-in's intervals to the debiased ones; None where nothing varies."""
    width = float(one.se.mean())
    return float(one.plugin_se.mean()) / width if width > 0 else None


def _next(found: Found, compared: Compared, order: np.ndarray, best: np.ndarray) -> str:
    """Which comparison to collect next: that of the plan, or of the pair nearest to a verdict among the leaders."""
    names = found.data.models
    if found.plan is not None:
        mean = found.plan.probability.mean(0)
        at, pairs = int(np.argmax(mean)), found.data.pairs
        return (
            f"Label next, by the plan ({int(found.plan.drawn.sum()):,} drawn): most of all {names[pairs.j[at]]} "
            f"against {names[pairs.k[at]]}; the same budget spread evenly would leave {1 / found.plan.ratio:.2f} times "
            "the variance of new labels."
        )
    open_pairs = np.flatnonzero(compared.better == 0)
    if not len(open_pairs):
        return "No pair of models is left open."
    leading = np.flatnonzero((compared.better == 0) & ((compared.a == order[0]) | (compared.b == order[0])))
    candidates = leading if len(leading) else open_pairs
    nearness = np.abs(compared.difference[candidates]) / np.maximum(compared.half[candidates], 1e-300)
    at = int(candidates[np.argmax(nearness)])
    return (
        f"Label next: {names[compared.a[at]]} against {names[compared.b[at]]}, the open question that is nearest to an "
        "answer; plan_budget plans for all."
    )


def _metrics(found: Found, compared: Compared) -> DmlrankMetrics:
    one, nuisances = found.scores[0], found.nuisances
    values: dict[str, float | None] = {
        "n_contexts": float(len(found.data.contexts)),
        "n_comparisons": float(found.data.labelled.sum()),
        "mean_ci_width": float(2 * one.pointwise * one.se.mean()),
        "plugin_width_ratio": _width_ratio(one),
        "max_weight": float((1 / nuisances.pi[found.data.labelled]).max()),
        "clipped_share": nuisances.clipped_pi,
        "mu_clipped_share": nuisances.clipped_mu,
        "mu_logloss": nuisances.log_loss,
        "mu_logistic_share": nuisances.picked["logistic"] / nuisances.picked.total(),
        "significant_share": float((compared.better != 0).mean()),
    }
    if len(found.draws):
        values |= {name: float(found.draws[name].mean()) for name in ("coverage_debiased", "coverage_plugin")}
        borda = found.draws[found.draws["score"] == "borda"]
        if len(borda):
            values |= {name: float(borda[name].mean()) for name in ("error_debiased", "error_plugin")}
    return DmlrankMetrics.model_validate(values)
