"""Whether scores find what the answer rests on: deletion curves (RISE, MAS) and recovery of known evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kfp_methods.components.language.generation import continuation_log_probs
from kfp_methods.components.language.models import LanguageModel

_FLAT = 1e-6


@dataclass(frozen=True)
class Faithfulness:
    """Areas under deletion curves, lower is better; NaN where the curve is flat."""

    rise: float
    mas: float


def order(scores: np.ndarray) -> np.ndarray:
    """Positions of scores [n] from the largest absolute value down, ties by position."""
    return np.argsort(-np.abs(scores), kind="stable")


def recovery(scores: np.ndarray, evidence: np.ndarray, top_fraction: float) -> float:
    """Share of the evidence tokens (bool [n]) among the top ⌈top_fraction · n⌉ of the scores [n]."""
    top = order(scores)[: _top(len(scores), top_fraction)]
    return float(evidence[top].sum() / evidence.sum())


def recovery_ceiling(evidence: np.ndarray, top_fraction: float) -> float:
    """The most that `recovery` can be: there may be more evidence than places."""
    return min(1.0, _top(len(evidence), top_fraction) / int(evidence.sum()))


def deletion_groups(scores: np.ndarray, steps: int) -> list[np.ndarray]:
    """The tokens in the order of their scores [n], in `steps` nearly equal groups (fewer for fewer tokens)."""
    return np.array_split(order(scores), min(steps, len(scores)))


def deletion_curves(
    lm: LanguageModel,
    ids: Sequence[int],
    tokens: np.ndarray,
    groups: Mapping[str, Sequence[np.ndarray]],
    continuation: int,
    batch_size: int = 8,
) -> dict[str, np.ndarray]:
    """log p of what follows the prompt after 0, 1, … groups of its tokens were replaced by filler, for each scorer.

    An end token is appended unless the text has one. Prompts that scorers share, such as the whole one, are run once.

    Args:
        ids: of the whole text.
        tokens: positions that may be deleted; groups index into them.
        continuation: first position after the prompt.
    """
    rest = list(ids[continuation:])
    if lm.end_ids and rest[-1] not in lm.end_ids:
        rest.append(lm.end_ids[0])
    prompts = {name: _deleted(ids[:continuation], tokens, parts, lm.pad_id) for name, parts in groups.items()}
    distinct = list(dict.fromkeys(prompt for each in prompts.values() for prompt in each))
    scores = continuation_log_probs(lm, [(prompt, rest) for prompt in distinct], batch_size=batch_size)
    found = {prompt: float(score.double().sum()) for prompt, score in zip(distinct, scores, strict=True)}
    return {name: np.array([found[prompt] for prompt in each]) for name, each in prompts.items()}


def _deleted(
    prompt: Sequence[int], tokens: np.ndarray, groups: Sequence[np.ndarray], pad_id: int
) -> list[tuple[int, ...]]:
    """The prompt after 0, 1, … groups were replaced."""
    changed = list(prompt)
    found = [tuple(changed)]
    for group in groups:
        for position in tokens[group]:
            changed[position] = pad_id
        found.append(tuple(changed))
    return found


def faithfulness(log_probs: np.ndarray, scores: np.ndarray, groups: Sequence[np.ndarray]) -> Faithfulness:
    """RISE (Petsiuk et al. 2018) and MAS (Walker et al. 2024) of a deletion curve.

    Args:
        log_probs: s_0…s_T after each group.
        scores: of the deletable tokens [n].
        groups: what was deleted, step by step.
    """
    fall = abs(log_probs[0] - log_probs[-1])
    if fall < _FLAT:
        return Faithfulness(math.nan, math.nan)
    curve = np.minimum.accumulate(np.clip((log_probs - log_probs[-1]) / fall, 0, 1))
    return Faithfulness(_area(curve), _mas(curve, np.abs(scores), groups))


def _mas(curve: np.ndarray, sizes: np.ndarray, groups: Sequence[np.ndarray]) -> float:
    """Penalises a curve that does not fall as fast as the score that is deleted; NaN without score or spread."""
    total = sizes.sum()
    if not total > 0:
        return math.nan
    density = 1 - np.cumsum([0.0, *(sizes[group].sum() / total for group in groups)])
    penalised = np.clip(curve + np.abs(curve - density), 0, 1)
    spread = np.ptp(penalised)
    return _area((penalised - penalised.min()) / spread) if spread > 0 else math.nan


def _area(curve: np.ndarray) -> float:
    """Trapezoid mean over equal steps."""
    return float(np.trapezoid(curve) / (len(curve) - 1))


def _top(n: int, fraction: float) -> int:
    """⌈fraction · n⌉, not led astray by the rounding of, say, 0.1 · 30."""
    return max(1, math.ceil(round(fraction * n, 9)))
