"""Bar distributions: a density on the line that is constant between borders, with Student-t tails outside.

The output of a prior-fitted network (Müller et al., "Transformers can do Bayesian inference", ICLR 2022): classes
stand for intervals of the target, and so any shape of predictive distribution. The tails have 3 degrees of freedom:
half-normal ones put a target that lies well outside at an astronomically small density.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_HALF = 0.7648923  # half the mass of |t| with 3 degrees of freedom lies below it
_MEAN, _SECOND = 2 * math.sqrt(3) / math.pi, 3.0  # of |t|: E|t| and E t^2
_LOG_PEAK = math.log(4 / (math.pi * math.sqrt(3)))  # of the density of |t| at 0


@dataclass(frozen=True)
class Bars:
    """Borders of the bins, float64 [k], increasing.

    With tails there are k + 1 bins: below the first border, the k - 1 between, above the last one. A tail is half a
    Student t with 3 degrees of freedom, half of whose mass lies within the width of its neighbour. Without tails
    there are the k - 1 bins between.
    """

    borders: Tensor
    tails: bool = True

    def __post_init__(self) -> None:
        if self.borders.dim() != 1 or len(self.borders) < 2 or not bool((self.borders.diff() > 0).all()):
            raise ValueError("borders must increase, and be two or more")

    @property
    def n_bins(self) -> int:
        """Number of bins, tails included."""
        return len(self.borders) + (1 if self.tails else -1)

    def to(self, device: torch.device | str) -> Bars:
        """The same, elsewhere."""
        return Bars(self.borders.to(device), self.tails)

    def log_density(self, logits: Tensor, y: Tensor) -> Tensor:
        """Log density at y [...] of the distribution whose bins have softmax(`logits` [..., n_bins])."""
        borders = self.borders.to(y.dtype)
        widths = borders.diff()
        position = torch.searchsorted(borders, y.contiguous())  # 0: below all, k: above all
        inner = (position - 1).clamp(0, len(widths) - 1)
        density = -widths[inner].log()
        if self.tails:
            bins = position
            density = torch.where(position == 0, self._tail(borders[0] - y, widths[0]), density)
            density = torch.where(position == len(borders), self._tail(y - borders[-1], widths[-1]), density)
        else:
            bins = inner
            density = density.masked_fill((position == 0) | (position == len(borders)), -math.inf)
        log_p = functional.log_softmax(logits, -1)
        return log_p.gather(-1, bins[..., None])[..., 0] + density

    @staticmethod
    def _tail(distance: Tensor, width: Tensor) -> Tensor:
        scale = width / _HALF
        return _LOG_PEAK - scale.log() - 2 * torch.log1p((distance / scale).clamp_min(0) ** 2 / 3)

    def moments(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [...] of the distribution whose bins have probabilities `p` [..., n_bins]."""
        low, high = self.borders[:-1], self.borders[1:]
        means, seconds = (low + high) / 2, (low**2 + low * high + high**2) / 3
        if self.tails:
            ends, scales = self.borders[[0, -1]], self._scales()
            signs = torch.tensor([-1.0, 1.0], dtype=p.dtype, device=p.device)
            tail_means = ends + signs * _MEAN * scales
            tail_seconds = ends**2 + 2 * signs * ends * _MEAN * scales + _SECOND * scales**2
            means = torch.cat([tail_means[:1], means, tail_means[1:]])
            seconds = torch.cat([tail_seconds[:1], seconds, tail_seconds[1:]])
        mean = p @ means
        return mean, (p @ seconds - mean**2).clamp_min(0)

    def quantiles(self, p: Tensor, levels: Tensor) -> Tensor:
        """Quantiles [..., len(levels)] at `levels` in (0, 1), for bins with probabilities `p` [..., n_bins]."""
        ends = p.cumsum(-1)
        ends = ends / ends[..., -1:]
        wanted = levels.expand(*p.shape[:-1], -1).contiguous()
        bins = torch.searchsorted(ends.contiguous(), wanted).clamp_max(p.shape[-1] - 1)
        start = functional.pad(ends, (1, 0)).gather(-1, bins)
        mass = ends.gather(-1, bins) - start
        share = ((wanted - start) / mass.clamp_min(1e-300)).clamp(0, 1)
        inner = bins - 1 if self.tails else bins
        inside = inner.clamp(0, len(self.borders) - 2)
        found = self.borders[inside] + share * self.borders.diff()[inside]
        if not self.tails:
            return found
        scales = self._scales()
        found = torch.where(bins == 0, self.borders[0] - scales[0] * _beyond(1 - share), found)
        return torch.where(bins == self.n_bins - 1, self.borders[-1] + scales[1] * _beyond(share), found)

    def _scales(self) -> Tensor:
        """Of the two tails."""
        return self.borders.diff()[[0, -1]] / _HALF


def _beyond(share: Tensor) -> Tensor:
    """The quantile at `share` of |t| with 3 degrees of freedom."""
    from scipy.stats import t

    levels = (1 + share.clamp(0, 1 - 1e-12)) / 2
    return torch.from_numpy(np.asarray(t.ppf(levels.cpu().numpy(), 3))).to(share)
