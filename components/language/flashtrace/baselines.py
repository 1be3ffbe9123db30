"""What else scores a prompt's tokens: attention rollout, gradients, leaving sentences out, order, and chance."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.language.attention import Layer
from kfp_methods.components.language.generation import continuation_log_probs
from kfp_methods.components.language.models import LanguageModel

_SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]+\s*|[^.!?\n]+$")


@torch.no_grad()
def rollout(layers: Sequence[Layer], targets: Tensor) -> Tensor:
    """Attention rollout (Abnar and Zuidema 2020): rows `targets` of Π (½ A + ½ I), averaged [N].

    A is the mean over heads; the product runs from the last layer to the first.
    """
    N = layers[0].entering.shape[1]
    rows = torch.nn.functional.one_hot(targets, N).float()
    for layer in reversed(layers):
        rows = 0.5 * rows @ layer.weights()[0].float().mean(0) + 0.5 * rows
    return rows.mean(0)


def gradient_x_input(lm: LanguageModel, ids: Tensor, targets: Tensor) -> Tensor:
    """Σ_d g·e of each position [N]: the gradient of Σ log p(targets) times the embedding (signed)."""
    embeddings = _embeddings(lm, ids).requires_grad_()
    (gradient,) = torch.autograd.grad(_log_prob(lm, ids, targets)(embeddings[None]).sum(), embeddings)
    return (gradient * embeddings).detach().float().sum(-1)


def integrated_gradients(lm: LanguageModel, ids: Tensor, targets: Tensor, steps: int = 32) -> Tensor:
    """Integrated gradients (Sundararajan et al. 2017) from zero embeddings, summed over the width [N] (signed).

    RMSNorm makes the path steep next to zero, where few steps miss part of the difference that they should add up to.
    """
    from captum.attr import IntegratedGradients

    explained = IntegratedGradients(_log_prob(lm, ids, targets)).attribute(
        _embeddings(lm, ids)[None], n_steps=steps, internal_batch_size=1
    )
    return explained[0].detach().float().sum(-1)


def leave_one_out(lm: LanguageModel, ids: Sequence[int], groups: Sequence[Sequence[int]], continuation: int) -> Tensor:
    """How much log p of what follows the prompt falls when a sentence is replaced by filler, for its tokens [N].

    Args:
        groups: positions of each sentence.
        continuation: first position after the prompt.
    """
    prompts = [list(ids[:continuation])]
    for group in groups:
        changed = list(prompts[0])
        for position in group:
            changed[position] = lm.pad_id
        prompts.append(changed)
    scores = continuation_log_probs(lm, [(prompt, ids[continuation:]) for prompt in prompts])
    found = torch.zeros(len(ids))
    for group, score in zip(groups, scores[1:], strict=True):
        found[list(group)] = scores[0].sum() - score.sum()
    return found


def sentences(text: str) -> list[tuple[int, int]]:
    """Character ranges of the sentences of a text: up to a full stop, mark or line break."""
    return [match.span() for match in _SENTENCE.finditer(text)]


def earliest_first(n: int) -> Tensor:
    """The earlier the higher [n]: what a score gets that knows nothing but where evidence tends to lie."""
    return torch.arange(n, 0, -1, dtype=torch.float32)


def random_scores(n: int, seed: Sequence[int]) -> Tensor:
    """A random order [n]."""
    return torch.from_numpy(np.random.default_rng(seed).random(n, dtype=np.float32))


def _embeddings(lm: LanguageModel, ids: Tensor) -> Tensor:
    return lm.model.get_input_embeddings()(ids.to(lm.device)).detach()


def _log_prob(lm: LanguageModel, ids: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    """Σ log p of the target positions, as a function of embeddings [B, N, d] → [B]."""
    targets = targets.to(lm.device)
    wanted = ids.to(lm.device)[targets]

    def of(embeddings: Tensor) -> Tensor:
        hidden = lm.model.model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        logits = lm.model.lm_head(hidden[:, targets - 1]).float()
        return logits.log_softmax(-1).gather(-1, wanted.expand(len(logits), -1)[..., None]).sum((-1, -2))

    return of
