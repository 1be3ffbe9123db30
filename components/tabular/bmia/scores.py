"""A membership score is the margin by which a classifier's logits prefer the true class, in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.choices import ScoreName

BLOCK_ROWS = 10_000
BLOCK_LOGITS = 2**25  # 256 MiB of float64


def hinge(logits: Tensor, labels: Tensor) -> Tensor:
    """f_y - max of the other logits; `logits` [..., C], `labels` broadcasting to [...]; float64 [...]."""
    true, others = _true_and_others(logits, labels)
    return true - others.amax(-1)


def logit(logits: Tensor, labels: Tensor) -> Tensor:
    """f_y - logsumexp of the other logits = ln(p_y / (1 - p_y)); shapes as `hinge`."""
    true, others = _true_and_others(logits, labels)
    return true - others.logsumexp(-1)


def score(name: ScoreName, logits: Tensor, labels: Tensor) -> Tensor:
    """The named score; shapes as `hinge`."""
    return hinge(logits, labels) if name == "hinge" else logit(logits, labels)


def true_class_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax entry of the true class; `logits` [n, C], `labels` [n]; float64 [n]."""
    return logits.double().softmax(-1).gather(-1, labels[:, None])[:, 0]


def sample_scores(features: Tensor, labels: Tensor, weights: Tensor, name: ScoreName) -> Floats:
    """Scores of records under sampled last layers, streamed over blocks of at most 10,000 records.

    Args:
        features: cached penultimate features with a trailing 1 [n, D].
        labels: [n].
        weights: sampled weights [M, C, D].
        name: which score.

    Returns:
        Scores, float64 [n, M].
    """
    M, C, D = weights.shape
    rows = max(1, min(BLOCK_ROWS, BLOCK_LOGITS // (M * C)))
    stacked = weights.reshape(M * C, D).T
    scores = np.empty((len(features), M))
    for start in range(0, len(features), rows):
        block = slice(start, start + rows)
        logits = (features[block] @ stacked).reshape(-1, M, C)
        scores[block] = score(name, logits, labels[block, None]).cpu().numpy()
    return scores


def are_probabilities(values: Floats) -> bool:
    """Whether rows [n, C] look like class probabilities: not negative, summing to 1 within 0.01, rounded or not."""
    return bool(values.min() >= 0 and np.allclose(values.sum(-1, dtype=np.float64), 1, rtol=0, atol=1e-2))


def logits_of_probabilities(probabilities: Floats) -> Floats:
    """log p, float64 [n, C]: the logits up to a constant a row, which no score sees.

    Zeros are taken as the smallest normal number of the given precision, so that scores stay finite.
    """
    smallest = np.finfo(probabilities.dtype).tiny
    return np.log(np.maximum(probabilities, smallest).astype(np.float64))


def _true_and_others(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The true class's logit [...] and all logits with the true one at -inf [..., C]."""
    logits = logits.double()
    index = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    return logits.gather(-1, index).squeeze(-1), logits.scatter(-1, index, -torch.inf)
