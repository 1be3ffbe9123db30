"""What mechanisms count, whom they let in, and what they remember."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_methods.components.tabular.dp_distinct_elements import mechanisms, releasing, sample, streams, tree
from kfp_methods.components.tabular.dp_distinct_elements.measuring import two_thirds
from kfp_methods.components.tabular.dp_distinct_elements.mechanisms import Counted
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Budget
from kfp_methods.components.tabular.dp_distinct_elements.streams import Stream
from tests.components.tabular.dp_distinct_elements.streams_of import alternating, flipping


def brute_force(stream: Stream) -> list[int]:
    """D(t), update by update."""
    counts: dict[int, int] = {}
    found = [0] * stream.T
    at = 0
    for t in range(1, stream.T + 1):
        while at < len(stream.step) and stream.step[at] == t:
            user = int(stream.user[at])
            counts[user] = counts.get(user, 0) + int(stream.op[at])
            at += 1
        found[t - 1] = sum(value > 0 for value in counts.values())
    return found


def multiset(T: int, users: int, seed: int, per_step: int = 1) -> Stream:
    """Users insert and delete several of theirs; `per_step` updates in each step."""
    rng = np.random.default_rng([seed, 2])
    counts, user, op = [0] * users, [], []
    for _ in range(T * per_step):
        u = int(rng.integers(0, users))
        change = -1 if counts[u] and rng.random() < 0.5 else 1
        counts[u] += change
        user.append(u)
        op.append(change)
    used, codes = np.unique(user, return_inverse=True)
    step = np.repeat(np.arange(1, T + 1), per_step)
    return Stream(step, codes, np.array(op), T, tuple(f"u{u}" for u in used), multiset=True)


@given(st.integers(1, 80), st.integers(1, 8), st.integers(0, 1_000), st.integers(1, 4))
def test_presence_is_counted_exactly(T: int, users: int, seed: int, per_step: int) -> None:
    for stream in (alternating(T, users, seed), multiset(T, users, seed, per_step)):
        assert stream.present.tolist() == brute_force(stream)


@given(st.integers(1, 80), st.integers(1, 6), st.integers(0, 1_000))
def test_with_a_large_cap_and_no_noise_every_mechanism_is_exact(T: int, users: int, seed: int) -> None:
    stream = alternating(T, users, seed)
    coins = Randomness.seeded(seed).coins(stream)
    truth = brute_force(stream)
    found = [
        mechanisms.exact(stream),
        mechanisms.counter(stream),
        mechanisms.nocap(stream),
        mechanisms.tree_linear(stream, T),
        mechanisms.sample_hold(stream, T, 1e-6, coins),
        mechanisms.hard_budget(stream, T, 1e-6, coins, 2),
    ]
    for one in found:
        assert one.counts.tolist() == truth, one.name
        assert not one.blocked
    assert mechanisms.tree_linear(multiset(T, users, seed), T).counts.tolist() == brute_force(multiset(T, users, seed))


def test_the_baseball_stream_is_what_it_is_said_to_be() -> None:
    events, years = sample.by_event(), sample.by_year()
    assert (events.T, events.users, int(events.flippancy.max()), int(events.present.max())) == (3370, 1228, 16, 330)
    assert (years.T, years.users, int(years.present[-1])) == (137, 1228, int(events.present[-1]))
    assert (np.diff(sample.years()) >= 0).all()
    left_out = [np.abs(mechanisms.tree_linear(events, W).counts - events.present).max() for W in (2, 4, 8, 16)]
    assert left_out == [60, 9, 1, 0]


def test_sample_and_hold_lets_in_w_updates_after_the_start_and_takes_the_user_out() -> None:
    T, W = 400, 200
    stream = flipping(T)
    coins = np.ones(T)
    coins[2] = 0  # the third update, an insertion, starts it
    found = mechanisms.sample_hold(stream, W, 1e-6, coins)
    assert found.start == pytest.approx(np.log(T / 1e-7) / W)
    assert found.accepted is not None
    # Two before, the start, W further, which end with an insertion: the deletion after it takes the user out.
    assert found.accepted.step.tolist() == list(range(1, 3 + W + 2))
    assert not found.counts[3 + W :].any()
    assert found.entries == 1
    assert found.blocked == 1


@pytest.mark.parametrize("start", range(6))
def test_nobody_stays_in_the_count_for_good(start: int) -> None:
    """Wherever the start lies, the blocked user is out in the end, and changed the count 2 W + 1 times at most."""
    T, W = 100, 30
    coins = np.ones(T)
    coins[start] = 0
    found = mechanisms.sample_hold(flipping(T), W, 1e-6, coins)
    assert found.accepted is not None
    assert found.counts[-1] == 0
    assert len(found.accepted.user) <= 2 * W + 1
    assert set(np.abs(np.diff(np.r_[0, found.counts]))) <= {0, 1}


def test_small_caps_remember_everyone() -> None:
    stream = sample.by_event()
    found = mechanisms.sample_hold(stream, 4, 1e-6, Randomness.seeded(0).coins(stream))
    assert found.start == 1.0
    assert found.entries == stream.users


@given(st.integers(40, 200), st.integers(1, 4), st.integers(0, 2_000))
@settings(max_examples=60)
def test_one_user_changes_few_places_and_no_other_user(T: int, W: int, seed: int) -> None:
    stream = alternating(T, 4, seed)
    out = int(np.random.default_rng(seed).integers(0, stream.users))
    other = stream.without(out)
    key = Randomness.seeded(seed)
    delta = 1e-3  # a start probability below 1 at caps as small as these
    wide = 12 * W

    def both(name: str, at: Stream) -> Counted:
        if name == "tree":
            return mechanisms.tree_linear(at, W)
        return mechanisms.sample_hold(at, wide, delta, key.coins(at))

    for name, most in (("tree", W), ("hold", 2 * wide + 1)):
        with_user, without = both(name, stream), both(name, other)
        difference = np.diff(np.r_[0, with_user.counts - without.counts])
        if name == "hold":  # all but delta / 10 of the users start in time
            first = key.coins(stream)[stream.updates.user == out] < with_user.start
            if not first[:wide].any() and len(first) > wide:
                continue
        assert np.count_nonzero(difference) <= most
        signs = difference[difference != 0]
        assert (signs[1:] == -signs[:-1]).all()
        assert with_user.accepted is not None
        assert without.accepted is not None
        kept = with_user.accepted.take(with_user.accepted.user != out)
        assert kept.step.tolist() == without.accepted.step.tolist()


def test_a_shared_memory_makes_users_depend_on_each_other() -> None:
    """What hard_budget is there to show: without one user others' updates are counted differently."""
    changed = 0
    for seed in range(20):
        stream = alternating(300, 6, seed)
        key = Randomness.seeded(seed)
        with_user = mechanisms.hard_budget(stream, 3, 1e-6, key.coins(stream), 2)
        other = stream.without(0)
        without = mechanisms.hard_budget(other, 3, 1e-6, key.coins(other), 2)
        assert with_user.accepted is not None
        assert without.accepted is not None
        kept = with_user.accepted.take(with_user.accepted.user != 0)
        changed += kept.step.tolist() != without.accepted.step.tolist()
    assert changed > 10


