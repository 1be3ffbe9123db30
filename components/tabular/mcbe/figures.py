"""The plots: error against complexity, who decides what, interventions."""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.mcbe.choices import MODELS
from kfp_methods.components.tabular.mcbe.measuring import SHARES, Measured
from kfp_methods.components.tabular.mcbe.running import Found
from kfp_methods.report import PALETTE, Figure, format_number, literal, new_figure

_COLOURS = dict(zip(MODELS, [*PALETTE, "black"], strict=False))


def name_of(one: Measured) -> str:
    """As people say it."""
    return f"{MODELS[one.kind]}, M = {one.M}" if one.M else MODELS[one.kind]


def trade_off(found: Found, what: str, tree: float) -> Figure:
    """Error against complexity, one point for each model; those without formulas as lines."""
    fig = new_figure(6.4, 4.0)
    axes, said = fig.axes[0], []
    measured = next(iter(found.measured.values()))
    for one in measured:
        said.append(f"{name_of(one)}: {what} {format_number(one.score)}, complexity {format_number(one.complexity)}")
        if one.complexity is None:
            if one.kind in ("black_box", "licem"):
                axes.axhline(1 - one.score, color=_COLOURS[one.kind], linestyle="--", linewidth=1, label=name_of(one))
            continue
        axes.plot([one.complexity], [1 - one.score], "o", color=_COLOURS[one.kind], markersize=8)
        axes.annotate(
            name_of(one), (one.complexity, 1 - one.score), xytext=(6, 6), textcoords="offset points", fontsize=7
        )
    axes.axhline(1 - tree, color=_COLOURS["tree"], linestyle=":", linewidth=1, label=MODELS["tree"])
    axes.set(xlabel="complexity: nodes of the formulas that decide a row", ylabel=f"1 - {what}", ylim=(0, None))
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig,
        name="trade-off",
        title="Error and complexity",
        alt=f"{'; '.join(said)}; tree on true concepts {format_number(tree)}.",
        caption="Down and left is better. Lines: models without a formula to read.",
    )


def routing(found: Found) -> Figure:
    """Which expert decides the rows of which group."""
    assert found.routed is not None  # noqa: S101
    used = np.flatnonzero(found.routed.max(0) > 0)
    fig = new_figure(1.0 + 0.8 * len(used), 3.4)
    axes = fig.axes[0]
    axes.imshow(found.routed[:, used], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(used)), [f"expert {m}" for m in used], fontsize="small")
    axes.set_yticks(range(len(found.data.groups)), [literal(name) for name in found.data.groups])
    axes.grid(visible=False)
    for i, row in enumerate(found.routed[:, used]):
        for j, value in enumerate(row):
            axes.text(
                j, i, f"{value:.0%}", ha="center", va="center", fontsize=8, color="white" if value > 0.5 else "black"
            )
    said = [
        f"{name}: {', '.join(f'expert {m} {found.routed[i, m]:.0%}' for m in used)}"
        for i, name in enumerate(found.data.groups)
    ]
    return Figure.from_matplotlib(
        fig, name="routing", title="Which expert decides what", alt=f"{'; '.join(said)}.",
        caption="Share of the test rows of each operator.",
    )  # fmt: skip


def interventions(found: Found, what: str) -> Figure:
    """Accuracy by the share of rows whose concepts are known."""
    fig = new_figure(5.6, 3.4)
    axes, said = fig.axes[0], []
    measured = next(iter(found.measured.values()))
    for number, one in enumerate(one for one in measured if one.curve):
        style = ("-", "--", ":")[number // len(PALETTE) % 3]
        axes.plot(SHARES, one.curve, f"o{style}", color=PALETTE[number % len(PALETTE)], label=name_of(one))
        said.append(f"{name_of(one)}: {', '.join(format_number(v) for v in one.curve)}")
    axes.set(xlabel="share of rows with true concepts", ylabel=what)
    axes.legend(fontsize="x-small")
    return Figure.from_matplotlib(
        fig, name="interventions", title="What knowing the concepts is worth", alt=f"{'; '.join(said)}.",
    )  # fmt: skip
