"""Streams of insertions and deletions, as steps, users and presences.

D(t) = sum over users of x_u(t), where x_u(t) is 1 while user u is present. Neighbouring streams differ in all updates
of one user, which one of them has as empty updates: so the number of steps T is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Changes:
    """Contributions to a count: user [c] changes it by change [c], 1 or -1, at step [c]. Sorted by user, then time."""

    step: Ints
    user: Ints
    change: Ints

    @cached_property
    def rank(self) -> Ints:
        """The how manieth change of its user each is, from 0."""
        return ranks(self.user)

    def take(self, kept: NDArray[np.bool_]) -> Changes:
        """Some of them."""
        return Changes(self.step[kept], self.user[kept], self.change[kept])

    def differences(self, T: int) -> Ints:
        """What the count changes by at steps 1 to T [T]."""
        return np.bincount(self.step - 1, weights=self.change, minlength=T).astype(np.int64)

    def presence(self, user: int, T: int) -> Ints:
        """What a user adds to the count after each step [T]."""
        return np.cumsum(self.take(self.user == user).differences(T))


def ranks(groups: Ints) -> Ints:
    """Position of each entry within its run of equal neighbours, from 0."""
    if not len(groups):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.r_[starts, len(groups)]))


@dataclass(frozen=True)
class Stream:
    """Updates in their order: step [E] rises from 1 on, user [E] counts from 0, op [E] is 1 or -1.

    T: steps in all. names: of the users, only used to key their coins. multiset: counts of a user may exceed 1, and it
    is present while its count is above 0; otherwise insertions and deletions of a user alternate.
    """

    step: Ints
    user: Ints
    op: Ints
    T: int
    names: tuple[str, ...]
    multiset: bool = False

    @property
    def users(self) -> int:
        """Number of different users."""
        return len(self.names)

    @cached_property
    def updates(self) -> Changes:
        """Every update, sorted by user."""
        order = np.argsort(self.user, kind="stable")
        return Changes(self.step[order], self.user[order], self.op[order])

    @cached_property
    def flips(self) -> Changes:
        """Changes of presence from the end of one step to the end of the next."""
        updates = self.updates
        if not len(updates.user):
            return updates
        running = np.cumsum(updates.change)
        starts = np.flatnonzero(updates.rank == 0)
        lengths = np.diff(np.r_[starts, len(running)])
        counts = running - np.repeat(np.r_[0, running][starts], lengths)
        ends = (updates.step[1:] != updates.step[:-1]) | (updates.user[1:] != updates.user[:-1])
        last = updates.take(np.r_[ends, True])  # of its user in its step
        present = counts[np.r_[ends, True]] > 0
        before = np.r_[False, present[:-1]] & (last.rank > 0)
        changed = present != before
        return Changes(last.step, last.user, np.where(present, 1, -1)).take(changed)

    @cached_property
    def present(self) -> Ints:
        """D(t) at the end of steps 1 to T [T]."""
        return np.cumsum(self.flips.differences(self.T))

    @cached_property
    def flippancy(self) -> Ints:
        """Changes of presence of each user [users]."""
        return np.bincount(self.flips.user, minlength=self.users)

    def without(self, user: int) -> Stream:
        """The neighbour in which this user's updates are empty."""
        kept = self.user != user
        return Stream(self.step[kept], self.user[kept], self.op[kept], self.T, self.names, self.multiset)


def made(T: int, seed: int) -> Stream:
    """One event per step: round(T^(1/3)) heavy users that come and go, and light users who come once and leave once.

    With probability 0.3 a random heavy user flips; else with probability 0.5 the light user who came first leaves, if
    one is there; else a new light user comes.
    """
    rng = np.random.default_rng([seed, T, 1])
    heavy = round(T ** (1 / 3))
    flips, leaves, which = rng.random(T) < 0.3, rng.random(T) < 0.5, rng.integers(0, heavy, T)
    user, op = np.empty(T, np.int64), np.empty(T, np.int64)
    present, oldest, next_user = [False] * heavy, heavy, heavy
    for t in range(T):
        if flips[t]:
            u = int(which[t])
            present[u] = not present[u]
            user[t], op[t] = u, 1 if present[u] else -1
        elif leaves[t] and oldest < next_user:
            user[t], op[t] = oldest, -1
            oldest += 1
        else:
            user[t], op[t] = next_user, 1
            next_user += 1
    used, codes = np.unique(user, return_inverse=True)
    return Stream(np.arange(1, T + 1), codes, op, T, tuple(f"u{u}" for u in used))
