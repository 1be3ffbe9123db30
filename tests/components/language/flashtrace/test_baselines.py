"""Each baseline against its definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kfp_methods.components.language import models
from kfp_methods.components.language.attention import capture
from kfp_methods.components.language.flashtrace.baselines import (
    earliest_first,
    gradient_x_input,
    integrated_gradients,
    leave_one_out,
    random_scores,
    rollout,
    sentences,
)
from kfp_methods.components.language.models import LanguageModel
from tests.components.language import tiny_models

IDS = torch.randint(3, 320, (14,), generator=torch.Generator().manual_seed(4))
TARGETS = torch.tensor([11, 12, 13])


def log_prob(lm: LanguageModel, embeddings: torch.Tensor) -> torch.Tensor:
    logits = lm.model(inputs_embeds=embeddings).logits[0].log_softmax(-1)
    return sum(logits[place - 1, IDS[place]] for place in TARGETS)  # type: ignore[return-value]


def test_rollout_is_the_product_of_the_layers(any_lm: LanguageModel) -> None:
    layers = capture(any_lm, IDS[None]).layers
    product = torch.eye(14)
    for layer in layers:
        product = (0.5 * layer.weights()[0].mean(0) + 0.5 * torch.eye(14)) @ product
    scores = rollout(layers, TARGETS)
    torch.testing.assert_close(scores, product[TARGETS].mean(0))
    assert float(scores.sum()) == pytest.approx(1, abs=1e-5)


def test_rollout_of_uniform_attention(lm: LanguageModel) -> None:
    layers = capture(lm, IDS[None]).layers[:1]
    uniform = torch.full_like(layers[0].weights(), 1 / 14)
    scores = rollout([replace(layers[0], kept_weights=uniform)], torch.tensor([3]))
    assert scores[3] == pytest.approx(0.5 + 0.5 / 14)
    assert scores[0] == pytest.approx(0.5 / 14)


def test_gradient_x_input_is_captums(any_lm: LanguageModel) -> None:
    from captum.attr import InputXGradient

    embeddings = any_lm.model.get_input_embeddings()(IDS)[None].requires_grad_()
    expected = InputXGradient(lambda e: log_prob(any_lm, e)[None]).attribute(embeddings)[0].sum(-1)
    torch.testing.assert_close(gradient_x_input(any_lm, IDS, TARGETS), expected.detach(), rtol=1e-3, atol=1e-4)


def test_integrated_gradients_add_up_to_the_difference(tmp_path: Path) -> None:
    """Completeness: Σ = log p at the text minus log p at zero embeddings; a large ε keeps the path smooth."""
    lm = models.load(tiny_models.save(tmp_path / "smooth", rms_norm_eps=0.01))
    embeddings = lm.model.get_input_embeddings()(IDS)[None]
    with torch.no_grad():
        expected = float(log_prob(lm, embeddings) - log_prob(lm, torch.zeros_like(embeddings)))
    scores = integrated_gradients(lm, IDS, TARGETS, steps=256)
    assert abs(expected) > 0.05
    assert float(scores.sum()) == pytest.approx(expected, rel=0.01)


def test_leaving_a_sentence_out_costs_what_it_held(lm: LanguageModel) -> None:
    ids, groups = IDS.tolist(), [[0, 1, 2], [4, 5]]
    scores = leave_one_out(lm, ids, groups, 11)
    with torch.no_grad():
        whole = float(log_prob(lm, lm.model.get_input_embeddings()(IDS)[None]))
        for group in groups:
            changed = IDS.clone()
            changed[group] = lm.pad_id
            left = float(log_prob(lm, lm.model.get_input_embeddings()(changed)[None]))
            assert scores[group].tolist() == pytest.approx([whole - left] * len(group), abs=1e-3)
    assert not scores[[3, 6, 7, 8, 9, 10, 11, 12, 13]].any()


def test_sentences_cover_the_text() -> None:
    text = "One is 1. Two!\n\nThree? and no end"
    ranges = sentences(text)
    assert [text[start:stop].strip() for start, stop in ranges] == ["One is 1.", "Two!", "Three?", "and no end"]
    assert "".join(text[start:stop] for start, stop in ranges) == text


def test_random_order_is_the_seeds() -> None:
    assert torch.equal(random_scores(9, [0, 1]), random_scores(9, [0, 1]))
    assert not np.array_equal(random_scores(9, [0, 1]), random_scores(9, [0, 2]))


def test_earliest_first_is_the_texts_order() -> None:
    assert (-earliest_first(5)).argsort().tolist() == [0, 1, 2, 3, 4]
