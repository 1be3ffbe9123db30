"""The plots of an audit: ROC curves of all attacks, power against the number of samples, p-values of non-members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.attacks import AttackResult
from kfp_methods.components.tabular.bmia.audit import Audit
from kfp_methods.components.tabular.bmia.roc import roc_curve

from kfp_methods.components.tabular.bmia.choices import ATTACKS
from kfp_methods.report import PALETTE, Figure, new_figure

_GRID = np.logspace(-3, 0, 121)


def roc_figure(audits: Sequence[Audit], members: Sequence[Flags]) -> Figure:
    """Log-log ROC of every attack, true-positive rates averaged over the audited targets at each false-positive rate."""
    fig = new_figure(7.2, 4.6)
    axes = fig.axes[0]
    colours = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(ATTACKS)}
    ends = []
    for index, result in enumerate(audits[0].attacks):
        curves = [
            _curve(audit.attacks[index].scores, member) for audit, member in zip(audits, members, strict=True)
        ]
        mean = np.mean(curves, axis=0)
        style = "--" if result.n_references == 1 else "-"
        width = 2.4 if result.name == "bmia" else 1.3
        axes.plot(_GRID, mean, style, color=colours[result.name], label=result.title, linewidth=width)
        ends.append(f"{result.title} {np.interp(0.01, _GRID, mean):.3f}")
    axes.plot(_GRID, _GRID, color="#888888", linestyle=":", linewidth=1, label="guessing")
    floor = max(1e-3, 1 / max(1, min(int((~member).sum()) for member in members)))
    axes.set(xscale="log", yscale="log", xlim=(floor, 1), ylim=(floor, 1))
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    alt = f"ROC curves on logarithmic axes. True-positive rates at 1% false positives: {'; '.join(ends)}."
    caption = (
        f"Mean over {len(audits)} audited target{'s' if len(audits) > 1 else ''}. Higher is a larger leak; dashed: one reference."
    )
    return Figure.from_matplotlib(
        fig, name="roc", title="How many members each attack finds", alt=alt, caption=caption
    )


def sweep_figure(audits: Sequence[Audit], fpr: float = 0.01) -> Figure | None:
    """True-positive rate of one-reference BMIA against M, with the difference attack (LiRA, one reference) beside it."""
    sizes = sorted(audits[0].sweep)
    rates = np.array(
        [[_rate(audit.sweep[M], fpr) for M in sizes] for audit in audits], float
    )  # [targets, sizes]
    if not sizes or np.isnan(rates).any():
        return None
    mean, error = (
        rates.mean(0),
        rates.std(0, ddof=1) / np.sqrt(len(rates)) if len(rates) > 1 else np.zeros(len(sizes)),
    )
    fig = new_figure(6.0, 3.4)
    axes = fig.axes[0]
    axes.errorbar(sizes, mean, yerr=error, marker="o", capsize=3, label="BMIA, 1 reference")
    lira = [
        _rate(a, fpr)
        for audit in audits
        for a in audit.attacks
        if (a.name, a.n_references) == ("lira_fixed", 1)
    ]
    if lira and None not in lira:
        axes.axhline(
            float(np.mean(np.array(lira, float))),
            linestyle="--",
            color="#888888",
            label="difference attack (LiRA, 1 reference)",
        )
    axes.set(xscale="log", xlabel="posterior samples M", ylabel=f"TPR at {fpr:.0%} FPR")
    axes.set_xticks(sizes, [str(M) for M in sizes])
    axes.legend(fontsize="small")
    values = ", ".join(f"{value:.3f} at M = {M}" for M, value in zip(sizes, mean, strict=True))
    caption = (
        "With M = 2 the spread is estimated from two draws, which can be worse than the difference attack."
    )
    return Figure.from_matplotlib(
        fig,
        name="samples",
        title="What more posterior samples buy",
        alt=f"True-positive rate: {values}.",
        caption=caption,
    )


def p_value_figure(p_values: Floats, alpha: float, level: float) -> Figure:
    """Histogram of the non-members' p-values, which would be flat if the test's nominal level held."""
    fig = new_figure(6.0, 3.0)
    axes = fig.axes[0]
    axes.hist(p_values, bins=50, range=(0, 1))
    axes.axhline(len(p_values) / 50, color="#888888", linestyle="--", label="a flat law")
    axes.set(xlabel="p-value", ylabel="non-members")
    axes.legend(fontsize="small")
    alt = f"Histogram of {len(p_values)} p-values; a share of {level:.3f} lies below {alpha:g}."
    caption = (
        f"{level:.1%} of the non-members have p < {alpha:g}: the spread between reference models is not in the test "
        "with one reference, which is why the default decision is calibrated on known non-members."
    )
    return Figure.from_matplotlib(
        fig, name="p_values", title="p-values of non-members", alt=alt, caption=caption
    )


def _curve(scores: Floats, member: Flags) -> Floats:
    """True-positive rate at each false-positive rate of the grid: the largest that does not exceed it."""
    fpr, tpr, _ = roc_curve(scores[member], scores[~member])
    return tpr[np.searchsorted(fpr, _GRID + 1e-12, side="right") - 1]


def _rate(result: AttackResult, fpr: float) -> float | None:
    rates: Mapping[float, float | None] = {rate.fpr: rate.tpr for rate in result.rates}
    return rates.get(fpr)
