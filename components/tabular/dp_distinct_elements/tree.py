"""Gaussian noise of a binary tree over time: little at every step, though all steps are published.

The count is published at t with the noise of the popcount(t) dyadic nodes that cover [1, t]; the node that ends at t is
lowbit(t) = t & -t long, so every t has one node of its own. A user who changes the count at most W times, up and down
by turns, changes every node by at most 1 and at most W nodes of each of the L + 1 levels: squared L2 sensitivity W (L +
1). (Tree mechanism: Dwork et al. 2010, Chan et al. 2011; alternating changes: Jain et al., arXiv 2306.06723.)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from kfp_methods.components.tabular import privacy
from kfp_methods.components.tabular.dp_distinct_elements.choices import Calibration
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Ints


def levels(T: int) -> int:
    """L = ceil(log2 T): a tree over T steps has L + 1 levels."""
    return max(0, T - 1).bit_length()


def zcdp(epsilon: float, delta: float) -> float:
    """rho such that rho-zCDP implies (epsilon, delta): (sqrt(epsilon + ln 1/delta) - sqrt(ln 1/delta))^2."""
    log = math.log(1 / delta)
    # The difference of nearly equal roots, without the loss of digits.
    return (epsilon / (math.sqrt(epsilon + log) + math.sqrt(log))) ** 2


def node_sd(W: int, T: int, epsilon: float, delta: float, calibration: Calibration = "zcdp") -> float:
    """Standard deviation of every node's noise, for users who change the count at most W times in T steps.

    zcdp: sigma^2 = W (L + 1) / (2 rho). exact: the least noise of a Gaussian release at this budget (Balle and Wang,
    arXiv 1805.06530), a fifth less at epsilon = 1.
    """
    squared = W * (levels(T) + 1)
    if calibration == "exact":
        return privacy.gaussian_sd(epsilon, delta, math.sqrt(squared))
    return math.sqrt(squared / (2 * zcdp(epsilon, delta)))


@lru_cache(maxsize=4)
def popcounts(T: int) -> Ints:
    """Number of nodes that cover [1, t], for t = 1 to T [T]."""
    return np.bitwise_count(np.arange(1, T + 1)).astype(np.int64)


@lru_cache(maxsize=4)
def parents(T: int) -> Ints:
    """t - lowbit(t), for t = 1 to T [T]."""
    t = np.arange(1, T + 1)
    return t - (t & -t)


def sums(nodes: Floats) -> Floats:
    """Noise at steps 1 to T from that of the nodes that end there [..., T]."""
    T = nodes.shape[-1]
    found = np.zeros((*nodes.shape[:-1], T + 1))
    t, above = np.arange(1, T + 1), parents(T)
    # Steps of a lower popcount first: each adds its node to the sum of the step before its own node.
    for count in range(1, levels(T + 1) + 1):
        now = popcounts(T) == count
        found[..., t[now]] = found[..., above[now]] + nodes[..., now]
    return found[..., 1:]


def nodes_of(values: Floats) -> Floats:
    """The inverse of `sums`: values at t minus those at t - lowbit(t) [..., T]."""
    padded = np.concatenate([np.zeros((*values.shape[:-1], 1)), values], axis=-1)
    return values - padded[..., parents(values.shape[-1])]
