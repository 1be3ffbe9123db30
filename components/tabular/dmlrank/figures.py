"""The plots: intervals of the scores, who beats whom, weights, the plan, coverage and rate."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.dmlrank.choices import FUNCTIONALS, LOSS, WIN
from kfp_methods.components.tabular.dmlrank.estimating import Scores
from kfp_methods.components.tabular.dmlrank.pairs import Floats
from kfp_methods.components.tabular.dmlrank.running import Found
from kfp_methods.report import PALETTE, Figure, format_number, literal, new_figure

_MOST = 30


def forest(found: Found, one: Scores) -> Figure:
    """Debiased intervals, pointwise and simultaneous, with the plug-in's beside them."""
    order = np.argsort(one.theta)[-_MOST:]
    fig = new_figure(6.4, 0.34 * len(order) + 1.4)
    axes = fig.axes[0]
    y = np.arange(len(order))
    wide = one.simultaneous * one.se[order]
    axes.errorbar(one.theta[order], y, xerr=wide, fmt="none", color=PALETTE[0], alpha=0.4, label="all at once")
    axes.errorbar(one.theta[order], y, xerr=one.pointwise * one.se[order], fmt="o", color=PALETTE[0], linewidth=2.5,
                  markersize=4, label="debiased")  # fmt: skip
    axes.errorbar(one.plugin[order], y - 0.25, xerr=one.pointwise * one.plugin_se[order], fmt="s", color=PALETTE[1],
                  markersize=3, label="plug-in")  # fmt: skip
    if found.truth is not None and one.name == "borda":
        axes.plot(found.truth[order], y, "|", color="black", markersize=12, label="truth")
    axes.set_yticks(y, [literal(found.data.models[j][:40]) for j in order])
    axes.set(xlabel=FUNCTIONALS[one.name])
    axes.legend(fontsize="x-small")
    half = one.pointwise * one.se
    said = [
        f"{found.data.models[j]} {format_number(float(one.theta[j]))} ± {format_number(float(half[j]))}"
        for j in order[::-1]
    ]
    return Figure.from_matplotlib(
        fig,
        name=f"scores-{one.name.replace('_', '-')}",
        title=f"{FUNCTIONALS[one.name]}: {found.title}",
        alt=f"{'; '.join(said)}.",
        caption=f"The {len(order)} best." if len(order) < len(one.theta) else "Thin bars hold for all models at once.",
    )


def matrix(found: Found) -> Figure:
    """Mean probability that a row's model beats a column's, among those that are told apart by a verdict."""
    pairs, mu = found.data.pairs, found.nuisances.mu.mean(0)
    wins = pairs.square(mu[:, WIN]) + pairs.square(mu[:, LOSS]).T
    losses = wins.T
    order = np.argsort(-found.scores[0].theta)[:_MOST]
    shown = (wins / np.maximum(wins + losses, 1e-12))[np.ix_(order, order)]
    np.fill_diagonal(shown, np.nan)
    names = [literal(found.data.models[j][:20]) for j in order]
    return _heatmap(shown, names, "wins", "Who beats whom", "share of wins among decided verdicts, by the fitted model")


def _heatmap(
    values: Floats, names: list[str], name: str, title: str, what: str, *, colours: str = "RdBu", most: float = 1.0
) -> Figure:
    size = 0.42 * len(names) + 2.4
    fig = new_figure(max(4.6, size), max(4.0, size - 0.6))
    axes = fig.axes[0]
    image = axes.imshow(values, cmap=colours, vmin=0, vmax=most)
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize="x-small")
    axes.set_yticks(range(len(names)), names, fontsize="x-small")
    axes.grid(visible=False)
    if len(names) <= 12:
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                if np.isfinite(value):
                    axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7)
    fig.colorbar(image, ax=axes, shrink=0.8)
    best = ", ".join(names[:3])
    return Figure.from_matplotlib(
        fig,
        name=name,
        title=title,
        alt=f"A matrix of {what}; in the order of scores, first {best}.",
        caption=f"Rows against columns: {what}.",
    )


