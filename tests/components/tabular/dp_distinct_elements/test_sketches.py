"""Invertible Bloom lookup tables, and sample and hold by them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_methods.components.tabular.dp_distinct_elements import sketches
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Budget
from kfp_methods.components.tabular.dp_distinct_elements.sketches import Table
from tests.components.tabular.dp_distinct_elements.test_mechanisms import multiset


@given(st.integers(0, 200), st.integers(0, 10_000))
@settings(max_examples=40)
def test_a_table_tells_how_many_are_in_it(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids, times = rng.choice(2**40, 250, replace=False), rng.integers(1, 6, 250)
    table = Table(256)
    table.add(ids, times)
    table.add(ids[n:], -times[n:])
    assert table.size() == n


def test_too_many_are_said_to_be_too_many() -> None:
    table = Table(64)
    table.add(np.random.default_rng(0).choice(2**40, 500, replace=False), np.ones(500, np.int64))
    assert table.size() == 64


def test_levels_halve_the_users() -> None:
    zeros = sketches._trailing_zeros(np.array([1, 2, 12, 2**20, 2**63], np.uint64))
    assert zeros.tolist() == [0, 1, 2, 20, 63]
    hashes = np.random.default_rng(0).integers(0, 2**63, 100_000).astype(np.uint64)
    assert (sketches._trailing_zeros(hashes) >= 3).mean() == pytest.approx(1 / 8, rel=0.05)


def test_counts_are_right_but_for_noise() -> None:
    """At level 0, whose errors have the published standard deviation."""
    stream, budget = multiset(150, 60, 0), Budget(2_000.0, 1e-6, 150)
    errors = []
    for seed in range(6):
        found = sketches.sample_hold(stream, 40, budget, Randomness.seeded(seed), 256)
        assert found.counted.counts.tolist() == stream.present.tolist()
        errors.append((found.counts - stream.present) / found.sd)
    assert np.abs(np.mean(errors)) < 1
    assert np.std(errors) == pytest.approx(1, abs=0.35)


def test_many_users_are_counted_at_a_higher_level() -> None:
    stream, budget = multiset(60, 4_000, 1, per_step=20), Budget(5_000.0, 1e-6, 60)
    found = sketches.sample_hold(stream, 60, budget, Randomness.seeded(0), 256)
    assert found.sd[-1] > 2 * found.node_sd  # not level 0
    assert found.counts[-1] == pytest.approx(stream.present[-1], rel=0.35)


def test_tables_that_are_too_small_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "LEVELS", 1)  # twenty halvings more than a million users would need
    stream, budget = multiset(40, 400, 0, per_step=10), Budget(1e4, 1e-6, 40)
    with pytest.raises(sketches.UndecodableError, match="step"):
        sketches.sample_hold(stream, 40, budget, Randomness.seeded(0), 64)
