"""The paper's lower bound on memory, as a shape: constants and logarithms are omitted."""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats


def lower_bound(w: float | Floats, k: float | Floats, h: float | Floats) -> float | Floats:
    """k w / h^2 (Theorem 2.1): streams of k users with more than w updates, counted to within 10% and h."""
    return k * w / h**2


def corollary(T: Floats, q: float = 0.0) -> Floats:
    """T^(1/3 - 4q), from w = T^(2/3 - 4q), k = T^(1/3 - 2q) and h = T^(1/3 - q) (Corollary 2.2; 0 <= q < 1/12)."""
    T = np.asarray(T, np.float64)
    return np.asarray(lower_bound(T ** (2 / 3 - 4 * q), T ** (1 / 3 - 2 * q), T ** (1 / 3 - q)))
