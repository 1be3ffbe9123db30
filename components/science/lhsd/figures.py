"""The plots: estimates beside the truth, the spectrum with its cut, the search for the noise level, images."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np

from kfp_methods.components.science.lhsd.assessment import Assessed
from kfp_methods.components.science.lhsd.choices import TITLES
from kfp_methods.components.science.lhsd.noise_level import MOST_IN_BAND
from kfp_methods.report import PALETTE, Figure, format_number, new_figure

_GREY = "#888888"
_GALLERY = 12
_BINS = 60
_GROUPS = 12


def truth_figure(parts: Sequence[Assessed]) -> Figure | None:
    """Each method's estimates at each true dimension: mean and spread; None where the truth is unknown.

    More than 12 different dimensions are gathered into 12 groups.
    """
    truths = [one.question.lid_true for one in parts if one.question.lid_true is not None]
    if len(truths) < len(parts):
        return None
    truth = np.concatenate(truths)
    levels = np.unique(truth)
    groups = np.array_split(levels, min(len(levels), _GROUPS))
    methods = [name for name in parts[0].estimates if name != "lhsd_exact"]
    fig = new_figure(6.6, 4.2)
    axes, said = fig.axes[0], []
    for index, name in enumerate(methods):
        values = np.concatenate([one.estimates[name] for one in parts])
        known = [values[np.isin(truth, group) & ~np.isnan(values)] for group in groups]
        middle = [float(some.mean()) if len(some) else np.nan for some in known]
        spread = [float(some.std()) if len(some) else np.nan for some in known]
        places = np.arange(len(groups)) + (index - (len(methods) - 1) / 2) * 0.11
        colour = PALETTE[index % len(PALETTE)]
        axes.errorbar(places, middle, spread, fmt="o", capsize=2, markersize=5, label=TITLES[name], color=colour)
        said.append(f"{TITLES[name]}: {', '.join(format_number(value) for value in middle)}")
    for place, group in enumerate(groups):
        label = "truth" if place == 0 else "_nolegend_"
        axes.hlines(group.mean(), place - 0.45, place + 0.45, color=_GREY, linestyle="--", label=label)
    labels = [format_number(group[0]) if len(group) == 1 else f"{group[0]:g} to {group[-1]:g}" for group in groups]
    axes.set_xticks(range(len(groups)), labels)
    axes.set(xlabel="true dimension", ylabel="estimated dimension")
    axes.legend(fontsize="small", loc="upper left")
    return Figure.from_matplotlib(
        fig,
        name="truth",
        title="Estimates beside the true dimension",
        alt=f"Mean estimates at the true dimensions {', '.join(labels)}. {'; '.join(said)}.",
        caption=f"Points: mean over the scored points{_over(parts)}; bars: their standard deviation.",
    )


def dimension_figure(one: Assessed) -> Figure:
    """Histogram of the dimensions, memorised points apart where they are known."""
    fig = new_figure(6.0, 3.4)
    axes, flags = fig.axes[0], one.question.memorised
    bins = [*np.histogram_bin_edges(one.lid, bins=min(30, max(5, len(one.lid) // 4)))]
    if flags is None:
        axes.hist(one.lid, bins=bins)
        words = f"Median {np.median(one.lid):.3g}, from {one.lid.min():.3g} to {one.lid.max():.3g}."
    else:
        axes.hist([one.lid[~flags], one.lid[flags]], bins=bins, stacked=True, label=["others", "memorised"])
        axes.legend(fontsize="small")
        medians = [f"{np.median(one.lid[mask]):.3g}" if mask.any() else "none" for mask in (flags, ~flags)]
        words = f"Median {medians[0]} for memorised points, {medians[1]} for others."
    axes.set(xlabel="LHSD", ylabel="points")
    name = one.question.name
    return Figure.from_matplotlib(
        fig, name=f"dimensions-{name}", title=f"Local dimension of {name}", alt=f"Histogram. {words}", caption=words
    )


def spectrum_figure(one: Assessed) -> Figure:
    """Density of the Hessian's eigenvalues in units of 1/sigma^2, with the cut: the gap that LHSD relies on."""
    theta, weight = (tensor.numpy() for tensor in one.spectra.lanczos.nodes())
    size = np.abs(theta).ravel() * one.spectra.sigma**2
    floor = 1e-4
    edges = np.geomspace(floor, max(4.0, float(size.max()) * 1.01), _BINS + 1)
    share, _ = np.histogram(np.clip(size, floor, None), bins=edges, weights=weight.ravel() / weight[..., 0].size)
    fig = new_figure(6.0, 3.4)
    axes = fig.axes[0]
    axes.stairs(share, edges, fill=True, alpha=0.85)
    filter = one.settings.filter
    below, within, above = one.spectra.mass(filter)
    axes.axvline(filter.c, color=PALETTE[1], linewidth=1.5, label=f"cut c = {filter.c:g}")
    axes.set(xscale="log", yscale="log", xlabel="|eigenvalue| x sigma²", ylabel="share of the eigenvalues")
    axes.legend(fontsize="small")
    words = f"{below:.1%} of the eigenvalues lie below the band around the cut, {within:.2%} in it, {above:.1%} above."
    name = one.question.name
    return Figure.from_matplotlib(
        fig,
        name=f"spectrum-{name}",
        title=f"Spectrum of the log-density's Hessian at sigma = {one.spectra.sigma:.3g}, {name}",
        alt=f"Histogram on logarithmic axes. {words}",
        caption=f"{words} Tangent directions lie on the left, normal ones at 1; the first column holds all below.",
    )


