"""Sample and hold for users with several insertions at once: presence from invertible Bloom lookup tables.

A user is present while its count is above 0, which only a memory of every count would tell. Level l keeps the users
whose hash ends in l zeros, a share 2^-l of them, in a table of cells (count, sum of ids, sum of checks). A table of
capacity s gives back who is in it while they are fewer than s (Goodrich and Mitzenmacher 2011). Published is the lowest
level whose noisy size is below s / 2, times 2^l. A user is in up to 21 levels, so each has a 21st of rho. The published
standard deviation is that of the noise; above level 0 the share of users that a level keeps varies too, by sqrt(count
2^l).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.dp_distinct_elements import mechanisms, tree
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Budget, Released
from kfp_methods.components.tabular.dp_distinct_elements.streams import Ints, Stream

LEVELS = 21
MOST_UPDATES = 200_000
_HASHES, _CELL_BITS, _SIGMAS = 3, 160, 20
_BITS = np.uint64(40)  # of ids and checks: sums of millions still fit in 64 bits


class UndecodableError(Exception):
    """No level's table holds few enough users; the text names the step."""


def _mixed(values: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """A hash of 64-bit numbers (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        z = values + np.uint64((0x9E3779B97F4A7C15 * (salt + 1)) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass
class Table:
    """One invertible Bloom lookup table of `capacity` ids; each id has a cell in each third."""

    capacity: int
    count: Ints = field(init=False)
    ids: Ints = field(init=False)
    checks: Ints = field(init=False)

    def __post_init__(self) -> None:
        third = math.ceil((math.ceil(1.5 * self.capacity) + 16) / _HASHES)
        self.count, self.ids, self.checks = (np.zeros(_HASHES * third, np.int64) for _ in range(3))

    @property
    def cells(self) -> int:
        """Of the table."""
        return len(self.count)

    def add(self, ids: Ints, times: Ints) -> None:
        """Counts of ids [n] change by `times` [n]."""
        where = self._places(ids)
        checks = self._check(ids)
        for place in where.T:
            np.add.at(self.count, place, times)
            np.add.at(self.ids, place, times * ids)
            np.add.at(self.checks, place, times * checks)

    def size(self) -> int:
        """How many ids have a count above 0; `capacity` where they are too many to tell."""
        rest = Table(self.capacity)
        rest.count, rest.ids, rest.checks = self.count.copy(), self.ids.copy(), self.checks.copy()
        found = 0
        while True:
            at = np.flatnonzero(rest.count > 0)
            count = rest.count[at]
            whole = (rest.ids[at] % count == 0) & (rest.checks[at] % count == 0)
            at, count = at[whole], count[whole]
            ids = rest.ids[at] // count
            pure = self._check(ids) == rest.checks[at] // count
            ids, first = np.unique(ids[pure], return_index=True)
            if not len(ids):
                break
            rest.add(ids, -count[pure][first])
            found += len(ids)
        decoded = not rest.count.any() and not rest.ids.any()
        return min(found, self.capacity) if decoded else self.capacity

    def _places(self, ids: Ints) -> Ints:
        third = self.cells // _HASHES
        drawn = [_mixed(ids.astype(np.uint64), k) % np.uint64(third) for k in range(_HASHES)]
        return np.stack([place.astype(np.int64) + k * third for k, place in enumerate(drawn)], axis=1)

    def _check(self, ids: Ints) -> Ints:
        return (_mixed(ids.astype(np.uint64), 99) >> (np.uint64(64) - _BITS)).astype(np.int64)


def level_sd(W: int, budget: Budget, beta: float) -> float:
    """Of the noise of a node of each level, with a 21st of rho."""
    node = tree.node_sd(2 * W + 1, budget.horizon, budget.epsilon, budget.delta - beta, budget.calibration)
    return math.sqrt(LEVELS) * node


def default_capacity(W: int, budget: Budget) -> int:
    """The next power of two above 20 standard deviations of a level's node."""
    return 2 ** math.ceil(math.log2(_SIGMAS * level_sd(W, budget, mechanisms.FAILING * budget.delta)))


def sample_hold(stream: Stream, W: int, budget: Budget, randomness: Randomness, capacity: int) -> Released:
    """Counts of users present, with noise, after every step.

    Updates are let in as in `mechanisms.sample_hold`; a blocked user stays as it is, for its count is not known.

    Raises:
        UndecodableError: even the level of fewest users has too many.
    """
    beta = mechanisms.FAILING * budget.delta
    updates, rank = stream.updates, stream.updates.rank
    coins = randomness.coins(stream)
    start, first = mechanisms.starts(stream, W, stream.T, beta, coins)
    accepted = updates.take(rank - first[updates.user] <= W)
    order = np.argsort(accepted.step, kind="stable")
    hashes = _hashes(stream, randomness)
    ids = (hashes >> (np.uint64(64) - _BITS)).astype(np.int64)
    level = np.minimum(LEVELS - 1, _trailing_zeros(hashes))
    tables = [Table(capacity) for _ in range(LEVELS)]
    sd = level_sd(W, budget, beta)
    noise = [sd * tree.sums(randomness.nodes(stream.T, 200 + number)) for number in range(LEVELS)]
    counts, spread = np.empty(stream.T), sd * np.sqrt(tree.popcounts(stream.T))
    sizes = [0] * LEVELS
    ends = np.searchsorted(accepted.step[order], np.arange(1, stream.T + 1), side="right")
    begin, factors = 0, np.empty(stream.T)
    for t, end in enumerate(ends.tolist()):
        now, begin = order[begin:end], end
        for number in range(int(level[accepted.user[now]].max(initial=-1)) + 1):
            inside = now[level[accepted.user[now]] >= number]
            tables[number].add(ids[accepted.user[inside]], accepted.change[inside])
            sizes[number] = tables[number].size()
        found = next((n for n in range(LEVELS) if sizes[n] + noise[n][t] < capacity / 2), None)
        if found is None:
            raise UndecodableError(f"step {t + 1}")
        factors[t] = 2.0**found
        counts[t] = factors[t] * (sizes[found] + noise[found][t])
    held = int((first < mechanisms.NEVER).sum())
    bits = LEVELS * (tables[0].cells * _CELL_BITS + mechanisms.tree_bits(stream.T))
    let_in = Stream(
        accepted.step[order], accepted.user[order], accepted.change[order], stream.T, stream.names, multiset=True
    )
    counted = mechanisms.Counted(
        "sample_hold", let_in.present, None, 2 * W + 1, bits + held * mechanisms.entry_bits(stream.T), held,
        len(np.unique(updates.user[rank - first[updates.user] > W])), beta, start,
    )  # fmt: skip
    return Released(counted, counts, factors * spread, sd)


def _hashes(stream: Stream, randomness: Randomness) -> NDArray[np.uint64]:
    digests = b"".join(
        blake2b(b"level|" + name.encode("utf-8", "surrogatepass"), key=randomness.key, digest_size=8).digest()
        for name in stream.names
    )
    return np.frombuffer(digests, np.uint64)


def _trailing_zeros(hashes: NDArray[np.uint64]) -> Ints:
    low = (hashes & (~hashes + np.uint64(1))).astype(np.float64)
    return np.where(hashes == 0, 64, np.log2(np.maximum(low, 1))).astype(np.int64)
