"""The spectral filter that counts small curvatures, and what a spectrum says of the cut's place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kfp_methods.components.science.lhsd.choices import BandWidth


@dataclass(frozen=True)
class Filter:
    """f(lambda) = 1/(1 + (|lambda|/kappa)^p), kappa = c/sigma^2 (the paper's Hill function).

    Near a manifold of dimension d the Hessian of -log p_t has D-d eigenvalues near 1/sigma^2 and d small ones:
    the trace of f(H) counts the small ones.

    Attributes:
        c: place of the cut between 0 and 1, in units of 1/sigma^2.
        p: steepness.
        delta: half width of the band around the cut; see `mass`.
        band: `relative`: c (1 +- delta) / sigma^2; `absolute`: kappa +- delta, as in the paper.
    """

    c: float = 0.2
    p: float = 4.0
    delta: float = 0.2
    band: BandWidth = "relative"

    def __call__(self, eigenvalues: Tensor, sigma: float) -> Tensor:
        """f, elementwise; negative eigenvalues count by their size."""
        return 1 / (1 + (eigenvalues.abs() * sigma**2 / self.c) ** self.p)

    def normal_leak(self) -> float:
        """What one normal direction (eigenvalue 1/sigma^2) adds to the count."""
        return 1 / (1 + self.c**-self.p)

    def tangent_loss(self, variance: float, sigma: float) -> float:
        """What one tangent direction along which the data have this variance lacks in the count."""
        return 1 - 1 / (1 + (sigma**2 / (self.c * (variance + sigma**2))) ** self.p)

    def mass(self, eigenvalues: Tensor, weights: Tensor, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Shares of the spectrum below, within and above the band around the cut.

        Args:
            eigenvalues: [..., m].
            weights: of each, summing to 1 over the last axis.
        """
        size = eigenvalues.abs() * sigma**2
        half = self.c * self.delta if self.band == "relative" else self.delta * sigma**2
        low, high = self.c - half, self.c + half
        below, above = ((size < low) * weights).sum(-1), ((size > high) * weights).sum(-1)
        return below, ((size >= low) & (size <= high)).mul(weights).sum(-1), above


def probe_deviation(dimension: Tensor, n_features: int, probes: int) -> Tensor:
    """Standard deviation of the estimate that random signs alone cause, were f(H) a projector of that rank d.

    sqrt(2 (d - sum P_ii^2) / K), with sum P_ii^2 = d (d+2) / (D+2) on average over directions.
    """
    d = dimension.clamp(0, n_features)
    return (2 * (d - d * (d + 2) / (n_features + 2)).clamp(min=0) / probes).sqrt()
