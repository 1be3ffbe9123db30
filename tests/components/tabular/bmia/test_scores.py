"""Scores are margins of the true class: values by hand, shift invariance, probabilities equal logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kfp_methods.components.tabular.bmia import scores
from kfp_methods.components.tabular.bmia.choices import ScoreName

LOGITS = torch.tensor([[2.0, 1.0, 0.5]])
LABELS = torch.tensor([0])


def test_hinge_is_the_margin_over_the_best_other_class() -> None:
    assert scores.hinge(LOGITS, LABELS).tolist() == [1.0]


def test_logit_score_is_the_log_odds_of_the_true_class() -> None:
    value = scores.logit(LOGITS, LABELS).item()
    p = torch.softmax(LOGITS.double(), -1)[0, 0].item()
    assert value == pytest.approx(0.5259230, abs=1e-7)
    assert value == pytest.approx(math.log(p / (1 - p)), abs=1e-12)


def test_scores_broadcast_labels_over_posterior_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, 4, generator=generator)  # [n, M, C]
    labels = torch.randint(0, 4, (7,), generator=generator)
    together = scores.hinge(logits, labels[:, None])
    for m in range(5):
        assert torch.equal(together[:, m], scores.hinge(logits[:, m], labels))


@pytest.mark.parametrize("name", ["hinge", "logit"])
def test_a_constant_added_to_a_records_logits_changes_nothing(name: ScoreName) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    shift = 20 * torch.randn(50, 1, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 6, (50,), generator=generator)
    torch.testing.assert_close(scores.score(name, logits + shift, labels), scores.score(name, logits, labels))


@pytest.mark.parametrize("name", ["hinge", "logit"])
def test_scores_of_probabilities_equal_scores_of_the_logits_they_came_from(name: ScoreName) -> None:
    """log softmax differs from the logits by a constant, so both scores survive."""
    generator = torch.Generator().manual_seed(2)
    logits = 4 * torch.randn(50, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 6, (50,), generator=generator)
    recovered = torch.from_numpy(scores.logits_of_probabilities(torch.softmax(logits, -1).numpy()))
    torch.testing.assert_close(scores.score(name, recovered, labels), scores.score(name, logits, labels))


def test_saturated_probabilities_give_finite_scores() -> None:
    logits = torch.from_numpy(scores.logits_of_probabilities(np.array([[1.0, 0.0, 0.0]], dtype=np.float32)))
    for name in ("hinge", "logit"):
        assert torch.isfinite(scores.score(name, logits, torch.tensor([1]))).all()


def test_probabilities_are_told_from_logits() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert scores.are_probabilities(probabilities)
    assert scores.are_probabilities(probabilities.astype(np.float16))
    assert not scores.are_probabilities(logits)
    assert not scores.are_probabilities(logits / logits.sum(1, keepdims=True))
    assert not scores.are_probabilities(np.abs(logits))


def test_true_class_probability_is_the_softmax_entry() -> None:
    expected = torch.softmax(LOGITS.double(), -1)[0, 2].item()
    assert scores.true_class_probability(LOGITS, torch.tensor([2])).item() == pytest.approx(expected, abs=1e-12)
