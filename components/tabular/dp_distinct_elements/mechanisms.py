"""What each mechanism counts before noise, which updates it lets in, and the memory it takes.

Written rule for memory, in bits at its peak: id 64, counter ceil(log2(T + 1)), flag 1, float 64; a tree has 64 for each
of its L + 1 levels.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.dp_distinct_elements import tree
from kfp_methods.components.tabular.dp_distinct_elements.choices import MechanismName
from kfp_methods.components.tabular.dp_distinct_elements.streams import Changes, Floats, Ints, Stream

_ID, _FLAG, _FLOAT = 64, 1, 64
FAILING = 0.1  # beta / delta of sample and hold
NEVER = np.iinfo(np.int64).max // 2


@dataclass(frozen=True)
class Counted:
    """What a mechanism would publish without noise.

    Attributes:
        counts: after steps 1 to T [T].
        accepted: the changes that these are made of; None where they are of no user's.
        cap: the most changes of one user that the noise is made for; 0: no noise.
        failing: probability, for each user, that one changes more; part of delta.
        bits, entries: peak memory, and how many users are remembered.
        blocked: users of whom some change was left out.
        start: probability with which an update is remembered; 1: every user is.
    """

    name: MechanismName
    counts: Ints
    accepted: Changes | None
    cap: int
    bits: int
    entries: int
    blocked: int = 0
    failing: float = 0.0
    start: float = 1.0


def counter_bits(T: int) -> int:
    """Of a number from 0 to T."""
    return math.ceil(math.log2(T + 1))


def tree_bits(T: int) -> int:
    """Of one number for each level."""
    return _FLOAT * (tree.levels(T) + 1)


def entry_bits(T: int) -> int:
    """Of a user who is remembered: id, how many changes, whether present."""
    return _ID + counter_bits(T) + _FLAG


def exact(stream: Stream) -> Counted:
    """A dictionary of all users, published as it is."""
    return _counted("exact", stream, stream.flips, 0, _ID + _FLAG + counter_bits(stream.T) * stream.multiset)


def counter(stream: Stream) -> Counted:
    """One number: as small as it gets without privacy, and without checks."""
    return Counted("counter", stream.present, stream.flips, 0, counter_bits(stream.T), 0)


def nocap(stream: Stream) -> Counted:
    """Noise for one change of each user, whatever they do: small, and broken."""
    return Counted("nocap", stream.present, stream.flips, 1, counter_bits(stream.T) + tree_bits(stream.T), 0)


def tree_linear(stream: Stream, W: int) -> Counted:
    """Every user is remembered, and stays as it is after W changes (Jain et al., arXiv 2306.06723)."""
    bits = entry_bits(stream.T) + counter_bits(stream.T) * stream.multiset
    return _counted("tree_linear", stream, stream.flips.take(stream.flips.rank < W), W, bits)


def _counted(name: MechanismName, stream: Stream, accepted: Changes, cap: int, bits: int) -> Counted:
    counts = np.cumsum(accepted.differences(stream.T))
    blocked = int((stream.flippancy > cap).sum()) if cap else 0
    total = stream.users * bits + (tree_bits(stream.T) if cap else 0)
    return Counted(name, counts, accepted, cap, total, stream.users, blocked)


def start_probability(W: int, T: int, beta: float) -> float:
    """p = min(1, ln(T / beta) / W): all but beta / T of the users start to be remembered within W updates."""
    return min(1.0, math.log(T / beta) / W)


def starts(stream: Stream, W: int, T: int, beta: float, coins: Floats) -> tuple[float, Ints]:
    """p, and of each user the rank of the update that starts its being remembered [users]; `NEVER` for the others."""
    p = start_probability(W, T, beta)
    starting, first = np.flatnonzero(coins < p), np.full(stream.users, NEVER)
    np.minimum.at(first, stream.updates.user[starting], stream.updates.rank[starting])
    return p, first


def sample_hold(stream: Stream, W: int, delta: float, coins: Floats) -> Counted:
    """Few users are remembered: each update of another starts it with probability p, and lets W further ones in.

    The update after those blocks the user for good, and takes a present one out. So all but delta / 10 of the users
    change the count at most 2 W + 1 times: W - 1 before, the one that starts, W further, and the last deletion.
    (After Cummings et al., arXiv 2505.23682, whose details are not those.)

    Args:
        coins: uniform numbers of `stream.updates` [E].
    """
    beta = FAILING * delta
    updates = stream.updates
    p, first = starts(stream, W, stream.T, beta, coins)
    since = updates.rank - first[updates.user]
    accepted = updates.take((since <= W) | ((since == W + 1) & (updates.change == -1)))
    held = int((first < NEVER).sum())
    return Counted(
        name="sample_hold",
        counts=np.cumsum(accepted.differences(stream.T)),
        accepted=accepted,
        cap=2 * W + 1,
        bits=held * entry_bits(stream.T) + counter_bits(stream.T) + tree_bits(stream.T),
        entries=held,
        blocked=len(np.unique(updates.user[since > W])),
        failing=beta,
        start=p,
    )


def hard_budget(stream: Stream, W: int, delta: float, coins: Floats, entries: int) -> Counted:
    """Sample and hold that forgets whom it has remembered longest when more than `entries` are: broken.

    Who is forgotten depends on others, so one user changes what is counted of another, and a forgotten user starts
    anew.
    """
    beta = FAILING * delta
    p = start_probability(W, stream.T, beta)
    order = np.lexsort((np.arange(len(stream.user)), stream.user))
    in_time = np.empty(len(order))
    in_time[order] = coins
    held: OrderedDict[int, int] = OrderedDict()
    blocked: set[int] = set()
    kept = np.ones(len(stream.user), bool)
    most = 0
    for i, (user, op, coin) in enumerate(zip(stream.user.tolist(), stream.op.tolist(), in_time.tolist(), strict=True)):
        if user in held:
            held[user] += 1
            if held[user] > W:
                kept[i] = held[user] == W + 1 and op == -1
                blocked.add(user)
        elif coin < p and entries:
            if len(held) >= entries:
                held.popitem(last=False)
            held[user] = 0
            most = max(most, len(held))
    accepted = Changes(stream.step[order], stream.user[order], stream.op[order]).take(kept[order])
    return Counted(
        name="hard_budget",
        counts=np.cumsum(accepted.differences(stream.T)),
        accepted=accepted,
        cap=2 * W + 1,
        bits=most * entry_bits(stream.T) + counter_bits(stream.T) + tree_bits(stream.T),
        entries=most,
        blocked=len(blocked),
        failing=beta,
        start=p,
    )


def hyperloglog(stream: Stream, lg_k: int = 11) -> Counted:
    """Distinct users ever inserted, by a sketch of 2^lg_k registers: small, and blind to deletions.

    datasketches' HLL_8 (Flajolet et al. 2007).
    """
    from datasketches import hll_sketch, tgt_hll_type

    sketch = hll_sketch(lg_k, tgt_hll_type.HLL_8)
    inserted, estimates = stream.op == 1, [0]
    for user in stream.user[inserted].tolist():
        sketch.update(stream.names[user])
        estimates.append(round(sketch.get_estimate()))
    # The estimate after the last insertion up to each step.
    found = np.array(estimates)[np.searchsorted(stream.step[inserted], np.arange(1, stream.T + 1), side="right")]
    return Counted("hyperloglog", found, None, 0, 8 * len(sketch.serialize_updatable()), 0)