def search_figure(one: Assessed) -> Figure | None:
    """Transition mass at each noise level tried; None where the level was given."""
    if one.search is None:
        return None
    found = one.search
    fig = new_figure(6.0, 3.4)
    axes = fig.axes[0]
    sigmas = np.asarray(found.sigmas)
    for values, label, colour in (
        (found.below, "below the band (tangent)", PALETTE[2]),
        (found.within, "in the band", PALETTE[1]),
        (found.above, "above it (normal)", PALETTE[0]),
    ):
        axes.plot(sigmas, np.clip(values, 1e-4, None), marker="o", markersize=4, label=label, color=colour)
    axes.axhline(MOST_IN_BAND, color=_GREY, linestyle=":", linewidth=1)
    axes.axvline(found.sigma, color="black", linewidth=1, linestyle="--", label=f"chosen: {found.sigma:.3g}")
    safe = [index for index, flag in enumerate(found.safe) if flag]
    for index in safe:
        low, high = (
            float(np.sqrt(sigmas[index] * sigmas[other])) for other in (max(index - 1, 0), _next(index, sigmas))
        )
        axes.axvspan(low, high, color=PALETTE[2], alpha=0.12, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="noise level sigma", ylabel="share of the eigenvalues")
    axes.legend(fontsize="small")
    tried = f"{len(sigmas)} levels from {sigmas[0]:.3g} to {sigmas[-1]:.3g} were tried"
    words = f"{tried}, {len(safe)} are safe (shaded); chosen is {found.sigma:.3g}."
    if not found.has_gap:
        words = f"{tried}; none has a gap at the cut, so the count depends on sigma. Chosen is {found.sigma:.3g}."
    return Figure.from_matplotlib(
        fig, name="search", title="How the noise level was chosen", alt=f"Three curves. {words}", caption=words
    )


def levels_figure(parts: Sequence[Assessed]) -> Figure | None:
    """Every method's error at every noise level; None where that was not measured."""
    one = next((one for one in parts if one.levels), None)
    if one is None or one.levels is None:
        return None
    fig = new_figure(6.0, 3.6)
    axes, said = fig.axes[0], []
    for index, (name, errors) in enumerate(one.levels.errors.items()):
        method, _, rule = name.partition(", ")
        label = TITLES[method] + (f" ({rule} of singular values)" if rule else "")
        style = "--" if rule == "ratio" else "-"
        axes.plot(one.levels.sigmas, errors, style, marker="o", markersize=4, label=label, color=PALETTE[index])
        said.append(f"{label}: {min(errors):.2f} at sigma = {one.levels.sigmas[int(np.argmin(errors))]:.2g}")
    axes.axvline(one.spectra.sigma, color="black", linewidth=1, linestyle=":", label="chosen by the spectrum")
    axes.set(xscale="log", yscale="log", xlabel="noise level sigma", ylabel="mean absolute error")
    axes.legend(fontsize="small")
    words = f"Least errors: {'; '.join(said)}."
    return Figure.from_matplotlib(
        fig,
        name="levels",
        title="Every method at every noise level",
        alt=f"Curves on logarithmic axes. {words}",
        caption=f"{words} Seed {one.seed}, {one.levels.n_points} points. Only the truth tells where an error is least.",
    )


