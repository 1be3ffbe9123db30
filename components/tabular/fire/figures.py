"""The plots: a curve with its band, error against the number of costly rows, predicted against true, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import gmean

from kfp_methods.components.tabular.fire.measuring import ALONE, AR1, FIRE, NARGP, POOLED, RESIDUAL, by
from kfp_methods.components.tabular.fire.predictive import Floats, Predictive
from kfp_methods.components.tabular.fire.running import Surrogate
from kfp_methods.components.tabular.fire.two_stage import Rows
from kfp_methods.report import PALETTE, Figure, format_number, literal, new_figure

_GREY = "#888888"
_BAND = np.array([0.1, 0.9])
_POINTS = 200
_LINES = {FIRE: (PALETTE[0], "o"), ALONE: (PALETTE[1], "s"), POOLED: (PALETTE[2], "D"),
          by(FIRE, "gp"): (PALETTE[4], "^"), by(FIRE, "pfn"): (PALETTE[4], "^"),
          AR1: (PALETTE[3], "v"), RESIDUAL: (PALETTE[5], "x"), NARGP: (_GREY, "+")}  # fmt: skip


def curve(made: Surrogate, rows: Rows, names: Sequence[str], title: str) -> Figure:
    """The prediction along the feature that moves it most, the others at their medians, with its 80% band."""
    middle, low, high = np.median(rows.X, axis=0), rows.X.min(0), rows.X.max(0)

    def along(feature: int) -> Floats:
        X = np.tile(middle, (_POINTS, 1))
        X[:, feature] = np.linspace(low[feature], high[feature], _POINTS)
        return X

    lines = [made.predict(along(feature)) for feature in range(len(names))]
    chosen = int(np.argmax([np.ptp(line.mean) for line in lines]))
    line, at = lines[chosen], along(chosen)[:, chosen]
    bottom, top = line.quantiles(_BAND).T
    fig = new_figure(6.4, 4.0)
    axes = fig.axes[0]
    axes.fill_between(at, bottom, top, color=PALETTE[0], alpha=0.2, linewidth=0, label="80% band")
    axes.plot(at, line.mean, color=PALETTE[0], label="predicted at the highest fidelity")
    alone = len(names) == 1
    if alone:
        highest = rows.level == rows.level.max()
        axes.plot(rows.X[~highest, 0], rows.y[~highest], ".", color=_GREY, markersize=4, label="cheap rows")
        axes.plot(rows.X[highest, 0], rows.y[highest], "o", color=PALETTE[1], label="costly rows")
    name = literal(names[chosen])
    axes.set(xlabel=name, ylabel="y")
    axes.legend(fontsize="small")
    said = ", ".join(f"{format_number(float(at[i]))}: {format_number(float(line.mean[i]))}" for i in (0, 99, 199))
    width = format_number(float(np.mean(top - bottom)))
    return Figure.from_matplotlib(
        fig,
        name="curve",
        title=title,
        alt=f"Predicted y along {names[chosen]}: at {said}. The 80% band is {width} wide on average.",
        caption="" if alone else "Along the feature that moves the prediction most; the others at their medians.",
    )


def budgets(scores: pd.DataFrame) -> Figure:
    """Error and likelihood against the number of costly rows, one line for each method."""
    fig = new_figure(6.4, 6.8, rows=2, sharex=True)
    counts, said = sorted(scores["n_high"].unique()), []
    for axes, (value, label) in zip(
        fig.axes, (("nrmse", "NRMSE, geometric mean"), ("nll_scaled", "negative log likelihood, median")), strict=True
    ):
        for name, (colour, marker) in _LINES.items():
            own = scores[scores["method"] == name]
            if own.empty:
                continue
            found = [_joined(own[own["n_high"] == n], value) for n in counts]
            axes.plot(counts, found, color=colour, marker=marker, label=name)
            said.append(f"{label}, {name}: {', '.join(format_number(one) for one in found)}")
        axes.set(ylabel=label)
    fig.axes[0].set_yscale("log")
    fig.axes[-1].set(xlabel="costly rows", xticks=counts, xticklabels=[str(n) for n in counts])
    fig.axes[0].legend(fontsize="x-small", ncols=2)
    return Figure.from_matplotlib(
        fig,
        name="budgets",
        title="Error and likelihood against costly rows",
        alt=f"At {', '.join(str(n) for n in counts)} costly rows. {'; '.join(said)}.",
        caption="Over problems, each the mean over seeds. Lower is better in both.",
    )


def _joined(own: pd.DataFrame, value: str) -> float:
    by_problem = own.groupby("problem")[value].mean()
    return float(gmean(by_problem.clip(lower=1e-9)) if value == "nrmse" else by_problem.median())


def against_truth(found: Mapping[str, Predictive], y: Floats, title: str) -> Figure:
    """Predicted against true on rows that were held out, with 80% bars."""
    fig = new_figure(5.4, 4.6)
    axes, said = fig.axes[0], []
    for number, (name, one) in enumerate(found.items()):
        low, high = one.quantiles(_BAND).T
        bars = np.maximum([one.mean - low, high - one.mean], 0)
        colour = PALETTE[number]
        axes.errorbar(y, one.mean, yerr=bars, fmt="os"[number % 2], color=colour, alpha=0.7, markersize=4,
                      label=name)  # fmt: skip
        said.append(f"{name}: root mean squared error {format_number(float(np.sqrt(np.mean((y - one.mean) ** 2))))}")
    ends = [float(y.min()), float(y.max())]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(xlabel="true y", ylabel="predicted y")
    axes.legend(fontsize="small")
    return Figure.from_matplotlib(
        fig, name="against-truth", title=title, alt=f"{len(y)} rows. {'; '.join(said)}.", caption="Bars: 80% intervals."
    )


def calibration(scores: pd.DataFrame) -> Figure:
    """How often 80% intervals hold, by method."""
    own = scores.groupby("method", sort=False)["coverage"].mean()
    fig = new_figure(6.0, 0.4 * len(own) + 1.2)
    axes = fig.axes[0]
    colours = [_LINES.get(str(name), (_GREY, ""))[0] for name in own.index]
    axes.barh([literal(str(name)) for name in own.index], own.to_numpy(), color=colours)
    axes.axvline(0.8, color="black", linestyle="--")
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of held-out rows within their 80% interval")
    said = ", ".join(f"{name} {format_number(float(share))}" for name, share in own.items())
    return Figure.from_matplotlib(
        fig, name="calibration", title="How often the 80% intervals hold", alt=f"Shares: {said}. Wanted: 0.8."
    )
