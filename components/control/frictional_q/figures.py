"""The plots: what critics promised against what came, learning curves, and where proposals point."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

from kfp_methods.components.control.frictional_q.choices import METHODS, TITLES, MethodName
from kfp_methods.components.control.frictional_q.running import Experiment
from kfp_methods.report import PALETTE, Figure, new_figure

_GREY = "#666666"
_POINTS = 300


def promise_figure(found: Experiment) -> Figure | None:
    """Q1 against the discounted return in the first states, one panel a method; None without an environment."""
    methods = [method for method in METHODS if found.of(method)]
    if not found.measured:
        return None
    fig = new_figure(6.0, 1.0 + 1.9 * ((len(methods) + 1) // 2), rows=(len(methods) + 1) // 2, columns=2)
    panels, biases = list(fig.axes), []
    for axes, method in zip(panels, methods, strict=False):
        q = np.concatenate([one.values for one in found.of(method)])
        g = np.concatenate([one.returns for one in found.of(method)])
        shown = np.isfinite(q) & np.isfinite(g)
        step = max(1, int(shown.sum()) // _POINTS)
        axes.scatter(g[shown][::step], q[shown][::step], s=6, alpha=0.5, color=_colour(method), linewidths=0)
        low, high = axes.get_xlim()
        axes.plot([low, high], [low, high], color=_GREY, linewidth=1)
        bias = float(np.mean(q - g))
        axes.set_title(f"{TITLES[method]}: {bias:+.2g}", fontsize="medium")
        biases.append(f"{TITLES[method]} {bias:+.2f}")
    for axes in panels[len(methods) :]:
        axes.set_axis_off()
    fig.supxlabel("discounted return that followed", fontsize="medium")
    fig.supylabel("Q1, what the critic promised", fontsize="medium")
    return Figure.from_matplotlib(
        fig,
        name="promises",
        title="What each critic promised, and what came",
        alt=f"Scatter plots of Q1 against the discounted return. Mean difference: {'; '.join(biases)}.",
        caption="Each point is a first state of the evaluation; above the line the critic promised too much. "
        "In each title: the mean difference over all seeds. The scales differ between panels.",
    )


def curve_figure(found: Experiment) -> Figure | None:
    """Mean return against steps, with the range over seeds; None without an environment."""
    if not found.watched.curve:
        return None
    fig = new_figure(6.0, 3.6)
    axes, ends = fig.axes[0], []
    for method in METHODS:
        points = [point for point in found.watched.curve if point["method"] == method]
        steps = sorted({point["step"] for point in points})
        if not points:
            continue
        values = np.array([[p["return"] for p in points if p["step"] == step] for step in steps])
        axes.plot(steps, values.mean(1), marker="o", markersize=3, color=_colour(method), label=TITLES[method])
        axes.fill_between(steps, values.min(1), values.max(1), color=_colour(method), alpha=0.15, linewidth=0)
        ends.append(f"{TITLES[method]} {values[-1].mean():.2f}")
    logged = [value for value in found.behaviour if value is not None]
    for value, words, style in (
        (float(np.mean(logged)) if logged else None, "logged policy", "--"),
        (found.best, "best linear policy", ":"),
    ):
        if value is not None:
            axes.axhline(value, color=_GREY, linestyle=style, linewidth=1, label=words)
    axes.set(xlabel="updates" if found.offline else "steps", ylabel="mean return")
    everything = np.array([point["return"] for point in found.watched.curve])
    if everything.max() < 0 and everything.min() < 10 * everything.max():
        _spread_out(axes, abs(float(everything.max())))
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return Figure.from_matplotlib(
        fig,
        name="curve",
        title="Mean return while learning",
        alt=f"Learning curves. At the end: {'; '.join(ends)}.",
        caption="Mean and range over seeds, from a part of the first states of the final evaluation.",
    )


def angle_figure(found: Experiment) -> Figure | None:
    """Histogram of the angles between proposals and logged actions; None when no method proposes."""
    methods = [method for method in METHODS if found.of(method) and len(found.of(method)[0].angles)]
    if not methods:
        return None
    fig = new_figure(6.0, 3.4)
    axes, medians = fig.axes[0], []
    for method in methods:
        angles = np.concatenate([one.angles for one in found.of(method)])
        axes.hist(
            angles, bins=36, range=(0, 180), density=True, histtype="step", linewidth=1.5, color=_colour(method),
            label=TITLES[method],
        )  # fmt: skip
        medians.append(f"{TITLES[method]} {np.median(angles):.0f}°")
    axes.axvline(90, color=_GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="angle between proposal and logged action (degrees)", ylabel="density", xticks=range(0, 181, 30))
    axes.legend(fontsize="small", frameon=False)
    return Figure.from_matplotlib(
        fig,
        name="angles",
        title="Where the proposals point",
        alt=f"Histogram of angles. Medians: {'; '.join(medians)}.",
        caption="0°: along the logged action; 90°: a normal direction.",
    )


def _spread_out(axes: Axes, smallest: float) -> None:
    """A logarithmic scale for negative returns that differ by more than tenfold, labelled with plain numbers."""
    axes.set_yscale("symlog", linthresh=smallest)
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=smallest, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _colour(method: MethodName) -> str:
    return PALETTE[METHODS.index(method)]
