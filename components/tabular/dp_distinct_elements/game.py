"""The game behind the lower bound: who remembers heavy users can keep them out of what is given away.

k heavy users take part in every phase, 3 h light users in one phase each. In phase i each of them is present with
probability p_i ~ U[0, 1]; the mechanism's count is read, f_i is its share of all n = 3 h + k, and everyone leaves.
Player i gives away Y_i; only the mechanism's state goes on to the next phase. (Structure of the paper's reduction; the
constants are ours.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.dp_distinct_elements.choices import MechanismName
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Released
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Stream

GHOSTS = 1_000  # drawn as heavy users are, but never inserted


@dataclass(frozen=True)
class Game:
    """p [w]; present [w, n]: heavy users first, light users of each phase after them; ghosts [w, GHOSTS].

    reads [w]: the step after which phase i's count is read, in `stream`.
    """

    stream: Stream
    p: Floats
    present: NDArray[np.bool_]
    ghosts: NDArray[np.bool_]
    reads: NDArray[np.int64]
    k: int

    @property
    def n(self) -> int:
        """Users of a phase."""
        return self.present.shape[1]


@dataclass(frozen=True)
class Outcome:
    """What a mechanism's counts give away.

    Attributes:
        size: mean |Y_i|.
        heavy_share_ratio: share of heavy users in Y_i / their share of all users.
        error: mean |f_i - share present|.
        auc, tpr: of the tracing score sum_i (f_i - p_i)(x_ui - p_i), heavy users against ghosts; tpr at 1% false
            positives.
    """

    name: MechanismName
    size: float
    heavy_share_ratio: float
    error: float
    auc: float
    tpr: float


def play(k: int, h: int, w: int, seed: int) -> Game:
    """Draws a game as a stream, one event per step."""
    rng = np.random.default_rng([seed, k, h, w, 1])
    n = 3 * h + k
    p = rng.random(w)
    present = rng.random((w, n)) < p[:, None]
    ghosts = rng.random((w, GHOSTS)) < p[:, None]
    ids = np.tile(np.arange(n), (w, 1))
    ids[:, k:] += 3 * h * np.arange(w)[:, None]
    users, ops, reads, t = [], [], [], 0
    for i in range(w):
        inside = ids[i][present[i]]
        users += [inside, inside]
        ops += [np.ones(len(inside), np.int64), -np.ones(len(inside), np.int64)]
        reads.append(t + len(inside))
        t += 2 * len(inside)
    used, codes = np.unique(np.concatenate(users), return_inverse=True)
    stream = Stream(np.arange(1, t + 1), codes, np.concatenate(ops), t, tuple(f"u{u}" for u in used))
    return Game(stream, p, present, ghosts, np.array(reads), k)


def outcome(game: Game, released: Released, seed: int) -> Outcome:
    """What the players give away who see these counts."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng([seed, game.n, 2])
    seen = np.r_[0.0, released.counts][game.reads]
    f = np.clip(seen / game.n, 0, 1)
    weight = (f - game.p)[:, None]
    given = rng.random(game.present.shape) < 0.5 + weight * (game.present - game.p[:, None]) / 2
    sizes = given.sum(1)
    share = given[:, : game.k].sum(1) / np.maximum(sizes, 1)
    heavy = (weight * (game.present[:, : game.k] - game.p[:, None])).sum(0)
    ghosts = (weight * (game.ghosts - game.p[:, None])).sum(0)
    labels = np.r_[np.ones(len(heavy)), np.zeros(len(ghosts))]
    return Outcome(
        name=released.name,
        size=float(sizes.mean()),
        heavy_share_ratio=float(share[sizes > 0].mean()) / (game.k / game.n),
        error=float(np.abs(f - game.present.mean(1)).mean()),
        auc=float(roc_auc_score(labels, np.r_[heavy, ghosts])),
        tpr=float((heavy > np.quantile(ghosts, 0.99)).mean()),
    )


def avoidance(k: int, h: int, w: int, memory: int, seed: int) -> float:
    """Heavy users' share of what is given away / their share of all, by players who remember `memory` ids.

    Without any mechanism: player i gives away n / 2 ids of the phase that are not remembered (all, of fewer),
    forgets the ids that are not of this phase, and fills the memory up with others of it, all at random.
    """
    rng = np.random.default_rng([seed, k, h, w, memory, 3])
    n = 3 * h + k
    remembered = np.zeros(0, np.int64)  # heavy users only can be there again, as ids below k
    shares = []
    for _ in range(w):
        here = np.zeros(n, bool)
        here[remembered] = True
        free = rng.permutation(np.flatnonzero(~here))
        given = free[: n // 2]
        if len(given):
            shares.append(float((given < k).mean()))
        filled = np.concatenate([remembered, rng.permutation(free)[: max(0, memory - len(remembered))]])
        remembered = filled[filled < k]  # the light users of this phase never come back
    return float(np.mean(shares)) / (k / n)
