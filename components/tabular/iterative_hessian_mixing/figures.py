"""The plots: what each budget buys, errors of all mechanisms, the advantage over AdaSSP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing.choices import METHODS, TITLES, MethodName
from kfp_methods.components.tabular.iterative_hessian_mixing.decision import SURE, Decision, rmse
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import Measured
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats
from kfp_methods.report import PALETTE, Figure, format_number, literal, new_figure

_GREY = "#888888"
_MARKERS = "osD^v"


def decision(found: Decision) -> Figure:
    """Test error of one release against the budget, between that of least squares and that of no model."""
    measured = found.measured
    epsilons = measured.settings.epsilons
    ols = float(rmse(measured, "ols", epsilons[0])[0])
    none = measured.case.unit * float(np.sqrt(measured.case.test_variance))
    fig = new_figure(6.4, 4.2)
    axes = fig.axes[0]
    for name in measured.methods:
        if name not in ("ihm", "adassp", "linear_mixing"):
            continue
        errors = [rmse(measured, name, epsilon) for epsilon in epsilons]
        style = _style(name)
        axes.plot(epsilons, [float(np.median(e)) for e in errors], label=TITLES[name], **style)
        if name == "ihm":
            low, high = ([float(np.quantile(e, q)) for e in errors] for q in (1 - SURE, SURE))
            axes.fill_between(epsilons, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.axhline(none, color=_GREY, linestyle=":", label="no model: the mean")
    axes.axhline(ols, color="black", linestyle="--", label=TITLES["ols"])
    if found.recommended is not None:
        axes.axvline(found.recommended, color=PALETTE[2], linewidth=1.5, label="smallest budget that is enough")
    axes.set(xscale="log", xlabel="privacy budget epsilon", ylim=(0, 2 * max(none, ols)))
    axes.set_ylabel(f"test error (RMSE) of {literal(measured.case.target)}")
    axes.legend(fontsize="small", loc="upper right")
    medians = ", ".join(
        f"{format_number(float(np.median(rmse(measured, 'ihm', e))))} at {format_number(e)}" for e in epsilons
    )
    words = f"Least squares {format_number(ols)}, no model {format_number(none)}."
    return Figure.from_matplotlib(
        fig,
        name="decision",
        title=f"What each budget buys, {measured.case.name}",
        alt=f"Median error of a release by iterative Hessian mixing: {medians}. {words}",
        caption="Band: 8 of 10 releases. Errors above twice that of no model are cut off.",
    )


def errors(measured: Measured, number: int) -> Figure:
    """Mean squared error on the training part and, where there is one, on the test part, with 95% bands."""
    both = measured.case.test is not None
    fig = new_figure(6.4, 6.4 if both else 3.8, rows=2 if both else 1, sharex=True)
    epsilons, said = measured.settings.epsilons, []
    for axes, part in zip(fig.axes, ("train", "test"), strict=False):
        for name in measured.methods:
            values = [_of(measured, name, epsilon, part) for epsilon in epsilons]
            mean = np.array([one.mean() for one in values])
            style = _style(name)
            axes.plot(epsilons, mean, label=TITLES[name], **style)
            half = np.array([1.96 * one.std(ddof=1) / np.sqrt(len(one)) if len(one) > 1 else 0.0 for one in values])
            axes.fill_between(epsilons, mean - half, mean + half, color=style["color"], alpha=0.2, linewidth=0)
            said.append(f"{part}, {TITLES[name]}: {', '.join(format_number(float(v)) for v in mean)}")
        if part == "train":
            axes.axhline(measured.case.null, color=_GREY, linestyle=":", label="predicting 0")
        top = 6 * max(measured.case.null, float(measured.case.test_variance) if part == "test" else 0.0)
        axes.set(xscale="log", yscale="log", ylabel=f"{part} error (MSE, scaled)")
        axes.set_ylim(top=top)
    fig.axes[-1].set_xlabel("privacy budget epsilon")
    fig.axes[0].legend(fontsize="x-small", loc="upper right", ncols=2)
    return Figure.from_matplotlib(
        fig,
        name=f"errors-{number}",
        title=f"Every mechanism on {measured.case.name}",
        alt=f"Mean squared errors at epsilon {', '.join(map(format_number, epsilons))}. {'; '.join(said)}.",
        caption="Bands: 95% intervals of the mean over releases. Far larger errors are cut off.",
    )


def ratios(measured: Sequence[Measured]) -> Figure | None:
    """AdaSSP's excess training error / that of iterative Hessian mixing; None without AdaSSP."""
    fig = new_figure(6.4, 3.8)
    axes, said = fig.axes[0], []
    for number, one in enumerate(measured):
        if "adassp" not in one.methods:
            return None
        epsilons = one.settings.epsilons
        values = [
            (one.cells["adassp", e].train.mean() - one.case.least) / (one.cells["ihm", e].train.mean() - one.case.least)
            for e in epsilons
        ]
        axes.plot(
            epsilons, values, marker=_MARKERS[number % 5], color=PALETTE[number % len(PALETTE)], label=one.case.name
        )
        said.append(f"{one.case.name}: {', '.join(format_number(float(value)) for value in values)}")
    axes.axhline(1, color=_GREY, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="privacy budget epsilon", ylabel="excess error, AdaSSP / ours")
    axes.legend(fontsize="small")
    return Figure.from_matplotlib(
        fig,
        name="ratios",
        title="Advantage over AdaSSP",
        alt=f"Ratios at epsilon {', '.join(map(format_number, measured[0].settings.epsilons))}. {'; '.join(said)}.",
        caption="Excess: training error above least squares'. Above 1, iterative Hessian mixing fits better.",
    )


def _of(measured: Measured, name: MethodName, epsilon: float, part: str) -> Floats:
    cell = measured.cells[name, epsilon]
    values = cell.train if part == "train" else cell.test
    assert values is not None  # noqa: S101 (asked for where there is a test part)
    return values


def _style(name: MethodName) -> dict[str, Any]:
    if name == "ols":
        return {"color": "#000000", "linestyle": "--"}
    number = [*METHODS].index(name)
    return {"color": PALETTE[number], "marker": _MARKERS[number], "markersize": 4}
