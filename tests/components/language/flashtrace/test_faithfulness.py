"""Deletion curves and recovery on cases whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kfp_methods.components.language.flashtrace.faithfulness import (
    deletion_curves,
    deletion_groups,
    faithfulness,
    order,
    recovery,
    recovery_ceiling,
)
from kfp_methods.components.language.models import LanguageModel


def test_equal_scores_are_taken_in_the_texts_order() -> None:
    assert order(np.ones(7)).tolist() == list(range(7))
    assert order(np.array([0.1, -3.0, 2.0, -3.0])).tolist() == [1, 3, 2, 0]
    assert [group.tolist() for group in deletion_groups(np.ones(5), 2)] == [[0, 1, 2], [3, 4]]
    assert len(deletion_groups(np.ones(3), 20)) == 3


@pytest.mark.parametrize("steps", [2, 8, 20])
def test_a_drop_after_the_first_group_is_best(steps: int) -> None:
    scores = np.ones(40)
    log_probs = np.array([-1.0, *[-9.0] * steps])
    found = faithfulness(log_probs, scores, deletion_groups(scores, steps))
    assert found.rise == pytest.approx(1 / (2 * steps))


def test_a_curve_that_falls_with_the_score_has_no_penalty() -> None:
    """n = d = 1, ½, 0: MAS is RISE."""
    scores = np.ones(10)
    found = faithfulness(np.array([0.0, -1.0, -2.0]), scores, deletion_groups(scores, 2))
    assert found.rise == found.mas == pytest.approx(0.5)


def test_mas_by_hand() -> None:
    """Scores 3, 1 and curve 1, ¾, 0: d = 1, ¼, 0, penalised 1, min(1, ¾ + ½) = 1, 0."""
    scores = np.array([3.0, 1.0])
    found = faithfulness(np.array([0.0, -1.0, -4.0]), scores, deletion_groups(scores, 2))
    assert found.rise == pytest.approx((0.5 * 1 + 0.75 + 0.5 * 0) / 2)
    assert found.mas == pytest.approx((0.5 + 1.0) / 2)


def test_a_curve_may_not_rise() -> None:
    scores = np.ones(9)
    up = faithfulness(np.array([0.0, -3.0, -1.0, -4.0]), scores, deletion_groups(scores, 3))
    flat = faithfulness(np.array([0.0, -3.0, -3.0, -4.0]), scores, deletion_groups(scores, 3))
    assert up.rise == flat.rise


def test_flat_curves_are_not_invented() -> None:
    scores = np.ones(4)
    found = faithfulness(np.array([-2.0, -2.1, -2.0]), scores, deletion_groups(scores, 2))
    assert math.isnan(found.rise) and math.isnan(found.mas)  # noqa: PT018
    assert math.isnan(faithfulness(np.array([0.0, -1.0]), np.zeros(4), deletion_groups(np.zeros(4), 1)).mas)


def test_recovery_and_its_ceiling() -> None:
    scores = np.arange(30.0)[::-1]
    evidence = np.isin(np.arange(30), [0, 2, 3, 20])
    assert recovery(scores, evidence, 0.1) == 0.5
    assert recovery_ceiling(evidence, 0.1) == 0.75
    assert recovery(scores, evidence, 1.0) == recovery_ceiling(evidence, 1.0) == 1.0
    assert recovery(scores, evidence, 0.001) == 0.25


def test_curves_are_the_models(lm: LanguageModel) -> None:
    """Each point against the plain way: replace, append the end token, sum."""
    ids, tokens = [5, 6, 7, 8, 9, 10, 11], np.array([1, 2, 3])
    groups = {"up": [np.array([2]), np.array([0, 1])], "down": [np.array([0]), np.array([1, 2])]}
    found = deletion_curves(lm, ids, tokens, groups, 5)
    for name, deleted in {"up": ([], [3], [1, 2, 3]), "down": ([], [1], [1, 2, 3])}.items():
        for value, positions in zip(found[name], deleted, strict=True):
            text = [lm.pad_id if place in positions else token for place, token in enumerate(ids)] + [lm.end_ids[0]]
            log_probs = lm.model(torch.tensor([text])).logits[0].log_softmax(-1)
            expected = sum(float(log_probs[place - 1, text[place]]) for place in (5, 6, 7))
            assert value == pytest.approx(expected, abs=1e-3)
    ended = deletion_curves(lm, [*ids, lm.end_ids[0]], tokens, groups, 5)
    assert ended["up"] == pytest.approx(found["up"])