def test_names_matter_to_coins_only() -> None:
    stream = streams.made(2_000, 0)
    renamed = Stream(stream.step, stream.user, stream.op, stream.T, stream.names[::-1])
    coins = Randomness.seeded(1).coins(stream)
    assert not np.array_equal(coins, Randomness.seeded(1).coins(renamed))
    W = two_thirds(2_000)
    one, two = (mechanisms.sample_hold(s, W, 1e-6, coins) for s in (stream, renamed))
    assert np.array_equal(one.counts, two.counts)


def test_no_events_give_noise_around_zero() -> None:
    empty = Stream(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int), 64, ())
    budget = Budget(1.0, 1e-6, 64)
    counted = mechanisms.tree_linear(empty, 2)
    counts = [releasing.release(counted, budget, Randomness.seeded(s)).counts[-1] for s in range(2_000)]
    sd = budget.node_sd(counted)
    assert abs(np.mean(counts)) < 4 * sd / np.sqrt(2_000)
    assert np.std(counts) == pytest.approx(sd, rel=0.1)


def test_memory_by_the_written_rule() -> None:
    stream = streams.made(1024, 0)
    assert mechanisms.counter(stream).bits == 11
    assert mechanisms.tree_linear(stream, 9).bits == stream.users * (64 + 11 + 1) + 64 * 11
    held = mechanisms.sample_hold(stream, two_thirds(1024), 1e-6, Randomness.seeded(0).coins(stream))
    assert held.bits == held.entries * 76 + 11 + 64 * 11
    assert held.entries < stream.users / 2


def test_hyperloglog_counts_whom_it_has_ever_seen() -> None:
    stream = sample.by_event()
    found = mechanisms.hyperloglog(stream)
    ever = np.cumsum(np.bincount(stream.step[np.unique(stream.user, return_index=True)[1]] - 1, minlength=stream.T))
    assert np.abs(found.counts / ever - 1).max() < 0.1
    assert found.counts[-1] > 3 * stream.present[-1]


def test_the_cap_is_raised_when_many_exceed_it_and_only_then() -> None:
    """With a generous budget the sparse vector test finds that everyone flips often."""
    T, users = 4_096, 400
    stream = alternating(T, users, 0)
    plenty, little = (
        releasing.tree_linear_auto(stream, Budget(epsilon, 1e-6, T), Randomness.seeded(1)) for epsilon in (5_000.0, 1.0)
    )
    assert plenty.counted.cap > 1
    assert little.counted.cap == 1
    assert tree.levels(T) == 12
    # rho / (2 (L + 1)) for each copy.
    rho = tree.zcdp(1.0, 1e-6) / (2 * 13)
    assert little.node_sd == pytest.approx(np.sqrt(13 / (2 * rho)))
