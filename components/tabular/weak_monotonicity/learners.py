"""Rules that pick a model, or a mixture, from source risks and a few target losses.

Every rule is a class of models that it allows, and the least mean loss within it (empirical risk minimisation, ERM),
except where it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from kfp_methods.components.tabular.weak_monotonicity import frontier
from kfp_methods.components.tabular.weak_monotonicity.choices import LearnerName
from kfp_methods.components.tabular.weak_monotonicity.frontier import Flags, Floats, Ints

_STEPS = 4  # of a source weight, in the grid of the multiple-source rule


class Pool:
    """What the rules know of the models before any target label: R [M, K], and what follows from it."""

    def __init__(self, R: Floats, *, delta: float = 0.1, t: float | None = None, tie_fix: bool = True) -> None:
        self.R, self.delta, self.t, self.tie_fix = R, delta, t, tie_fix
        self.domination = frontier.domination(R)
        self._order = self._by_margin()
        self._covers: dict[float, Ints] = {}

    @property
    def on_frontier(self) -> Flags:
        """[M]."""
        return self.domination.on_frontier

    @cached_property
    def _radii(self) -> tuple[Floats, Ints]:
        return frontier.radii(self.R, self.on_frontier)

    def _by_margin(self) -> Ints:
        """The frontier first, then by margin, by distance to the frontier, by order."""
        to_frontier = frontier.distances(self.R[self.on_frontier], self.R).min(0)
        keys = (np.arange(len(self.R)), to_frontier, self.domination.margin, ~self.on_frontier)
        return np.lexsort(keys)

    def adaptive(self, n: int) -> Flags:
        """Who the adaptive rule allows with n labels: all with margin up to the m_n-th smallest, the frontier always.

        m_n = min(M, max(frontier, floor(exp(sqrt(n))))). Without tie_fix the rule as printed: margins that are 0 off
        the frontier are then never let in as long as the m_n-th smallest margin is 0.
        """
        m = size_allowed(n, len(self.R), int(self.on_frontier.sum()))
        allowed = self.on_frontier.copy()
        if self.tie_fix:
            allowed[self._order[:m]] = True
            return allowed
        t = np.sort(self.domination.margin)[m - 1]
        return allowed if t == 0 else allowed | (self.domination.margin <= t)

    def cover(self, n: int) -> Flags:
        """The centres of a minimum t-cover, with t as given or chosen for n labels."""
        t = frontier.automatic_t(*self._radii, n, self.delta) if self.t is None else self.t
        if t not in self._covers:
            self._covers[t] = frontier.cover(self.R, t, self.on_frontier)
        allowed = np.zeros(len(self.R), bool)
        allowed[self._covers[t]] = True
        return allowed

    def multiple_source(self) -> Flags:
        """Winners of the weighted source risk, for weights on a grid of the simplex (Mansour et al., 2021)."""
        K = self.R.shape[1]
        allowed = np.zeros(len(self.R), bool)
        for picks in combinations_with_replacement(range(K), _STEPS):
            weights = np.bincount(picks, minlength=K) / _STEPS
            allowed[int((self.R @ weights).argmin())] = True
        return allowed


def size_allowed(n: int, M: int, on_frontier: int) -> int:
    """m_n: the frontier at least, exp(sqrt(n)) at most, and all from there on."""
    return min(M, max(on_frontier, int(np.floor(np.exp(min(np.sqrt(n), 50.0))))))


CLASSES: dict[LearnerName, Callable[[Pool, int], Flags]] = {
    "erm_all": lambda pool, n: np.ones(len(pool.R), bool),
    "erm_pareto": lambda pool, n: pool.on_frontier,
    "erm_cover": lambda pool, n: pool.cover(n),
    "adaptive": lambda pool, n: pool.adaptive(n),
    "multiple_source": lambda pool, n: pool.multiple_source(),
    "minmax": lambda pool, n: _least(pool.R.max(1)),
    "best_mean": lambda pool, n: _least(pool.R.mean(1)),
}
"""The models that each rule allows with n labels [M]; rules without labels allow those that they pick."""


def _least(values: Floats) -> Flags:
    return np.asarray(values <= values.min() + 1e-12)


def tied(losses: Floats, allowed: Flags) -> Flags:
    """The allowed models of least mean loss [..., M], for mean losses [..., M]."""
    shown = np.where(allowed, losses, np.inf)
    return np.asarray(shown <= shown.min(-1, keepdims=True) + 1e-12)


def expected_risk(losses: Floats, allowed: Flags, Q: Floats) -> Floats:
    """Q of the pick [...], averaged over the random choice among ties; mean losses [..., M], target risks Q [M]."""
    winners = tied(losses, allowed)
    return np.asarray((winners * Q).sum(-1) / winners.sum(-1))


def exponential_weights(losses: Floats, allowed: Flags, n: int) -> Floats:
    """Weights [..., M] on the allowed models, in proportion to exp(-eta n losses), eta = sqrt(8 log N / n)."""
    N = int(allowed.sum())
    eta = np.sqrt(8 * np.log(max(N, 2)) / n)
    exponents = np.where(allowed, -eta * n * losses, -np.inf)
    weights = np.exp(exponents - exponents.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def pick(losses: Floats, allowed: Flags, rng: np.random.Generator) -> tuple[int, Ints]:
    """A model at random among the best, and all of the best."""
    best = np.flatnonzero(tied(losses, allowed))
    return int(rng.choice(best)), best


def q_aggregation(
    predictions: Floats, y: Floats, prior: Floats | None = None, beta: float = 1.0, gap: float = 1e-8
) -> Floats:
    """Weights [N] of predictions [N, n] (or [N, n, C]) for squared loss with targets y [n] ([n, C]), on the simplex.

    Minimises L(f_rho) / 2 + sum_j rho_j L(f_j) / 2 + (beta / n) sum_j rho_j log(1 / prior_j), L the mean squared loss
    (Lecué and Rigollet, 2014), to the duality gap `gap`: pairwise Frank-Wolfe with exact line search, for the
    objective is a convex quadratic.
    """
    N, n = len(predictions), len(y)
    flat, target = predictions.reshape(N, -1), np.asarray(y, np.float64).reshape(-1)
    G, b = flat @ flat.T / n, flat @ target / n
    linear = 0.5 * (np.diag(G) - 2 * b) - b  # of rho, beside rho' G rho / 2
    if prior is not None:
        linear = linear - beta / n * np.log(prior)
    rho = np.full(N, 1 / N)
    for _ in range(200_000):
        gradient = G @ rho + linear
        to, away = int(gradient.argmin()), int(np.where(rho > 0, gradient, -np.inf).argmax())
        if gradient @ rho - gradient[to] <= gap:
            break
        curvature = G[to, to] + G[away, away] - 2 * G[to, away]
        slope = gradient[away] - gradient[to]
        step = min(rho[away], slope / curvature) if curvature > 0 else rho[away]
        rho[to] += step
        rho[away] = max(rho[away] - step, 0.0)
    return rho / rho.sum()


def q_value(rho: Floats, predictions: Floats, y: Floats) -> float:
    """The objective of `q_aggregation` with a uniform prior, without its constant."""
    flat, target = predictions.reshape(len(predictions), -1), np.asarray(y, np.float64).reshape(-1)
    n = len(y)
    single = ((flat - target) ** 2).sum(1) / n
    return float(0.5 * ((rho @ flat - target) ** 2).sum() / n + 0.5 * rho @ single)
