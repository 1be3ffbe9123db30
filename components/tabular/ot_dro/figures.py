"""The plots: learning, losses on test rows, the sets, certificates by year."""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.ot_dro.choices import BALLS
from kfp_methods.components.tabular.ot_dro.cones import Floats
from kfp_methods.components.tabular.ot_dro.running import Found
from kfp_methods.components.tabular.ot_dro.solving import Solved
from kfp_methods.report import PALETTE, Figure, format_number, literal, new_figure

_COLOURS = dict(zip(BALLS, PALETTE, strict=False))
_GREY = "#888888"


def learning(found: Found, gamma: float) -> Figure:
    """Certificate and share of bootstraps outside, by step."""
    history = found.main.learned.history
    fig = new_figure(6.4, 5.2, rows=2, sharex=True)
    top, bottom = fig.axes
    values = np.square(history["f"]) if found.main.setup.problem == "reg_sq" else np.array(history["f"])
    top.plot(values, color=_COLOURS["learned"])
    top.axhline(values[0], color=_COLOURS["round"], linestyle="--", label="round ball")
    top.set(ylabel="certificate")
    top.legend(fontsize="x-small")
    bottom.plot(history["outside"], color=_COLOURS["learned"])
    bottom.axhline(gamma, color=_GREY, linestyle=":", label="gamma")
    bottom.set(xlabel="step", ylabel="share outside", ylim=(0, None))
    bottom.legend(fontsize="x-small")
    least = format_number(float(values.min()))
    return Figure.from_matplotlib(
        fig,
        name="learning",
        title=f"Learning the set: {found.title}",
        alt=f"The certificate goes from {format_number(float(values[0]))} with the round ball to {least} at its "
        f"lowest; the share of bootstraps outside ends at {history['outside'][-1]:.2f}.",
        caption="The kept step is the one of least penalised objective.",
    )


def losses(found: Found) -> Figure:
    """Loss on test rows of each set's decision, with its certificate."""
    shown = {name: (one.test, one.certificate) for name, one in found.main.decisions.items() if one.test is not None}
    fig = new_figure(6.4, 0.45 * len(shown) + 1.2)
    axes = fig.axes[0]
    for at, (name, (test, certificate)) in enumerate(shown.items()):
        axes.barh(at, test, color=_COLOURS[name], height=0.6)
        if certificate is not None:
            axes.plot([certificate], [at], marker="|", markersize=14, color="black", linestyle="")
    axes.set_yticks(range(len(shown)), [BALLS[name] for name in shown])
    axes.invert_yaxis()
    axes.set(xlabel="loss on test rows (bar) and certificate (stroke)")
    said = [
        f"{BALLS[name]}: {format_number(test)} (certificate {format_number(certificate)})"
        for name, (test, certificate) in shown.items()
    ]
    return Figure.from_matplotlib(
        fig,
        name="losses",
        title="What came out on other rows",
        alt=f"{'; '.join(said)}.",
        caption="Lower is better. For the decision without robustness the stroke is the loss on its own rows.",
    )


def sets(found: Found) -> Figure:
    """Shifts of the mean within the learned set and the round ball, in the two coordinates that are stretched most."""
    solved = found.main
    inverse = np.linalg.inv(solved.L @ solved.L.T)
    sd = solved.rows.std(0, ddof=1) if solved.setup.standardise else np.ones(len(solved.L))
    stretch = np.sqrt(np.diag(inverse)) / sd
    i, j = sorted(np.argsort(-stretch, kind="stable")[:2])
    fig = new_figure(5.4, 4.6)
    axes = fig.axes[0]
    axes.plot(solved.shifts[:, i], solved.shifts[:, j], ".", color=_GREY, markersize=5, label="bootstraps of the mean")
    for name, matrix in (("learned", inverse), ("round", np.diag(sd**2))):
        curve = solved.eps * _ellipse(np.asarray(matrix[np.ix_([i, j], [i, j])], np.float64))
        axes.plot(curve[0], curve[1], color=_COLOURS[name], label=BALLS[name])
    axes.set(xlabel=f"shift of {literal(found.names[i][:30])}", ylabel=f"shift of {literal(found.names[j][:30])}")
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig,
        name="sets",
        title="How far the mean may move",
        alt=f"In the coordinates {found.names[i]} and {found.names[j]} the learned set reaches "
        f"{format_number(solved.eps * float(np.sqrt(inverse[i, i])))} and "
        f"{format_number(solved.eps * float(np.sqrt(inverse[j, j])))}, the round ball "
        f"{format_number(solved.eps * float(sd[i]))} and {format_number(solved.eps * float(sd[j]))}.",
        caption="Projections on the two coordinates in which the learned set is widest against the round ball. The set "
        "holds laws, and the mean is what a shift of all rows moves.",
    )  # fmt: skip


def _ellipse(matrix: Floats) -> Floats:
    """The border of {d: d' matrix^-1 d <= 1} [2, points]."""
    angles = np.linspace(0, 2 * np.pi, 181)
    return np.asarray(np.linalg.cholesky(matrix) @ np.array([np.cos(angles), np.sin(angles)]))


def years(by_year: dict[int, Solved]) -> Figure:
    """Certificates and losses of the next year, by year."""
    fig = new_figure(6.4, 3.8)
    axes, said = fig.axes[0], []
    numbers = list(by_year)
    for name in ("learned", "round"):
        certificates = np.array([one.decisions[name].certificate for one in by_year.values()], np.float64)
        realised = np.array([one.decisions[name].test for one in by_year.values()], np.float64)
        axes.plot(numbers, certificates, "--", color=_COLOURS[name], label=f"certificate, {BALLS[name]}")
        axes.plot(numbers, realised, "o", color=_COLOURS[name], label=f"next year's loss, {BALLS[name]}")
        said.append(f"{BALLS[name]}: certificates {', '.join(format_number(v) for v in certificates)}; losses "
                    f"{', '.join(format_number(v) for v in realised)}")  # fmt: skip
    axes.set(xlabel="year that the set is learned on", ylabel="loss, % a week")
    axes.legend(fontsize="x-small", ncols=2)
    return Figure.from_matplotlib(
        fig,
        name="years",
        title="Stocks, year by year",
        alt=f"{numbers[0]} to {numbers[-1]}. {'; '.join(said)}.",
        caption="A loss is minus the mean return. Dots above their dashed line broke the certificate.",
    )
