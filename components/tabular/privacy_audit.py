"""What a distinguishing attack proves: a lower bound on a mechanism's epsilon, from how well it tells two data sets.

An (epsilon, delta)-private mechanism makes any event at most e^epsilon times as likely, plus delta, on one of two
neighbouring data sets as on the other. So an attack that finds an event of probabilities a and b proves that
epsilon >= ln((a - delta) / b); with Clopper and Pearson's intervals for both it does so at a chosen confidence
(Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", arXiv 2006.07709). A bound above the
promise refutes it; one below says only that this attack found nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TRIED = 200
_LEAST = 20  # scores in each half: fewer bound nothing


@dataclass(frozen=True)
class Audit:
    """A lower bound on epsilon, and the event that proves it.

    Attributes:
        epsilon: the lower bound; 0 where the attack proves nothing.
        threshold: the event is a score above it, or below it where `above` is false.
        above: which.
        with_row: how often it happened on the data set that the attack looks for.
        without_row: how often on its neighbour.
        trials: of each, which the frequencies are of.
        level: confidence of the bound.
    """

    epsilon: float
    threshold: float
    above: bool
    with_row: float
    without_row: float
    trials: int
    level: float


def audit(with_row: ArrayLike, without_row: ArrayLike, *, delta: float, level: float = 0.95) -> Audit:
    """The lower bound that an attack's scores prove; the first half chooses the event, the second half measures it.

    Args:
        with_row: scores of independent runs on one data set [n], 40 or more; higher should mean this one.
        without_row: the same on a neighbour [n].
        delta: the mechanism's.
        level: confidence of the bound.

    Raises:
        ValueError: fewer than 40 scores, other lengths, or scores that are no numbers.
    """
    first, second = (np.asarray(scores, np.float64) for scores in (with_row, without_row))
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2 * _LEAST:
        raise ValueError(f"scores of shapes {first.shape} and {second.shape}; give {2 * _LEAST} or more of each")
    if np.isnan(first).any() or np.isnan(second).any():
        raise ValueError("a score is not a number")
    half = len(first) // 2
    threshold, above = _choose(first[:half], second[:half], delta, level)
    counts = [_count(scores[half:], threshold, above=above) for scores in (first, second)]
    n = len(first) - half
    # Which of the two probabilities is the larger was settled by the first half.
    likely, unlikely = counts if above else counts[::-1]
    epsilon = epsilon_lower_bound(likely, unlikely, n, delta=delta, level=level)
    return Audit(epsilon, threshold, above, counts[0] / n, counts[1] / n, n, level)


def epsilon_lower_bound(likely: int, unlikely: int, trials: int, *, delta: float, level: float = 0.95) -> float:
    """ln((a - delta) / b), a the lower limit of `likely` of the trials and b the upper one of `unlikely`; 0 at least.

    Each limit is one-sided at confidence (1 + level) / 2, so that both hold at once at `level`.
    """
    return float(_bounds(np.array([likely]), np.array([unlikely]), trials, delta, level)[0])


def _bounds(
    likely: NDArray[np.int64], unlikely: NDArray[np.int64], trials: int, delta: float, level: float
) -> NDArray[np.float64]:
    """`epsilon_lower_bound` of each pair of counts."""
    error = 0.5 * (1.0 - level)
    low, high = _lower_limit(likely, trials, error), 1.0 - _lower_limit(trials - unlikely, trials, error)
    return np.log(np.maximum(1.0, (low - delta) / high))


def _choose(first: NDArray[np.float64], second: NDArray[np.float64], delta: float, level: float) -> tuple[float, bool]:
    """The threshold and side of the largest bound on these scores."""
    tried = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.0, 1.0, _TRIED + 1)))
    n = len(first)
    counts = [n - np.searchsorted(np.sort(scores), tried, side="right") for scores in (first, second)]
    above = _bounds(counts[0], counts[1], n, delta, level)
    below = _bounds(n - counts[1], n - counts[0], n, delta, level)
    best = int(np.argmax(np.maximum(above, below)))
    return float(tried[best]), bool(above[best] >= below[best])


def _count(scores: NDArray[np.float64], threshold: float, *, above: bool) -> int:
    return int((scores > threshold).sum() if above else (scores <= threshold).sum())


def _lower_limit(count: NDArray[np.int64], trials: int, error: float) -> NDArray[np.float64]:
    """Clopper and Pearson's one-sided lower limits of probabilities."""
    from scipy.stats import beta

    return np.where(count > 0, beta.ppf(error, np.maximum(count, 1), trials - count + 1), 0.0)
