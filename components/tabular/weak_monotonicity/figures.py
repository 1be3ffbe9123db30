"""The plots: excess risk against labels, moduli and covering numbers, the frontier's risks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.weak_monotonicity.choices import LEARNERS
from kfp_methods.components.tabular.weak_monotonicity.running import Found
from kfp_methods.report import PALETTE, Figure, format_number, literal, new_figure

_GREY = "#888888"
_STYLES = {
    "adaptive": (PALETTE[0], "-", "o"), "erm_all": (PALETTE[1], "-", "s"), "erm_pareto": (PALETTE[2], "-", "^"),
    "erm_cover": (PALETTE[3], "-", "D"), "exp_weights": (PALETTE[4], "--", "v"), 
    "multiple_source": (PALETTE[5], "--", "x"),
    "minmax": ("black", ":", ""), "best_mean": (_GREY, ":", ""), "uniform": (_GREY, "--", ""),
}  # fmt: skip
_MOST_SHOWN = 15


def curves(found: Found) -> Figure:
    """Excess risk against the number of labels, one panel for each number of sources."""
    sources = sorted(found.curve["K"].unique())
    fig = new_figure(6.4, 3.0 * len(sources) + 0.6, rows=len(sources), sharex=True)
    said = []
    for axes, K in zip(fig.axes, sources, strict=True):
        part = found.curve[found.curve["K"] == K]
        for name, line in part.groupby("learner", sort=False):
            colour, style, marker = _STYLES[str(name)]
            axes.plot(line["n"], line["mean"], color=colour, linestyle=style, marker=marker, markersize=4,
                      label=LEARNERS[name])  # fmt: skip
            if "q25" in line and name in ("adaptive", "erm_all"):
                axes.fill_between(line["n"], line["q25"], line["q75"], color=colour, alpha=0.12, linewidth=0)
            said.append(f"{K} sources, {LEARNERS[name]}: {', '.join(format_number(v) for v in line['mean'])}")
        axes.set(xscale="log", ylabel="excess risk", ylim=(0, None))
        axes.set_title(f"{K} source task{'s' * int(K > 1)}", fontsize="small")
    sizes = sorted(found.curve["n"].unique())
    fig.axes[-1].set(xlabel="labelled examples of the target", xticks=sizes, xticklabels=[str(n) for n in sizes])
    fig.axes[-1].minorticks_off()
    fig.axes[0].legend(fontsize="x-small", ncols=2)
    return Figure.from_matplotlib(
        fig,
        name="curves",
        title="What labels buy: risk above that of the best model",
        alt=f"At {', '.join(str(n) for n in sizes)} labels. {'; '.join(said)}.",
        caption="Evaluation on the finite pool of examples; bands are quartiles over choices of tasks, not confidence "
        "intervals." if "q25" in found.curve else "Subsamples of your labels, judged on all of them.",
    )  # fmt: skip


def moduli(found: Found, table: pd.DataFrame) -> Figure:
    """How far dominance on the sources can be trusted, and how many models cover the frontier."""
    known = "upper" in table
    fig = new_figure(6.4, 6.0 if known else 3.2, rows=2 if known else 1, sharex=True)
    axes = fig.axes[-1]
    axes.step(table["t"], table["covering_number"], where="post", color=PALETTE[0])
    axes.set(xlabel="t, a difference of source risks", ylabel="models needed, N(t)")
    said = f"N(t) falls from {table['covering_number'].iloc[0]} to {table['covering_number'].iloc[-1]}."
    if known:
        top = fig.axes[0]
        top.plot(
            table["t"], table["upper"], color=PALETTE[1], label="W(t): most that a model at most t worse loses (99%)"
        )
        top.plot(table["t"], table["lower"], color=PALETTE[2], label="V(t): least that a model t better gains (1%)")
        top.axhline(0, color=_GREY, linewidth=0.8)
        top.set(ylabel="difference of target risks")
        top.legend(fontsize="x-small")
        said += f" W(0) is {format_number(table['upper'].iloc[0])}, V(0) is {format_number(table['lower'].iloc[0])}."
    return Figure.from_matplotlib(
        fig,
        name="moduli",
        title=f"Does dominance carry over to {found.target}?",
        alt=said,
        caption="W at 0 is how far the target contradicts dominance; where V crosses 0, the margin of dominance can be "
        "trusted." if known else "",
    )  # fmt: skip


def parallel(found: Found) -> Figure:
    """Source risks of the models on the frontier, one line each."""
    frontier = np.flatnonzero(found.pool.on_frontier)
    shown = frontier[np.argsort(found.pool.R[frontier].mean(1))][:_MOST_SHOWN]
    fig = new_figure(max(5.0, 0.8 * len(found.tasks) + 3), 3.8)
    axes = fig.axes[0]
    for number, i in enumerate(shown):
        axes.plot(range(len(found.tasks)), found.pool.R[i], marker="o", markersize=3,
                  color=PALETTE[number % len(PALETTE)], linestyle=("-", "--", ":")[number // len(PALETTE) % 3],
                  label=literal(found.models[i][:30]))  # fmt: skip
    axes.set_xticks(range(len(found.tasks)), [literal(task[:20]) for task in found.tasks], rotation=30, ha="right")
    axes.set(ylabel="source risk")
    axes.legend(fontsize="xx-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    best = ", ".join(found.models[i] for i in shown[:5])
    return Figure.from_matplotlib(
        fig,
        name="frontier-risks",
        title="The models on the frontier",
        alt=f"{len(frontier)} of {len(found.models)} models are on the frontier, by mean risk: {best}.",
        caption=f"The {len(shown)} of lowest mean risk." if len(frontier) > len(shown) else "",
    )
