"""Scores of models as functions of the probabilities mu[p, c] = P(class c | pair p), and their Jacobians.

Frauen et al., arXiv 2601.21816: theta = E[F(mu(X))]. `win_loss` is ours for Bradley-Terry with ties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kfp_methods.components.tabular.dmlrank.choices import LOSS, TIE, WIN, BtLink, FunctionalName
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Pairs, swapped

Value = Callable[[Pairs, Floats], Floats]  # mu [n, P, C] to scores [n, K]
Jacobian = Callable[[Pairs, Floats], Floats]  # mu [n, P, C] to derivatives [n, P, C, K]


def functional(name: FunctionalName, link: BtLink) -> tuple[Value, Jacobian]:
    """F and its Jacobian."""
    if name == "bt":
        return _BT[link]
    return _OTHERS[name]


def unordered(pairs: Pairs, F: Value, J: Jacobian) -> tuple[Value, Jacobian]:
    """For data without positions: mu of j < k decides, mu_kj is it with wins and losses exchanged.

    J^u_jk[., c] = J_jk[., c] + J_kj[., swap(c)] for j < k, 0 for others.
    """

    def value(pairs: Pairs, mu: Floats) -> Floats:
        return F(pairs, canonical(pairs, mu))

    def jacobian(pairs: Pairs, mu: Floats) -> Floats:
        both = J(pairs, canonical(pairs, mu))
        joined = both + swapped(both[:, pairs.mirror], axis=2)
        return np.where(pairs.rising[None, :, None, None], joined, 0.0)

    return value, jacobian


def canonical(pairs: Pairs, mu: Floats) -> Floats:
    """mu_kj := mu_jk with classes exchanged, for j < k."""
    return np.where(pairs.rising[None, :, None], mu, swapped(mu[:, pairs.mirror]))


def _borda(pairs: Pairs, mu: Floats) -> Floats:
    """F_j = sum over k of (mu_jk,win + mu_kj,loss) / (2 (K - 1))."""
    wins = pairs.square(mu[..., WIN]) + np.swapaxes(pairs.square(mu[..., LOSS]), -1, -2)
    return np.asarray(wins.sum(-1) / (2 * (pairs.K - 1)))


def _borda_jacobian(pairs: Pairs, mu: Floats) -> Floats:
    found = np.zeros((*mu.shape, pairs.K))
    each = np.arange(pairs.size)
    found[:, each, WIN, pairs.j] = found[:, each, LOSS, pairs.k] = 1 / (2 * (pairs.K - 1))
    return found


def _win_tie_half(pairs: Pairs, mu: Floats) -> Floats:
    ties = pairs.square(mu[..., TIE])
    ties = ties + np.swapaxes(ties, -1, -2)
    return _borda(pairs, mu) + ties.sum(-1) / (4 * (pairs.K - 1))


def _win_tie_half_jacobian(pairs: Pairs, mu: Floats) -> Floats:
    found, each = _borda_jacobian(pairs, mu), np.arange(pairs.size)
    found[:, each, TIE, pairs.j] = found[:, each, TIE, pairs.k] = 1 / (4 * (pairs.K - 1))
    return found


def _projected(pairs: Pairs, first: Floats, second: Floats) -> Floats:
    """F_j = sum over k of l_jk / K, l_jk = (first_jk + second_kj) / 2 for j < k, l_kj = -l_jk.

    The projection of l on differences of strengths that sum to zero, on the complete graph.
    """
    l = np.triu(0.5 * (pairs.square(first) + np.swapaxes(pairs.square(second), -1, -2)), 1)  # noqa: E741
    return np.asarray((l - np.swapaxes(l, -1, -2)).sum(-1) / pairs.K)


def _bt_win_loss(pairs: Pairs, mu: Floats) -> Floats:
    """l_jk = (ln(mu_jk,win / mu_jk,loss) + ln(mu_kj,loss / mu_kj,win)) / 2: position effects cancel."""
    odds = np.log(mu[..., WIN] / mu[..., LOSS])
    return _projected(pairs, odds, -odds)


def _bt_win_loss_jacobian(pairs: Pairs, mu: Floats) -> Floats:
    found, each = np.zeros((*mu.shape, pairs.K)), np.arange(pairs.size)
    for c, sign in ((WIN, 1.0), (LOSS, -1.0)):
        slope = sign / (2 * pairs.K * mu[..., c])
        found[:, each, c, pairs.j] = slope
        found[:, each, c, pairs.k] = -slope
    return found


def _bt_logit(pairs: Pairs, mu: Floats) -> Floats:
    """l_jk = (logit mu_jk,win + logit mu_kj,loss) / 2, as printed: with ties it depends on the models' order."""
    return _projected(pairs, _logit(mu[..., WIN]), _logit(mu[..., LOSS]))


def _bt_logit_jacobian(pairs: Pairs, mu: Floats) -> Floats:
    found = np.zeros((*mu.shape, pairs.K))
    for c, used in ((WIN, pairs.rising), (LOSS, ~pairs.rising)):
        each = np.flatnonzero(used)
        better, worse = (pairs.j, pairs.k) if c == WIN else (pairs.k, pairs.j)
        slope = 1 / (2 * pairs.K * mu[:, each, c] * (1 - mu[:, each, c]))
        found[:, each, c, better[each]] = slope
        found[:, each, c, worse[each]] = -slope
    return found


def _logit(p: Floats) -> Floats:
    return np.asarray(np.log(p) - np.log1p(-p))


def _walk(pairs: Pairs, mu: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """T [n, K, K], out-weights d [n, K], M^-1 [n, K, K] and the stationary law [n, K].

    The walk moves from i to whoever beats i: W_ij = mu_ji,win + mu_ij,loss, T_ij = W_ij / d_i.
    """
    W = np.swapaxes(pairs.square(mu[..., WIN]), -1, -2) + pairs.square(mu[..., LOSS])
    d = W.sum(-1)
    T = W / d[..., None]
    inverse = np.linalg.inv(np.eye(pairs.K) - np.swapaxes(T, -1, -2) + 1.0)
    return T, d, inverse, np.asarray(inverse.sum(-1))


def _rank_centrality(pairs: Pairs, mu: Floats) -> Floats:
    return _walk(pairs, mu)[3]


def _rank_centrality_jacobian(pairs: Pairs, mu: Floats) -> Floats:
    """dF / dW_il = M^-1 (e_l - T_i.)' p_i / d_i; the diagonal of T stays zero."""
    T, d, inverse, law = _walk(pairs, mu)
    through = np.einsum("nab,nib->nia", inverse, T)  # M^-1 T_i' for each i
    slope = (np.swapaxes(inverse, -1, -2)[:, None] - through[:, :, None]) * (law / d)[:, :, None, None]  # [n, i, l, K]
    found = np.zeros((*mu.shape, pairs.K))
    found[:, :, WIN] = slope[:, pairs.k, pairs.j]
    found[:, :, LOSS] = slope[:, pairs.j, pairs.k]
    return found


_OTHERS: Mapping[str, tuple[Value, Jacobian]] = {
    "borda": (_borda, _borda_jacobian),
    "win_tie_half": (_win_tie_half, _win_tie_half_jacobian),
    "rank_centrality": (_rank_centrality, _rank_centrality_jacobian),
}
_BT: Mapping[str, tuple[Value, Jacobian]] = {
    "win_loss": (_bt_win_loss, _bt_win_loss_jacobian),
    "logit": (_bt_logit, _bt_logit_jacobian),
}
