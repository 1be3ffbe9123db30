"""The scalar results: means over the seeds of the sample, or of the one run on a user's points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kfp_methods.components.science.lhsd.assessment import Assessed
from kfp_methods.components.science.lhsd.component import LhsdMetrics


def metrics(parts: Sequence[Assessed]) -> LhsdMetrics:
    """All metrics; those of noise level and spectrum are of the first part (over its seeds)."""
    first = [one for one in parts if one.question.name == parts[0].question.name]
    known = [one for one in parts if one.question.lid_true is not None]
    known = [one for one in known if one.question.name == known[0].question.name]

    def error(name: str) -> float | None:
        return _mean(one.error(name) for one in known)

    def seconds(name: str) -> float | None:
        return _mean(one.seconds.get(name) for one in first)

    return LhsdMetrics(
        mae_lhsd=error("lhsd"),
        mae_lhsd_exact=error("lhsd_exact"),
        mae_noise_floor=_mean(one.noise_floor() for one in known),
        mae_flipd=error("flipd"),
        mae_nb=error("nb"),
        mae_lhsd_best_level=_best_level(known, "lhsd"),
        mae_flipd_best_level=_best_level(known, "flipd"),
        mae_nb_best_level=_best_level(known, "nb"),
        mae_mle=error("mle"),
        mae_twonn=error("twonn"),
        mae_lpca=error("lpca"),
        mae_ess=error("ess"),
        auroc_memorised=_mean(one.memorised_auroc() for one in parts if one.question.memorised is not None),
        auroc_memorised_flipd=_mean(
            one.memorised_auroc("flipd") for one in parts if one.question.memorised is not None
        ),
        median_lid=_of(first, lambda one: float(np.median(one.lid))),
        sigma_used=_of(first, lambda one: one.spectra.sigma),
        sigma_used_raw=_of(first, lambda one: one.spectra.sigma * one.model.scale),
        transition_mass=_of(first, _transition_mass),
        no_spectral_gap=int(any(no_gap(one) for one in first)) if first[0].search else None,
        asymmetry=_of(first, lambda one: one.spectra.asymmetry),
        mean_stderr=_of(first, lambda one: float(one.stderr.mean())),
        hvp_per_point=first[0].spectra.products,
        lhsd_point_seconds=_of(first, lambda one: one.seconds["lhsd"]),
        flipd_point_seconds=seconds("flipd"),
        nb_point_seconds=seconds("nb"),
    )


def no_gap(one: Assessed) -> bool:
    """Whether the search found no noise level at which the cut lies in a gap of the spectrum."""
    return one.search is not None and not one.search.has_gap


def _transition_mass(one: Assessed) -> float:
    """By the search's longer quadrature where there was one: a few Lanczos steps see less in the band than there is."""
    if one.search is not None:
        return one.search.within[one.search.chosen]
    return one.spectra.mass(one.settings.filter)[1]


def _best_level(parts: Sequence[Assessed], method: str) -> float | None:
    found = next((one.levels.least(method) for one in parts if one.levels), None)
    return found[0] if found else None


def _of(parts: Sequence[Assessed], measure: Callable[[Assessed], float]) -> float:
    return float(np.mean([measure(one) for one in parts]))


def _mean(values: Iterable[float | None]) -> float | None:
    """None unless every assessment measured it."""
    given = list(values)
    known = [value for value in given if value is not None]
    return float(np.mean(known)) if known and len(known) == len(given) else None