def sweep_figure(parts: Sequence[Assessed]) -> Figure | None:
    """Error against the number of Lanczos steps; None where the truth is unknown."""
    steps = sorted(parts[0].sweep)
    if len(steps) < 2:
        return None
    errors = np.array([[one.sweep[m] for m in steps] for one in parts])
    fig = new_figure(6.0, 3.2)
    axes = fig.axes[0]
    axes.errorbar(steps, errors.mean(0), yerr=errors.std(0) if len(parts) > 1 else None, marker="o", capsize=3)
    axes.set(xscale="log", xlabel="Lanczos steps m", ylabel="mean absolute error", ylim=(0, None))
    axes.set_xticks(steps, [str(m) for m in steps])
    axes.minorticks_off()
    values = ", ".join(f"{value:.2f} at m = {m}" for m, value in zip(steps, errors.mean(0), strict=True))
    caption = f"The same probes at every m{_over(parts)}."
    return Figure.from_matplotlib(
        fig, name="steps", title="What more Lanczos steps buy", alt=f"Mean absolute error: {values}.", caption=caption
    )


def gallery(one: Assessed) -> Figure | None:
    """Images of the lowest and of the highest dimension; None where points are no images."""
    shape = one.question.shape
    image = shape if len(shape) == 2 else shape[1:] if len(shape) == 3 and shape[0] in (1, 3) else None
    if image is None:
        return None
    order = np.argsort(one.lid, kind="stable")
    count = min(_GALLERY, len(order) // 2)
    chosen = [*order[:count], *order[-count:]]
    fig = new_figure(7.0, 2.6, rows=2, columns=count)
    for axes, index in zip(fig.axes, chosen, strict=True):
        values = one.question.x[int(index)].numpy().reshape(shape)
        picture = values if len(shape) == 2 else np.moveaxis(values, 0, -1).squeeze()
        span = np.ptp(picture) or 1.0
        axes.imshow((picture - picture.min()) / span, cmap="gray_r" if picture.ndim == 2 else None)
        axes.set_title(f"{one.lid[index]:.1f}", fontsize="small")
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
    low, high = one.lid[order[:count]], one.lid[order[-count:]]
    spans = [f"{values[0]:.1f} to {values[-1]:.1f}" for values in (low, high)]
    alt = f"The {count} images of lowest dimension ({spans[0]}) above the {count} of highest ({spans[1]})."
    name = one.question.name
    return Figure.from_matplotlib(
        fig, name=f"gallery-{name}", title=f"Lowest (above) and highest (below) dimension, {name}", alt=alt
    )


def loss_figure(parts: Sequence[Assessed]) -> Figure | None:
    """Training losses; None where nothing was trained."""
    trained = [one for one in parts if one.losses]
    if not trained:
        return None
    fig = new_figure(6.0, 3.0)
    axes = fig.axes[0]
    names = list(dict.fromkeys(one.question.name for one in trained))
    for one in trained:
        first = one is next(other for other in trained if other.question.name == one.question.name)
        colour = PALETTE[names.index(one.question.name) % len(PALETTE)]
        axes.plot(
            np.linspace(0, 1, len(one.losses)),
            one.losses,
            color=colour,
            linewidth=1,
            label=one.question.name if first else None,
        )
    axes.set(yscale="log", xlabel="share of the training steps", ylabel="loss")
    axes.legend(fontsize="small")
    words = "; ".join(f"{one.question.name}, seed {one.seed}: {one.losses[-1]:.3g}" for one in trained)
    return Figure.from_matplotlib(
        fig, name="loss", title="Training of the score models", alt=f"Falling curves. Last losses: {words}."
    )


def _next(index: int, values: Sized) -> int:
    return min(index + 1, len(values) - 1)


def _over(parts: Sequence[Assessed]) -> str:
    return f", {len(parts)} seeds together" if len(parts) > 1 else ""
