"""From what a mechanism counts to what it publishes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.dp_distinct_elements import mechanisms, tree
from kfp_methods.components.tabular.dp_distinct_elements.choices import Calibration, MechanismName
from kfp_methods.components.tabular.dp_distinct_elements.mechanisms import Counted
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Stream


@dataclass(frozen=True)
class Budget:
    """Of the whole published sequence, for all that one user does; horizon: steps that the tree is made for."""

    epsilon: float
    delta: float
    horizon: int
    calibration: Calibration = "zcdp"

    @property
    def rho(self) -> float:
        """The same as zero-concentrated differential privacy."""
        return tree.zcdp(self.epsilon, self.delta)

    def node_sd(self, counted: Counted) -> float:
        """Of the noise of each node; 0 for mechanisms without privacy."""
        if not counted.cap:
            return 0.0
        return tree.node_sd(counted.cap, self.horizon, self.epsilon, self.delta - counted.failing, self.calibration)


@dataclass(frozen=True)
class Released:
    """counts [T]: as published after steps 1 to T; sd [T]: of the noise in them; node_sd: of a node's."""

    counted: Counted
    counts: Floats
    sd: Floats
    node_sd: float

    @property
    def name(self) -> MechanismName:
        """Of the mechanism."""
        return self.counted.name


def release(counted: Counted, budget: Budget, randomness: Randomness, stream: int = 0) -> Released:
    """The counts with the noise of the nodes that cover each step; `stream`: which independent tree."""
    T, sd = len(counted.counts), budget.node_sd(counted)
    noise = sd * tree.sums(randomness.nodes(T, stream)) if sd else np.zeros(T)
    return Released(counted, counted.counts + noise, sd * np.sqrt(tree.popcounts(T)), sd)


def tree_linear_auto(stream: Stream, budget: Budget, randomness: Randomness) -> Released:
    """Copies with caps 1, 2, 4, ..., and tests that say when to go on to the next (Jain et al., arXiv 2306.06723).

    Half of rho is the copies', half that of the tests: of each cap in turn, whether users with more changes number more
    than noise would hide (sparse vector technique; every test is pure epsilon_s, so epsilon_s^2 / 2 in zCDP). At
    epsilon = 1 and T = 2^14 some 1,900 users must exceed a cap before it is raised.
    """
    T, horizon = stream.T, budget.horizon
    L = tree.levels(horizon)
    each = math.sqrt(budget.rho / (L + 1))
    scale = 6 / each * math.log(2 * horizon)
    counts, sd = np.empty(T), np.empty(T)
    begin, W, blocked = 0, 1, 0
    for number in range(L + 1):
        W = 2**number
        above = np.cumsum(np.bincount(stream.flips.step[stream.flips.rank == W] - 1, minlength=T))
        threshold = math.sqrt(W) * math.log(horizon) + scale + 2 / each * randomness.laplace(1, 2 * number)[0]
        fired = np.flatnonzero(above[begin:] + 4 / each * randomness.laplace(T - begin, 2 * number + 1) >= threshold)
        end = begin + int(fired[0]) if len(fired) and number < L else T
        counted = mechanisms.tree_linear(stream, W)
        node = math.sqrt(W * (L + 1) / (budget.rho / (L + 1)))  # 2 rho_i = rho / (L + 1)
        noisy = counted.counts + node * tree.sums(randomness.nodes(T, 1 + number))
        counts[begin:end], sd[begin:end] = noisy[begin:end], node * np.sqrt(tree.popcounts(T)[begin:end])
        blocked, begin = counted.blocked, end
        if end == T:
            break
    bits = stream.users * mechanisms.entry_bits(T) + (L + 1) * mechanisms.tree_bits(T)
    last = mechanisms.Counted("tree_linear_auto", counted.counts, None, W, bits, stream.users, blocked)
    return Released(last, counts, sd, node)
