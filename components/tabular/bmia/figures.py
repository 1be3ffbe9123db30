"""The plots of an audit: ROC curves of all attacks, power against the number of samples, p-values of non-members."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kfp_methods.components.tabular.bmia.arrays import Flags, Floats
from kfp_methods.components.tabular.bmia.audit import Audit
from kfp_methods.components.tabular.bmia.choices import ATTACKS
from kfp_methods.components.tabular.bmia.roc import roc_curve
from kfp_methods.report import PALETTE, Figure, new_figure

_GRID = np.logspace(-3, 0, 121)
_GREY = "#888888"
_BINS = 50


def roc_figure(audits: Sequence[Audit], members: Sequence[Flags]) -> Figure | None:
    """Log-log ROC of every attack, true-positive rates averaged over the audited targets at each false-positive rate.

    `members` is each audit's true membership [n]. None when no attack ran.
    """
    attacks = audits[0].attacks
    if not attacks:
        return None
    fig = new_figure(7.2, 4.6)
    axes, at_1_percent = fig.axes[0], []
    for index, result in enumerate(attacks):
        pairs = zip(audits, members, strict=True)
        mean = np.mean([_curve(audit.attacks[index].scores, member) for audit, member in pairs], axis=0)
        style = "--" if result.n_references == 1 else "-"
        width = 2.4 if result.name == "bmia" else 1.3
        colour = PALETTE[ATTACKS.index(result.name)]
        axes.plot(_GRID, mean, style, color=colour, label=result.title, linewidth=width)
        at_1_percent.append(f"{result.title} {np.interp(0.01, _GRID, mean):.3f}")
    axes.plot(_GRID, _GRID, color=_GREY, linestyle=":", linewidth=1, label="guessing")
    floor = float(np.clip(1 / min(int((~member).sum()) for member in members), 1e-3, 0.5))
    axes.set(xscale="log", yscale="log", xlim=(floor, 1), ylim=(floor, 1))
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return Figure.from_matplotlib(
        fig,
        name="roc",
        title="How many members each attack finds",
        alt=f"ROC curves on logarithmic axes. True-positive rates at 1% false positives: {'; '.join(at_1_percent)}.",
        caption=f"{_over(len(audits))} Higher is a larger leak; dashed: one reference.",
    )


def sweep_figure(audits: Sequence[Audit], fpr: float = 0.01) -> Figure | None:
    """True-positive rate of one-reference BMIA against M, with the difference attack (LiRA, one reference) beside it.

    None where the rate cannot be resolved.
    """
    sizes = sorted(audits[0].sweep)
    rates = np.array([[audit.sweep[M].tpr(fpr) for M in sizes] for audit in audits], float)  # [targets, sizes]
    if not sizes or np.isnan(rates).any():
        return None
    mean, error = rates.mean(0), _standard_error(rates)
    fig = new_figure(6.0, 3.4)
    axes = fig.axes[0]
    axes.errorbar(sizes, mean, yerr=error, marker="o", capsize=3, label="BMIA, 1 reference")
    difference = _difference_attack(audits, fpr)
    if difference is not None:
        axes.axhline(difference, linestyle="--", color=_GREY, label="difference attack (LiRA, 1 reference)")
    axes.set(xscale="log", xlabel="posterior samples M", ylabel=f"TPR at {fpr:.0%} FPR", ylim=(0, None))
    axes.set_xticks(sizes, [f"{M}\n(a spread\nof 2 draws)" if M == 2 else str(M) for M in sizes])
    axes.minorticks_off()
    axes.legend(fontsize="small", loc="lower right")
    values = ", ".join(f"{value:.3f} at M = {M}" for M, value in zip(sizes, mean, strict=True))
    return Figure.from_matplotlib(
        fig,
        name="samples",
        title="What more posterior samples buy",
        alt=f"True-positive rate: {values}.",
        caption=f"{_over(len(audits))} Bars: standard error over targets. {_caveat(mean[0], difference)}",
    )


def p_value_figure(audits: Sequence[Audit], members: Sequence[Flags]) -> Figure:
    """Histogram of the non-members' p-values, which would be flat if the test's nominal level held."""
    fig = new_figure(6.0, 3.4)
    axes, levels = fig.axes[0], []
    for K, decision in audits[0].decisions.items():
        pairs = zip(audits, members, strict=True)
        p_values = np.concatenate([audit.decisions[K].test.p_value[~member] for audit, member in pairs])
        words = f"{K} reference{'s' if K > 1 else ''}"
        axes.hist(p_values, bins=_BINS, range=(0, 1), density=True, histtype="step", linewidth=1.5, label=words)
        levels.append(f"{np.mean(p_values < decision.alpha):.1%} with {words}")
    axes.axhline(1, color=_GREY, linestyle="--", label="if the test's level held")
    axes.set(xlabel="p-value", ylabel="density of non-members")
    axes.legend(fontsize="small")
    share = f"Share of the non-members with p < {audits[0].decision.alpha:g}: {', '.join(levels)}."
    caption = (
        f"{share} With one reference the test does not see how much models trained on other data differ, so far more "
        "non-members than intended have small p-values: the default decision is calibrated on known non-members."
    )
    return Figure.from_matplotlib(
        fig, name="p_values", title="p-values of non-members", alt=f"Histogram. {share}", caption=caption
    )


def _curve(scores: Floats, member: Flags) -> Floats:
    """True-positive rate at each false-positive rate of the grid: the largest that does not exceed it."""
    fpr, tpr, _ = roc_curve(scores[member], scores[~member])
    return tpr[np.searchsorted(fpr, _GRID + 1e-12, side="right") - 1]


def _standard_error(rates: Floats) -> Floats:
    """Over the first axis; 0 for a single row."""
    n = len(rates)
    return rates.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(rates.shape[1])


def _difference_attack(audits: Sequence[Audit], fpr: float) -> float | None:
    """Mean true-positive rate of LiRA with one reference; None when it did not run."""
    results = [audit.find("lira_fixed", 1) for audit in audits]
    rates = [rate for result in results if result and (rate := result.tpr(fpr)) is not None]
    return float(np.mean(rates)) if len(rates) == len(audits) else None


def _caveat(at_two: float, difference: float | None) -> str:
    words = "With M = 2 the spread is estimated from two draws"
    if difference is None or at_two >= difference:
        return f"{words}, which is noise for most records."
    worse = f"that is worse ({at_two:.3f}) than the difference attack, which uses no spread at all ({difference:.3f})"
    return f"{words}: {worse}."


def _over(n: int) -> str:
    return f"Mean over {n} audited targets." if n > 1 else "One audited target."
