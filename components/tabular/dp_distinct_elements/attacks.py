"""What an adversary who knows everyone else makes of the published counts, exactly and by trial.

The noise at t minus that at t - lowbit(t) is one node's, so with s the 0/1 effect of a user on the counts, y its nodes
(y_t = s_t - s_{t - lowbit(t)}) and b those of what is left when all others are taken off, the likelihood ratio test is
Z = sum y_t b_t / sigma^2. It is that of two normal laws at a distance mu = sqrt(sum y_t^2) / sigma: no test does
better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular import privacy
from kfp_methods.components.tabular.dp_distinct_elements import tree
from kfp_methods.components.tabular.dp_distinct_elements.choices import MechanismName
from kfp_methods.components.tabular.dp_distinct_elements.mechanisms import Counted
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Budget
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Ints, Stream
from kfp_methods.components.tabular.privacy_audit import Audit, audit

HEAVIEST = 50
_BLOCK = 2_000_000  # node noises at once


@dataclass(frozen=True)
class Attack:
    """Of one mechanism, on the user for whom it protects least among the `HEAVIEST` who change most.

    Attributes:
        mu: distance of the two laws.
        delta_at_epsilon: the least delta at which (epsilon, delta) holds for this user, at the promised epsilon.
        promised: the delta of the noise: that of the budget, less the chance of a user whom the cap does not hold.
        members, others: scores Z of releases with the user and without; empty without trials.
        proved: the lower bound on epsilon that these prove; None without trials.
    """

    name: MechanismName
    cap: int
    mu: float
    delta_at_epsilon: float
    promised: float
    members: Floats
    others: Floats
    proved: Audit | None

    @property
    def passed(self) -> bool:
        """Whether the promise holds against this attack."""
        return self.delta_at_epsilon <= self.promised


def distance(effect: Ints | Floats, node_sd: float) -> float:
    """mu = sqrt(sum y_t^2) / sigma, for a user's effect on the counts [T]."""
    return float(np.linalg.norm(tree.nodes_of(np.asarray(effect, np.float64)))) / node_sd


def delta_at(epsilon: float, mu: float) -> float:
    """Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu); 0 where the laws are the same."""
    return privacy.gaussian_delta(epsilon, 1 / mu) if mu > 0 else 0.0


def true_positive_rate(mu: float, false_positive_rate: Floats) -> Floats:
    """Phi(mu - z_{1 - FPR}): the exact ROC curve of the test."""
    from scipy.special import ndtr, ndtri

    return np.asarray(ndtr(mu + ndtri(false_positive_rate)))


def score(seen: Floats, others: Ints | Floats, effect: Ints | Floats, node_sd: float) -> Floats:
    """Z of published counts [..., T], with those of everyone else [T] and a user's effect [T]."""
    y = tree.nodes_of(np.asarray(effect, np.float64))
    return np.asarray(tree.nodes_of(seen - others) @ y / node_sd**2)


def heaviest(stream: Stream) -> Ints:
    """Users by falling number of changes, up to `HEAVIEST`."""
    return np.argsort(-stream.flippancy, kind="stable")[:HEAVIEST]


def worst_effect(counted: Counted, stream: Stream) -> Ints:
    """The largest effect of one user [T], where users do not depend on each other: of its own accepted changes."""
    assert counted.accepted is not None  # noqa: S101
    effects = [counted.accepted.presence(int(user), stream.T) for user in heaviest(stream)]
    return max(effects, key=lambda s: distance(s, 1.0), default=np.zeros(stream.T, np.int64))


def attack(
    counted: Counted, effect: Ints, budget: Budget, trials: int, randomness: Randomness, *, level: float = 0.95
) -> Attack:
    """The test on `trials` releases with the user and as many without; the counts without are counted - effect."""
    node_sd = budget.node_sd(counted)
    mu = distance(effect, node_sd)
    members = others = np.zeros(0)
    proved = None
    if trials:
        members = _scores(counted.counts, counted.counts - effect, effect, node_sd, trials, randomness, 1)
        others = _scores(counted.counts - effect, counted.counts - effect, effect, node_sd, trials, randomness, 2)
        if trials >= 40 and mu > 0:
            proved = audit(members, others, delta=budget.delta, level=level)
    promised = budget.delta - counted.failing
    return Attack(counted.name, counted.cap, mu, delta_at(budget.epsilon, mu), promised, members, others, proved)


def _scores(
    counts: Ints, others: Ints, effect: Ints, node_sd: float, trials: int, randomness: Randomness, world: int
) -> Floats:
    """Scores of whole releases: the noise is drawn, summed up the tree, and taken apart again by the attacker."""
    T, found = len(counts), []
    rng = np.random.default_rng([*np.frombuffer(randomness.key, np.uint32).tolist(), world])
    block = max(1, _BLOCK // T)
    for begin in range(0, trials, block):
        nodes = rng.standard_normal((min(block, trials - begin), T))
        found.append(score(counts + node_sd * tree.sums(nodes), others, effect, node_sd))
    return np.concatenate(found)
