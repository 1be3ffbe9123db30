"""The plots: counts over time, budget and error, memory and error, memory by length, the attack, the game."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.dp_distinct_elements import attacks, bounds
from kfp_methods.components.tabular.dp_distinct_elements.attacks import Attack
from kfp_methods.components.tabular.dp_distinct_elements.choices import MECHANISMS
from kfp_methods.components.tabular.dp_distinct_elements.running import Case, Scaling
from kfp_methods.report import PALETTE, Figure, format_number, new_figure

_COLOURS = dict(zip(MECHANISMS, [*PALETTE, "black", "#888888"], strict=False))
_MOST_POINTS = 1_500
_MARKERS = "os^Dvx*P"


def counts(case: Case, name: str) -> Figure:
    """Published counts with two standard deviations of their noise, and the truth where it may be shown."""
    shown = [one for one in case.released if one.node_sd]
    fig = new_figure(6.4, 2.6 * len(shown) + 0.4, rows=len(shown), sharex=True)
    points = np.unique(np.linspace(0, case.stream.T - 1, min(case.stream.T, _MOST_POINTS)).astype(int))
    labels = case.labels[points]
    for axes, one in zip(fig.axes, shown, strict=True):
        colour = _COLOURS[one.name]
        low, high = one.counts - 2 * one.sd, one.counts + 2 * one.sd
        axes.fill_between(labels, low[points], high[points], color=colour, alpha=0.2, linewidth=0)
        axes.plot(labels, one.counts[points], color=colour, linewidth=0.9, label="published")
        if case.shows_truth:
            axes.plot(labels, case.stream.present[points], color="black", linewidth=1.2, label="true count")
        axes.set_title(MECHANISMS[one.name], fontsize="small")
        axes.set(ylabel="users present")
    fig.axes[0].legend(fontsize="x-small")
    fig.axes[-1].set(xlabel="step")
    said = [
        f"{MECHANISMS[one.name]}: noise of standard deviation {format_number(float(one.sd.min(initial=0)))} to "
        f"{format_number(float(one.sd.max(initial=0)))}"
        for one in shown
    ]
    return Figure.from_matplotlib(
        fig,
        name=f"counts-{name}",
        title=f"What would be published: {case.name}",
        alt=f"Counts over {case.stream.T:,} steps. {'; '.join(said)}.",
        caption="Bands: two standard deviations of the noise. What a cap leaves out is not in them.",
    )


def budgets(case: Case) -> Figure:
    """Error against the budget, one line for each cap."""
    error = "rmse" if case.shows_truth else "noise_rms"
    fig = new_figure(6.4, 3.8)
    axes, said = fig.axes[0], []
    for number, (W, part) in enumerate(case.budgets.groupby("W")):
        axes.plot(
            part["epsilon"],
            part[error],
            marker=_MARKERS[number % 8],
            color=PALETTE[number % len(PALETTE)],
            label=f"W = {W}",
        )
        said.append(f"W = {W}: {', '.join(format_number(v) for v in part[error])}")
    axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="RMSE, users" if case.shows_truth else "noise, users")
    sizes = sorted(case.budgets["epsilon"].unique())
    axes.set_xticks(sizes, [format_number(v) for v in sizes])
    axes.minorticks_off()
    if case.shows_truth and (typical := float(np.median(case.stream.present))) > 0:
        axes.axhline(typical, color="black", linestyle=":", linewidth=1, label="median count")
    axes.legend(fontsize="x-small", ncols=2)
    return Figure.from_matplotlib(
        fig,
        name="budgets",
        title=f"What a budget buys: {case.name}",
        alt=f"At epsilon {', '.join(format_number(v) for v in sizes)}. {'; '.join(said)}.",
        caption="The tree that remembers every user. Noise grows like the root of the cap; small ones leave users out.",
    )


def memory(case: Case) -> Figure:
    """Peak memory against error, a point for each mechanism and cap."""
    error = "rmse" if case.shows_truth else "noise_rms"
    fig = new_figure(6.4, 3.8)
    axes, said = fig.axes[0], []
    for name in case.frontier["mechanism"].unique().tolist():
        part = case.frontier[case.frontier["mechanism"] == name]
        kept = part[part[error] > 0] if error == "noise_rms" else part
        shown = kept.assign(error=kept[error].clip(lower=0.1))
        if shown.empty:
            continue
        axes.plot(shown["peak_bits"], shown["error"], "o-", markersize=4, color=_COLOURS[name], label=MECHANISMS[name])
        ends = format_number(float(shown["error"].min())), format_number(float(shown["error"].max()))
        said.append(f"{MECHANISMS[name]}: {shown['peak_bits'].min():,} bits or more, error {ends[0]} to {ends[1]}")
    axes.set(
        xscale="log", yscale="log", xlabel="peak memory, bits", ylabel="RMSE, users" if case.shows_truth else "noise"
    )
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig,
        name="memory",
        title=f"Memory and error: {case.name}",
        alt=f"{'; '.join(said)}.",
        caption="Along a line the cap rises. Errors below 0.1 are drawn at 0.1.",
    )


def lengths(scaling: Scaling) -> Figure:
    """Peak bits against T, with the shapes of both bounds."""
    fig = new_figure(6.4, 3.8)
    axes, said = fig.axes[0], []
    T = scaling.lengths.astype(float)
    for name, bits in scaling.bits.items():
        mean = bits.mean(0)
        axes.plot(T, mean, "o-", markersize=4, color=_COLOURS[name], label=MECHANISMS[name])
        said.append(f"{MECHANISMS[name]}: {', '.join(format_number(v) for v in mean)}")
    axes.plot(T, bounds.corollary(T), ":", color="black", label="T^(1/3), lower bound's shape")
    axes.plot(T, np.log2(T), "--", color="#888888", label="log2 T, without privacy")
    axes.set(xscale="log", yscale="log", xlabel="steps T", ylabel="peak memory, bits")
    axes.set_xticks(T, [f"{int(v):,}" for v in T])
    axes.minorticks_off()
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig,
        name="lengths",
        title="Memory by length of the stream",
        alt=f"At T = {', '.join(str(int(v)) for v in T)}. {'; '.join(said)}.",
        caption="Shape only: constants and logarithms of the bounds are omitted. Cap T^(2/3), at which the noise "
        "exceeds the count.",
    )


def roc(found: list[Attack], where: str) -> Figure:
    """True against false positive rates of the attack, by trial and exactly."""
    fig = new_figure(5.2, 4.4)
    axes, said = fig.axes[0], []
    grid = np.logspace(-3, 0, 200)
    for one in found:
        colour = _COLOURS[one.name]
        axes.plot(grid, attacks.true_positive_rate(one.mu, grid), color=colour, label=MECHANISMS[one.name])
        if len(one.others):
            at = np.logspace(np.log10(2 / len(one.others)), 0, 25)
            tpr = [(one.members > np.quantile(one.others, 1 - rate)).mean() for rate in at]
            axes.plot(at, tpr, "o", markersize=3, color=colour)
        rate = float(attacks.true_positive_rate(one.mu, np.array([0.01]))[0])
        said.append(f"{MECHANISMS[one.name]}: mu = {format_number(one.mu)}, {rate:.1%} found at 1% false alarms")
    axes.plot(grid, grid, ":", color="#888888", label="chance")
    axes.set(xscale="log", yscale="log", xlabel="false positive rate", ylabel="true positive rate", ylim=(1e-3, 1.1))
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig,
        name="roc",
        title=f"The attack on the worst user of {where}",
        alt=f"{'; '.join(said)}.",
        caption="Lines: the exact curve of the best test; dots: whole releases.",
    )


def game(avoided: dict[int, list[float]], k: int) -> Figure:
    """Heavy users' share of what is given away, by memory."""
    fig = new_figure(5.6, 3.4)
    axes = fig.axes[0]
    frame = pd.DataFrame(avoided)
    means = frame.mean()
    axes.plot(frame.columns, means, "o-", color=PALETTE[0])
    axes.fill_between(frame.columns, frame.min(), frame.max(), color=PALETTE[0], alpha=0.2, linewidth=0)
    axes.axvline(k, color="#888888", linestyle=":", label=f"{k} heavy users")
    axes.set(xlabel="ids remembered", ylabel="heavy share / share of all", ylim=(0, None))
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig,
        name="game",
        title="Memory buys avoidance",
        alt="; ".join(f"{B} ids: {format_number(float(v))}" for B, v in means.items()) + ".",
        caption="Band: all games. No mechanism takes part: players remember ids of users.",
    )
