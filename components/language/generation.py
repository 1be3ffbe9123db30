"""Batched text generation with seeds, and the log-probabilities that a model gives to texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.language.models import LanguageModel, not_finite

T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 takes the likeliest token; else logits are divided by it before a token is drawn.
        top_k: draw among the k likeliest; 0 for all.
        top_p: draw among the likeliest that together hold this probability.
        seed: of the draws; each prompt has a generator of its own, so its text does not depend on the others'.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


@torch.no_grad()
def generate(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    batch_size: int = 8,
) -> list[list[int]]:
    """Token ids that continue each prompt, up to and without the model's end token.

    Nothing but the arguments steers the choice: a folder's own generation settings are not used.

    Args:
        prompts: token ids, at least one each; padded on the left in a batch.

    Raises:
        InputError: the model's numbers leave the range of their type.
        ValueError: a prompt is empty.
    """
    from transformers import GenerationConfig, LogitsProcessorList

    if not all(prompts):
        raise ValueError("a prompt has no tokens")
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=list(lm.end_ids) or None,
        pad_token_id=lm.pad_id,
    )
    texts: list[list[int]] = []
    for batch in batches(prompts, batch_size):
        ids, mask = padded(batch, lm.pad_id, side="left")
        made = lm.model.generate(  # type: ignore[operator]
            ids.to(lm.device),
            attention_mask=mask.to(lm.device),
            generation_config=config,
            logits_processor=LogitsProcessorList(_processors(lm, sampling, len(texts), len(batch))),
        )
        texts += [_until_end(row, lm.end_ids) for row in made[:, ids.shape[1] :].tolist()]
    return texts


@torch.no_grad()
def continuation_log_probs(
    lm: LanguageModel,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    batch_size: int = 8,
) -> list[Tensor]:
    """log p of each token of a continuation, given its prompt and what came before it.

    Args:
        pairs: token ids of (prompt, continuation), at least one token each.

    Returns:
        For each pair a float32 tensor on the CPU, as long as its continuation; its sum is log p(continuation).

    Raises:
        InputError: the model's numbers leave the range of their type.
        ValueError: a prompt or continuation is empty.
    """
    if not all(prompt and continuation for prompt, continuation in pairs):
        raise ValueError("a prompt or continuation has no tokens")
    found: list[Tensor] = []
    for batch in batches(pairs, batch_size):
        ids, mask = padded([[*prompt, *continuation] for prompt, continuation in batch], lm.pad_id, side="right")
        hidden = lm.model.model(
            input_ids=ids.to(lm.device), attention_mask=mask.to(lm.device), use_cache=False
        ).last_hidden_state
        for row, (prompt, continuation) in enumerate(batch):
            # The state at a position predicts the next one; only these rows meet the large output matrix.
            states = hidden[row, len(prompt) - 1 : len(prompt) + len(continuation) - 1]
            logits = lm.model.lm_head(states).float()
            targets = torch.tensor(continuation, device=logits.device)
            scores = -torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            if scores.isnan().any():
                raise not_finite(lm)
            found.append(scores.cpu())
    return found


def perplexity(lm: LanguageModel, texts: Sequence[Sequence[int]], *, batch_size: int = 8) -> float:
    """exp of the mean negative log-probability of all tokens but each text's first.

    Args:
        texts: token ids, at least two each; none longer than the model's context.
    """
    scores = continuation_log_probs(lm, [(text[:1], text[1:]) for text in texts], batch_size=batch_size)
    return float(torch.cat(scores).double().mean().neg().exp())


def padded(rows: Sequence[Sequence[int]], pad_id: int, *, side: str) -> tuple[Tensor, Tensor]:
    """Rows of ids as one tensor [B, longest], and 1 where there is a token, 0 where there is filler."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad_id)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(0, len(row))
        ids[number, place], mask[number, place] = torch.tensor(row), 1
    return ids, mask


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Consecutive parts of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))


class _Gumbel:
    """Adds Gumbel noise to the logits: the largest sum is then a draw from their softmax (Gumbel 1954)."""

    def __init__(self, seed: int, first: int, count: int) -> None:
        self.generators = [
            torch.Generator().manual_seed(int(np.random.SeedSequence((seed, number)).generate_state(1)[0]))
            for number in range(first, first + count)
        ]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        noise = torch.empty(scores.shape)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.log().to(scores)


class _Numbers:
    """Refuses logits that are not numbers, of which any token would be the largest."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if scores.isnan().any():
            raise not_finite(self.lm)
        return scores


def _processors(lm: LanguageModel, sampling: Sampling | None, first: int, count: int) -> list[Any]:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    steps: list[Any] = [_Numbers(lm)]
    if sampling is None or sampling.temperature == 0:
        return steps
    steps.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(TopPLogitsWarper(sampling.top_p))
    return [*steps, _Gumbel(sampling.seed, first, count)]


def _until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    stop = next((place for place, number in enumerate(ids) if number in ends), len(ids))
    return list(ids[:stop])
