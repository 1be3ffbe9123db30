"""Generation and scores against the plain way to compute them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from transformers import GenerationConfig

from kfp_methods.components.language import models
from kfp_methods.components.language.generation import (
    Sampling,
    continuation_log_probs,
    generate,
    padded,
    perplexity,
)
from kfp_methods.components.language.models import LanguageModel
from kfp_methods.errors import InputError
from tests.components.language import tiny_models

PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16]]


def greedy(lm: LanguageModel, prompt: list[int], n: int) -> list[int]:
    """One token at a time, the whole text anew each time."""
    text = list(prompt)
    for _ in range(n):
        token = int(lm.model(torch.tensor([text])).logits[0, -1].argmax())
        if token in lm.end_ids:
            break
        text.append(token)
    return text[len(prompt) :]


def test_greedy_is_the_likeliest_token_at_each_step(any_lm: LanguageModel) -> None:
    assert generate(any_lm, PROMPTS, max_new_tokens=12) == [greedy(any_lm, prompt, 12) for prompt in PROMPTS]


@pytest.mark.parametrize("sampling", [None, Sampling(1.0, seed=3), Sampling(0.7, top_k=5, top_p=0.9, seed=3)])
def test_a_text_does_not_depend_on_its_batch(lm: LanguageModel, sampling: Sampling | None) -> None:
    together = generate(lm, PROMPTS, max_new_tokens=10, sampling=sampling, batch_size=3)
    assert together == generate(lm, PROMPTS, max_new_tokens=10, sampling=sampling, batch_size=1)
    assert together == generate(lm, PROMPTS, max_new_tokens=10, sampling=sampling, batch_size=3)


def test_seeds_differ_and_global_randomness_plays_no_part(lm: LanguageModel) -> None:
    torch.manual_seed(0)
    first = generate(lm, PROMPTS, max_new_tokens=10, sampling=Sampling(1.0, seed=1))
    torch.manual_seed(1)
    assert generate(lm, PROMPTS, max_new_tokens=10, sampling=Sampling(1.0, seed=1)) == first
    assert generate(lm, PROMPTS, max_new_tokens=10, sampling=Sampling(1.0, seed=2)) != first


def test_draws_follow_the_models_probabilities(lm: LanguageModel) -> None:
    """Of 2,000 draws, the ten likeliest tokens come as often as they should."""
    probabilities = lm.model(torch.tensor([PROMPTS[0]])).logits[0, -1].div(2).softmax(-1)
    drawn = generate(lm, [PROMPTS[0]] * 2_000, max_new_tokens=1, sampling=Sampling(2.0, seed=5), batch_size=500)
    counts = torch.zeros(lm.vocabulary)
    for tokens in drawn:
        counts[tokens[0] if tokens else lm.end_ids[0]] += 1
    top = probabilities.topk(10).indices
    observed = [*counts[top].tolist(), float(counts.sum() - counts[top].sum())]
    shares = [*probabilities[top].tolist(), float(1 - probabilities[top].sum())]
    assert chisquare(observed, [2_000 * share / sum(shares) for share in shares]).pvalue > 1e-3


def test_top_k_of_one_is_greedy(lm: LanguageModel) -> None:
    drawn = generate(lm, PROMPTS, max_new_tokens=8, sampling=Sampling(1.0, top_k=1, seed=9))
    assert drawn == generate(lm, PROMPTS, max_new_tokens=8)


def test_a_folders_own_settings_do_not_steer(tmp_path_factory: pytest.TempPathFactory, lm: LanguageModel) -> None:
    folder = tiny_models.save(tmp_path_factory.mktemp("settings") / "tiny")
    GenerationConfig(
        repetition_penalty=9.0, do_sample=True, temperature=5.0, eos_token_id=[0, 1], max_length=3
    ).save_pretrained(folder)
    steered = models.load(folder)
    assert steered.end_ids == (0, 1)
    assert generate(steered, PROMPTS[:1], max_new_tokens=8) == [greedy(steered, PROMPTS[0], 8)]


def test_log_probabilities_are_those_of_the_logits(any_lm: LanguageModel) -> None:
    pairs = [([5, 6, 7], [8, 9]), ([4], [10, 11, 12, 13]), ([1, 2, 3, 4, 5, 6], [7])]
    for batch_size in (1, 3):
        scores = continuation_log_probs(any_lm, pairs, batch_size=batch_size)
        for (prompt, continuation), score in zip(pairs, scores, strict=True):
            logits = any_lm.model(torch.tensor([[*prompt, *continuation]])).logits[0].log_softmax(-1)
            expected = [logits[len(prompt) - 1 + k, token] for k, token in enumerate(continuation)]
            torch.testing.assert_close(score, torch.stack(expected).detach(), rtol=1e-4, atol=1e-4)


def test_perplexity_is_the_exponential_of_the_mean(lm: LanguageModel) -> None:
    texts = [[3, 4, 5, 6], [7, 8]]
    loss = [float(lm.model(torch.tensor([text]), labels=torch.tensor([text])).loss) for text in texts]
    assert perplexity(lm, texts) == pytest.approx(math.exp((3 * loss[0] + loss[1]) / 4), rel=1e-4)


def test_padding_is_on_the_side_that_is_asked_for() -> None:
    ids, mask = padded([[5, 6], [7]], 2, side="left")
    assert ids.tolist() == [[5, 6], [2, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    assert padded([[5, 6], [7]], 2, side="right")[0].tolist() == [[5, 6], [7, 2]]


def test_numbers_out_of_range_are_the_users_to_mend(tmp_path: Path) -> None:
    lm = models.load(tiny_models.save(tmp_path / "large", scale=3_000.0), dtype="float16")
    for work in (
        lambda: generate(lm, PROMPTS, max_new_tokens=2),
        lambda: continuation_log_probs(lm, [(PROMPTS[0], [5, 6])]),
    ):
        with pytest.raises(InputError, match=r"dtype=float16: .*not finite"):
            work()


def test_empty_texts_are_refused(lm: LanguageModel) -> None:
    with pytest.raises(ValueError, match="no tokens"):
        generate(lm, [[]], max_new_tokens=1)
    with pytest.raises(ValueError, match="no tokens"):
        continuation_log_probs(lm, [([1], [])])
