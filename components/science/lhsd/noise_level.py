"""The noise level is chosen where the spectrum has a gap and the cut lies in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from kfp_methods.components.science.lhsd.estimate import Quadrature, spectra
from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.score_models import ScoreModel

MOST_IN_BAND = 0.02
MOST_OF_A_SIDE = 0.25
_PROBES, _STEPS, _POINTS = 4, 20, 16

Follow = Callable[[Iterable[float], str], Iterator[float]]


@dataclass(frozen=True)
class Search:
    """The spectrum's shares at each noise level tried.

    Attributes:
        sigmas: rising [S].
        below: share of the eigenvalues below the band around the cut (tangent directions) [S].
        within: in the band: the transition mass M [S].
        above: above it (normal directions) [S].
        safe: a gap: fewer than 2% in the band, fewer than a quarter of those on either side, and at least half a
            direction on either side [S].
        chosen: index of the chosen level.
    """

    sigmas: tuple[float, ...]
    below: tuple[float, ...]
    within: tuple[float, ...]
    above: tuple[float, ...]
    safe: tuple[bool, ...]
    chosen: int

    @property
    def sigma(self) -> float:
        return self.sigmas[self.chosen]

    @property
    def has_gap(self) -> bool:
        return any(self.safe)


def search(
    model: ScoreModel,
    x: Tensor,
    filter: Filter,
    quadrature: Quadrature,
    *,
    n_levels: int = 12,
    follow: Follow = lambda items, label: iter(items),
    label: str = "searching the noise level",
) -> Search:
    """Tries noise levels evenly spaced in log sigma on up to 16 of the points x [N, D] (the model's coordinates).

    Chosen is the middle of the longest run of safe levels. Without one, the least transition mass beside the smaller
    side decides: the least mass alone is found where all eigenvalues lie on one side and nothing is counted.
    """
    some = x[np.linspace(0, len(x) - 1, min(_POINTS, len(x))).round().astype(int)]
    settings = replace(quadrature, probes=_PROBES, steps=min(_STEPS, x.shape[1]), n_noise=0)
    levels = np.geomspace(*model.sigma_range, n_levels)
    known = dict.fromkeys(model.level(float(np.clip(level, *model.sigma_range))).b for level in levels)
    found = [spectra(model, some, sigma, settings).mass(filter) for sigma in follow(list(known), label)]
    below, within, above = zip(*found, strict=True)
    smaller = [min(low, high) for low, high in zip(below, above, strict=True)]
    one = 0.5 / x.shape[1]
    safe = tuple(
        mass < MOST_IN_BAND and mass < MOST_OF_A_SIDE * side and side >= one
        for mass, side in zip(within, smaller, strict=True)
    )
    return Search(tuple(known), below, within, above, safe, _choose(within, smaller, safe))


def _choose(within: Sequence[float], smaller: Sequence[float], safe: Sequence[bool]) -> int:
    if any(safe):
        start, length = max(_runs(safe), key=lambda run: run[1])
        return start + (length - 1) // 2
    share = [mass / side if side > 0 else float("inf") for mass, side in zip(within, smaller, strict=True)]
    return min(range(len(share)), key=lambda index: (share[index], within[index]))


def _runs(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Start and length of each run of true flags."""
    start = 0
    for index, flag in enumerate((*flags, False)):
        if not flag:
            if index > start:
                yield start, index - start
            start = index + 1