def weights(found: Found) -> Figure:
    """How much single verdicts count."""
    values = 1 / found.nuisances.pi[found.data.labelled]
    fig = new_figure(6.0, 3.0)
    axes = fig.axes[0]
    axes.hist(values, bins=40, color=PALETTE[0])
    axes.set(xlabel="weight of a verdict, 1 / labelling probability", ylabel="verdicts", yscale="log")
    return Figure.from_matplotlib(
        fig,
        name="weights",
        title="How much single verdicts count",
        alt=f"Weights from {format_number(float(values.min()))} to {format_number(float(values.max()))}, median "
        f"{format_number(float(np.median(values)))}.",
        caption="A few very large weights make intervals wide: pairs that are rarely labelled.",
    )


def plan(found: Found) -> Figure:
    """Mean probability of labelling each pair next."""
    assert found.plan is not None  # noqa: S101
    mean = found.data.pairs.square(found.plan.probability.mean(0))
    if not found.data.ordered:
        mean = np.maximum(mean, mean.T)
    order = np.argsort(-found.scores[0].theta)[:_MOST]
    shown = mean[np.ix_(order, order)]
    np.fill_diagonal(shown, np.nan)
    names = [literal(found.data.models[j][:20]) for j in order]
    what, most = "mean probability of labelling (row shown first)", float(np.nanmax(shown))
    return _heatmap(shown, names, "plan", "What to label next", what, colours="Blues", most=most)


def coverage(draws: pd.DataFrame) -> Figure:
    """Coverage of both kinds of intervals, by score."""
    by_score = draws.groupby("score", sort=False)[["coverage_plugin", "coverage_debiased"]].mean()
    fig = new_figure(5.6, 3.2)
    axes = fig.axes[0]
    x = np.arange(len(by_score))
    for at, (column, label) in enumerate((("coverage_plugin", "plug-in"), ("coverage_debiased", "debiased"))):
        axes.bar(x + 0.4 * at - 0.2, by_score[column], width=0.38, color=PALETTE[1 - at], label=label)
    axes.axhline(0.95, color="black", linestyle=":", label="95%")
    axes.set_xticks(x, [FUNCTIONALS[str(name)] for name in by_score.index], fontsize="small")
    axes.set(ylabel="intervals that hold the truth", ylim=(0, 1.05))
    axes.legend(fontsize="x-small", loc="lower right")
    said = [f"{name}: plug-in {row.iloc[0]:.2f}, debiased {row.iloc[1]:.2f}" for name, row in by_score.iterrows()]
    return Figure.from_matplotlib(
        fig,
        name="coverage",
        title="Do 95% intervals hold the truth?",
        alt=f"{'; '.join(said)}.",
        caption=f"Mean over models and {draws['seed'].nunique()} draws of the made world.",
    )


def rate(frame: pd.DataFrame) -> Figure:
    """Errors against the number of contexts."""
    means = frame.groupby(["score", "n"])["error"].mean().unstack("n")
    fig = new_figure(5.6, 3.4)
    axes = fig.axes[0]
    for number, (name, row) in enumerate(means.iterrows()):
        axes.plot(means.columns, row, "o-", color=PALETTE[number], label=FUNCTIONALS[str(name)])
        axes.plot(means.columns, row.iloc[0] * np.sqrt(means.columns[0] / means.columns.to_numpy(float)), ":",
                  color=PALETTE[number])  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="contexts n", ylabel="mean absolute error")
    axes.set_xticks(means.columns, [f"{n:,}" for n in means.columns])
    axes.minorticks_off()
    axes.legend(fontsize="x-small")
    said = [f"{name}: {', '.join(format_number(v) for v in row)}" for name, row in means.iterrows()]
    return Figure.from_matplotlib(
        fig,
        name="rate",
        title="Errors by number of contexts",
        alt=f"At n = {', '.join(str(n) for n in means.columns)}. {'; '.join(said)}.",
        caption="Dotted: 1 / sqrt(n).",
    )
