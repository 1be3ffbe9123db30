"""Attributes an answer of many tokens to its prompt: one aggregated pass for the span, then hops through the reasoning.

Equations of "Towards Long-Horizon Interpretability" (arXiv 2602.01914); the numbers of steps are those of this file.
Symbols: N positions, H heads, d the width; x, y the residual stream before and after attention, α attention weights,
f_{j,h} what head h reads at source j. Positions of one text only, so that there is no batch axis here.

1. prox(z, Y) = max(0, ‖Y‖₁ − ‖Y − z‖₁)
2. For target weights u: Y = Σ u_i y_i, R = Σ u_i x_i, a_{h,j} = Σ u_i α_{h,i,j};
   e_j = Σ_h prox(a_{h,j} f_{j,h}, Y), r = prox(R, Y), ē_j = e_j / (Σ_j e_j + r)
3. w_j = Σ over layers of ē_j: layers add up
4. Hops: w⁰ from u = 1 on the answer; wᵏ from u = wᵏ⁻¹ on the recursion span G; each normalised to sum 1;
   ρ_k = Σ_G wᵏ; result = w⁰ + Σ_k (Π_{j<k} ρ_j) wᵏ on the prompt
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kfp_methods.components.language.attention import Layer

_TINY = 1e-12


@dataclass(frozen=True)
class Attribution:
    """Scores of one text's positions for its answer.

    Attributes:
        hops: w⁰…wᴷ, each of sum 1 (or all zero where nothing was found) [hops + 1, N].
        remaining: ρ_0…ρ_K, the share of each that lies on the recursion span.
        prompt: positions that the result is about, bool [N].
    """

    hops: Tensor
    remaining: tuple[float, ...]
    prompt: Tensor

    def scores(self, hops: int | None = None) -> Tensor:
        """The result [N] of the first `hops` hops (default: all), zero off the prompt (equation 4)."""
        last = len(self.remaining) - 1 if hops is None else min(hops, len(self.remaining) - 1)
        total = sum((self.leftover(k - 1) * self.hops[k] for k in range(last + 1)), torch.zeros_like(self.hops[0]))
        return total * self.prompt

    def leftover(self, hops: int | None = None) -> float:
        """Π ρ over the first `hops` + 1: the mass that is still on the recursion span; 1 for −1."""
        product = 1.0
        for remaining in self.remaining if hops is None else self.remaining[: hops + 1]:
            product *= remaining
        return product


def proximity(z: Tensor, Y: Tensor) -> Tensor:
    """prox(z, Y) over the last axis (equation 1); the difference is taken entry by entry, where it is small."""
    return (Y.abs() - (Y - z).abs()).sum(-1).clamp_min(0)


@torch.no_grad()
def layer_shares(layer: Layer, u: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """ē and the residual's share of one layer (equation 2) for several target weightings at once.

    Distances are in float32 whatever the model's type: late residuals are large, and half precision would lose them.

    Args:
        u: non-negative weights of target positions [T, N]; scaling a row changes nothing.
        chunk: source positions at a time.

    Returns:
        Shares [T, N] and [T]; a row of both sums to 1.
    """
    u = u.float()
    Y, R = u @ layer.attended[0].float(), u @ layer.entering[0].float()
    a = torch.einsum("tn,hnj->htj", u, layer.weights()[0].float())
    size = Y.abs()
    e = torch.zeros_like(u)
    positions = u.any(0).nonzero()
    end = int(positions[-1]) + 1 if len(positions) else 0
    for start in range(0, end, chunk):
        sources = slice(start, min(start + chunk, end))
        f = layer.head_outputs(sources)[0]  # [H, n, d]
        for t in range(len(u)):
            distance = torch.addcmul(Y[t], a[:, t, sources, None], f, value=-1).abs_()
            e[t, sources] = torch.sub(size[t], distance, out=distance).sum(-1).clamp_min_(0).sum(0)
    r = proximity(R, Y)
    whole = e.sum(1) + r + _TINY
    return e / whole[:, None], r / whole


def span_scores(layers: Sequence[Layer], u: Tensor, chunk: int) -> Tensor:
    """w [T, N] for target weightings u [T, N], summed over layers (equation 3), not normalised."""
    return sum((layer_shares(layer, u, chunk)[0] for layer in layers), torch.zeros_like(u, dtype=torch.float32))


def token_scores(layers: Sequence[Layer], targets: Tensor, chunk: int, *, reuse: bool) -> Tensor:
    """Information-flow routes token by token: the mean over target positions of each one's w [N].

    Args:
        targets: positions [M].
        reuse: compute what heads read once a layer for all targets; else anew for each, as published comparisons do.
    """
    u = torch.nn.functional.one_hot(targets, layers[0].entering.shape[1]).float()
    if reuse:
        return span_scores(layers, u, chunk).mean(0)
    return torch.cat([span_scores(layers, row[None], chunk) for row in u]).mean(0)


def attribute(
    layers: Sequence[Layer],
    *,
    answer: Tensor,
    recursion: Tensor,
    prompt: Tensor,
    skipped: Tensor,
    hops: int = 1,
    chunk: int = 128,
    min_mass: float = 1e-4,
) -> Attribution:
    """Span-wise aggregation and `hops` recursive hops (equation 4).

    Args:
        layers: of a forward pass of one text.
        answer: positions to explain, bool [N]; so are the others.
        recursion: the span G that hops go through.
        prompt: positions that the result is about.
        skipped: positions that are neither targets nor sources (punctuation, white space).
        hops: K; fewer are made when less than `min_mass` is left on G.

    Raises:
        ValueError: nothing is left to explain.
    """
    targets = answer & ~skipped
    if not targets.any():
        raise ValueError("the answer has only skipped positions")
    end = int(answer.nonzero()[-1]) + 1
    sources = ~skipped & (torch.arange(len(answer), device=answer.device) < end)
    u = targets.float()
    found: list[Tensor] = []
    remaining: list[float] = []
    left = 1.0
    for _ in range(hops + 1):
        w = span_scores(layers, u[None], chunk)[0] * sources
        w = w / (w.sum() + _TINY) if w.any() else w
        u = w * recursion
        found.append(w)
        remaining.append(float(u.sum()))
        left *= remaining[-1]
        if left <= min_mass:
            break
    return Attribution(torch.stack(found), tuple(remaining), prompt)
