"""Names of the columns in which the fitted attack takes a record and the target's output on it."""

from __future__ import annotations

import math
from collections.abc import Sequence


def default_features(input_shape: Sequence[int]) -> tuple[str, ...]:
    """Columns of inputs that came as arrays: x0, x1, …, the last axis fastest."""
    return tuple(f"x{index}" for index in range(math.prod(input_shape)))


def logit_columns(n_classes: int) -> tuple[str, ...]:
    """Columns of the target's outputs: logit0, logit1, …"""
    return tuple(f"logit{index}" for index in range(n_classes))
