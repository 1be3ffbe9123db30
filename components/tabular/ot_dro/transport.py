"""Distances between the reference and its bootstraps under the cost ||L'(a - b)||^p, and their gradients over L."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.ot_dro.cones import Floats

_FLOOR = 1e-12
_DUST = 1e-12  # probabilities below are rounding errors
Ints = NDArray[np.int64]


# From weights [B] to the gradient [k, k] over L's lower triangle of the distances' weighted sum.
Pull = Callable[[Floats], Floats]


class Distances(Protocol):
    """Of B bootstraps from the reference."""

    def values(self, L: Floats) -> Floats:
        """d_b(L) [B]."""
        ...

    def at(self, L: Floats) -> tuple[Floats, Pull]:
        """d_b(L) [B], and how weights of these become a gradient."""
        ...


@dataclass(frozen=True)
class Wasserstein:
    """Exact optimal transport between distributions on the same points.

    Attributes:
        points: [U, k], all different.
        reference: probabilities of the reference [U].
        bootstraps: those of the bootstraps [B, U].
        p: 1 or 2.
    """

    points: Floats
    reference: Floats
    bootstraps: Floats
    p: int

    def _cost(self, L: Floats) -> Floats:
        moved = self.points @ L
        squared = (moved**2).sum(1)
        gaps = np.maximum(squared[:, None] + squared[None] - 2 * moved @ moved.T, 0)
        np.fill_diagonal(gaps, 0)
        return np.asarray(np.sqrt(gaps) if self.p == 1 else gaps)

    def _plans(self, cost: Floats) -> tuple[Floats, list[tuple[Ints, Ints, Floats]]]:
        """Distances [B], and of each optimal plan where mass moves from, to, and how much."""
        import ot

        values, plans = np.empty(len(self.bootstraps)), []
        for number, weights in enumerate(self.bootstraps):
            given, taken = self.reference, weights
            if self.p == 1:  # the cost is a metric: what both have in a point stays there
                given, taken = np.maximum(given - weights, 0), np.maximum(weights - given, 0)
            source, sink = np.flatnonzero(given > _DUST), np.flatnonzero(taken > _DUST)
            if not len(source) or not len(sink):
                values[number] = 0.0
                plans.append((source[:0], sink[:0], np.zeros(0)))
                continue
            mass = given[source].sum()
            plan = ot.emd(
                given[source], taken[sink] * (mass / taken[sink].sum()), cost[np.ix_(source, sink)],
                numItermax=1_000_000, center_dual=False, check_marginals=False,
            )  # fmt: skip
            i, j = np.nonzero(plan)
            moved = plan[i, j]
            values[number] = moved @ cost[source[i], sink[j]]
            plans.append((source[i], sink[j], moved))
        return values ** (1 / self.p), plans

    def values(self, L: Floats) -> Floats:
        """W_p of each bootstrap from the reference [B]."""
        return self._plans(self._cost(L))[0]

    def at(self, L: Floats) -> tuple[Floats, Pull]:
        """d d_b / d L = sum of P_ij D_ij D_ij' L / ||L'D_ij|| over the optimal plan (p = 1), / d_b (p = 2)."""
        cost = self._cost(L)
        values, plans = self._plans(cost)

        def pull(weights: Floats) -> Floats:
            total = np.zeros_like(L)
            for value, (i, j, mass), weight in zip(values, plans, weights, strict=True):
                length = cost[i, j]
                apart = length > 0  # where points coincide, the gradient is 0
                if weight == 0 or value == 0 or not apart.any():
                    continue
                D = self.points[i[apart]] - self.points[j[apart]]
                factor = mass[apart] / (length[apart] if self.p == 1 else value)
                total += weight * (D * factor[:, None]).T @ D
            return np.tril(total @ L)

        return values, pull


@dataclass(frozen=True)
class Gelbrich:
    """The distance of means and covariances: W_2 between normal laws, a lower bound for others.

    d^2 = tr[H((m - m_b)(m - m_b)' + S + S_b)] - 2 tr[(L'S_b L L'S L)^(1/2)], H = L L'.

    Attributes:
        mean [k], covariance [k, k]: of the reference.
        means [B, k], covariances [B, k, k]: of the bootstraps.
    """

    mean: Floats
    covariance: Floats
    means: Floats
    covariances: Floats

    def values(self, L: Floats) -> Floats:
        """Gelbrich distances of the bootstraps from the reference [B]."""
        return self._parts(L)[0]

    def _parts(self, L: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Distances [B], spreads M_b, and the maps T_ab, T_ba between A = L'S L and B_b = L'S_b L [B, k, k]."""
        gap = self.means - self.mean
        spread = gap[:, :, None] * gap[:, None, :] + self.covariance + self.covariances
        A, B = L.T @ self.covariance @ L, L.T @ self.covariances @ L
        half, inverse = _roots(A)
        middle, inverse_middle = _roots(half @ B @ half)
        trace = np.einsum("ij,bji->b", L @ L.T, spread)
        squared = np.maximum(trace - 2 * np.trace(middle, axis1=1, axis2=2), 0)
        return np.sqrt(squared), spread, inverse @ middle @ inverse, half @ inverse_middle @ half

    def at(self, L: Floats) -> tuple[Floats, Pull]:
        """d tr(A^(1/2) B A^(1/2))^(1/2) = (T_ab . dA + T_ba . dB) / 2, T the optimal maps between normal laws."""
        values, spread, ab, ba = self._parts(L)

        def pull(weights: Floats) -> Floats:
            squared = 2 * spread @ L - 2 * (self.covariance @ L @ ab + self.covariances @ L @ ba)
            scaled = np.where(values > 0, weights / np.maximum(2 * values, _FLOOR), 0.0)
            return np.asarray(np.tril(np.einsum("b,bij->ij", scaled, squared)))

        return values, pull


def _roots(matrix: Floats) -> tuple[Floats, Floats]:
    """Symmetric square roots of positive semi-definite matrices [..., k, k] and their inverses, eigenvalues floored."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + np.swapaxes(matrix, -1, -2)))
    roots = np.sqrt(np.maximum(values, _FLOOR))
    transposed = np.swapaxes(vectors, -1, -2)
    return (vectors * roots[..., None, :]) @ transposed, (vectors / roots[..., None, :]) @ transposed
