"""Random streams to try mechanisms on."""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.dp_distinct_elements.streams import Stream


def alternating(T: int, users: int, seed: int) -> Stream:
    """Every step a random user comes or goes."""
    rng = np.random.default_rng([seed, 1])
    user = rng.integers(0, users, T)
    present = np.zeros(users, bool)
    op = np.empty(T, np.int64)
    for t, u in enumerate(user):
        present[u] = not present[u]
        op[t] = 1 if present[u] else -1
    used, codes = np.unique(user, return_inverse=True)
    return Stream(np.arange(1, T + 1), codes, op, T, tuple(f"user {u}" for u in used))


def flipping(T: int, *, first: int = 1) -> Stream:
    """One user who flips at every step from `first` on."""
    steps = np.arange(first, T + 1)
    op = np.where((steps - first) % 2 == 0, 1, -1)
    return Stream(steps, np.zeros(len(steps), np.int64), op, T, ("only",))
