"""What Gaussian noise costs in (epsilon, delta): exactly, both ways, and normal numbers that nobody can predict.

Balle and Wang, "Improving the Gaussian mechanism for differential privacy", arXiv 1805.06530: adding N(0, sd^2) to a
value of L2 sensitivity D is (epsilon, delta)-private exactly when, with v = sd / D,
Phi(1/(2v) - epsilon v) - e^epsilon Phi(-1/(2v) - epsilon v) <= delta.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_RELATIVE = 1e-13
_SUMMANDS = 4


class Normals(Protocol):
    """A source of independent standard normal numbers; numpy's Generator is one."""

    def standard_normal(self, size: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers of the shape `size`."""


class SecureNormals:
    """Standard normal numbers from the operating system's secure generator; nothing seeds or repeats them.

    Each is half the sum of four, so that the grid of floating-point numbers on which one lies does not tell its bits
    (Holohan and Braghin, "Secure random sampling in differential privacy", arXiv 2107.10138). About a million a second.
    """

    def standard_normal(self, size: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers of the shape `size`."""
        from scipy.special import ndtri

        n = math.prod(size)
        bits = np.frombuffer(os.urandom(8 * _SUMMANDS * n), np.uint64) >> np.uint64(12)
        # 52 bits and a half: the number is exact, inside (0, 1), and as often above 1/2 as below.
        drawn = ndtri((bits.astype(np.float64) + 0.5) * 2.0**-52)
        return drawn.reshape(_SUMMANDS, *size).sum(0) / math.sqrt(_SUMMANDS)


def gaussian_delta(epsilon: float, ratio: float) -> float:
    """The smallest delta at which a Gaussian release is (epsilon, delta)-private; ratio = sd / sensitivity > 0."""
    from scipy.special import log_ndtr, ndtr

    # The logarithm keeps e^epsilon from overflowing where the probability beside it vanishes.
    lost = math.exp(epsilon + float(log_ndtr(-0.5 / ratio - epsilon * ratio)))
    return max(0.0, float(ndtr(0.5 / ratio - epsilon * ratio)) - lost)


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The smallest epsilon at which a Gaussian release is (epsilon, delta)-private: rounded up, 0 where 0 will do.

    Args:
        ratio: standard deviation of the noise / L2 sensitivity, above 0.
        delta: between 0 and 1.
    """
    if gaussian_delta(0.0, ratio) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, ratio) > delta:
        high *= 2.0
    return _last(lambda epsilon: gaussian_delta(epsilon, ratio) <= delta, 0.0, high)


def gaussian_sd(epsilon: float, delta: float, sensitivity: float) -> float:
    """The analytic Gaussian mechanism: the smallest sd that makes a release (epsilon, delta)-private, rounded up.

    Args:
        epsilon: above 0.
        delta: between 0 and 1.
        sensitivity: L2 sensitivity of the released value, above 0. K releases of sensitivity D, each chosen in view of
            those before, cost as much as one of sensitivity D sqrt(K).
    """

    def private(log_ratio: float) -> bool:
        return gaussian_delta(epsilon, math.exp(log_ratio)) <= delta

    low = high = 0.0
    while not private(high):
        high += 1.0
    while private(low):
        low -= 1.0
    return sensitivity * math.exp(_last(private, low, high))


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """By bisection the end of the interval at which `holds` is true; it is at `high` and is not at `low`."""
    while high - low > _RELATIVE * max(1.0, abs(high)):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
