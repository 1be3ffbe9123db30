"""The plots of an attribution: seconds against length, recovery of every score, mass by pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kfp_methods.components.language.flashtrace.choices import title
from kfp_methods.components.language.flashtrace.claims import scaled
from kfp_methods.components.language.flashtrace.running import Explained, Result
from kfp_methods.components.language.flashtrace.tables import mean
from kfp_methods.report import PALETTE, Figure, new_figure

_GREY = "#888888"


def timing_figure(result: Result) -> Figure | None:
    """Log-log seconds against target tokens of the three ways; None without timings."""
    timings = result.timings
    if not timings:
        return None
    M = [timing.M for timing in timings]
    medians = [timing.median for timing in timings]
    lines = {
        "token by token, all anew": [each.naive for each in medians],
        "token by token, shared work": [each.cached for each in medians],
        f"FlashTrace, {_hops(timings[0].hops)}": [each.span for each in medians],
    }
    fig = new_figure(6.4, 4.0)
    axes = fig.axes[0]
    for (label, seconds), colour in zip(lines.items(), (PALETTE[1], PALETTE[4], PALETTE[0]), strict=True):
        axes.plot(M, seconds, marker="o", color=colour, label=label)
    axes.set(xscale="log", yscale="log", xlabel="target tokens M", ylabel="seconds, forward pass excluded")
    axes.set_xticks(M, [f"{number:,}" for number in M])
    axes.minorticks_off()
    axes.legend(fontsize="small")
    last, ratios = timings[-1], medians[-1]
    words = "; ".join(f"{label}: {seconds[-1]:.2g} s" for label, seconds in lines.items())
    return Figure.from_matplotlib(
        fig,
        name="timing",
        title="What attributing a longer answer costs",
        alt=f"Seconds against target tokens on logarithmic axes. At M = {last.M:,}: {words}.",
        caption=f"On {result.timed_text}. At M = {last.M:,} the span at once is {ratios.ratio('naive'):.3g} times "
        f"faster than token by token, and {ratios.ratio('cached'):.3g} times faster than with shared work. "
        + scaled(timings),
    )


def recovery_figure(result: Result) -> Figure | None:
    """Bars of recovery with their standard errors, and the ceiling; None without known evidence."""
    known = [one for one in result.traces if one.recovery]
    if not known:
        return None
    names = list(known[0].recovery)
    values = np.array([[one.recovery[name] for name in names] for one in known])
    means = values.mean(0)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(len(names))
    ceiling = mean([one.ceiling for one in known if one.ceiling is not None])
    fig = new_figure(6.4, 0.45 * len(names) + 1.4)
    axes, places = fig.axes[0], np.arange(len(names))[::-1]
    axes.barh(places, means, xerr=error, color=[PALETTE[0], *[PALETTE[4]] * (len(names) - 1)], capsize=3)
    axes.axvline(ceiling, color=_GREY, linestyle="--", label=f"ceiling {ceiling:.2f}")
    axes.set_yticks(places, [title(name) for name in names])
    axes.set(xlabel="share of the evidence among the top tokens", xlim=(0, 1.02))
    axes.grid(axis="y", visible=False)
    axes.legend(fontsize="small", loc="lower right")
    words = ", ".join(f"{title(name)} {value:.2f}" for name, value in zip(names, means, strict=True))
    return Figure.from_matplotlib(
        fig,
        name="recovery",
        title="How much of the known evidence each score finds",
        alt=f"Bars of recovery: {words}; the ceiling is {ceiling:.2f}.",
        caption=f"Mean over {len(known)} traces with known evidence; bars: standard error over traces.",
    )


def mass_figure(traces: Sequence[Explained]) -> Figure:
    """Where each pass's mass lies: prompt, template, reasoning, output; means over the traces."""
    passes = min(len(one.attribution.remaining) for one in traces)
    segments = ("prompt", "template", "reasoning", "output")
    shares = np.array(
        [
            [
                np.mean([one.attribution.hops[k].cpu().numpy()[one.tokens.of(segment)].sum() for one in traces])  # type: ignore[arg-type]
                for segment in segments
            ]
            for k in range(passes)
        ]
    )
    fig = new_figure(6.4, 0.5 * passes + 1.5)
    axes, places = fig.axes[0], np.arange(passes)[::-1]
    left = np.zeros(passes)
    for segment, share, colour in zip(
        segments, shares.T, (PALETTE[0], PALETTE[4], PALETTE[5], PALETTE[1]), strict=True
    ):
        axes.barh(places, share, left=left, color=colour, label=segment)
        left += share
    names = ["answer"] + [f"hop {k}" for k in range(1, passes)]
    axes.set_yticks(places, names)
    axes.set(xlabel="share of the pass's mass", xlim=(0, 1))
    axes.grid(axis="y", visible=False)
    axes.legend(fontsize="small", ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    words = "; ".join(
        f"{name}: " + ", ".join(f"{segment} {share:.0%}" for segment, share in zip(segments, row, strict=True))
        for name, row in zip(names, shares, strict=True)
    )
    return Figure.from_matplotlib(
        fig,
        name="mass",
        title="Where each pass's attribution lies",
        alt=f"Stacked bars. {words}.",
        caption="The next hop hands on what lies on reasoning and output, or on reasoning alone where hops go only "
        "through that. What is then left outside the prompt is lost.",
    )


def _hops(hops: int) -> str:
    return f"{hops} hop{'s' * (hops != 1)}"
