"""Which comparisons to label next: probabilities of least total variance for a budget (A-optimal), and one draw."""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.dmlrank.functionals import Jacobian
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Pairs

_ENTRIES = 4_000_000  # of a Jacobian held at once


def blocks(n: int, pairs: Pairs, classes: int) -> list[slice]:
    """Contexts in pieces whose Jacobians fit in memory, of 2,000 at most."""
    size = int(np.clip(_ENTRIES // (pairs.size * classes * pairs.K), 1, 2_000))
    return [slice(begin, min(n, begin + size)) for begin in range(0, n, size)]


def information(pairs: Pairs, mu: Floats, J: Jacobian) -> Floats:
    """tr(J V J') of each context and pair [n, P], V = Diag(mu) - mu mu'."""
    found = np.empty(mu.shape[:2])
    for at in blocks(len(mu), pairs, mu.shape[2]):
        slope = J(pairs, mu[at])
        mean = np.einsum("npc,npck->npk", mu[at], slope)
        found[at] = np.einsum("npc,npck,npck->np", mu[at], slope, slope) - (mean**2).sum(-1)
    return np.maximum(found, 0)


def a_optimal(info: Floats, costs: Floats, budget: float, alpha: float) -> tuple[Floats, float]:
    """clip(sqrt(info / (lambda cost)), alpha, 1) whose mean cost per context is `budget`, and lambda.

    Args:
        info: [n, P]. costs: of each pair [P].
        budget: between alpha times the sum of all costs and that sum.
    """

    def probabilities(log: float) -> Floats:
        return np.clip(np.sqrt(info / (np.exp(log) * costs)), alpha, 1.0)

    def spent(log: float) -> float:
        return float((probabilities(log) * costs).sum(1).mean())

    low, high = -1.0, 1.0
    while spent(low) < budget:
        low *= 2
        if low < -700:  # what is left has no information: any of it will do
            break
    while spent(high) > budget:
        high *= 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(middle) > budget else (low, middle)
    return probabilities(0.5 * (low + high)), float(np.exp(0.5 * (low + high)))


def variance(info: Floats, probability: Floats) -> float:
    """What labelling adds to n times the total variance of the scores: mean over contexts of the sum of info / pi."""
    return float((info / probability).sum(1).mean())
