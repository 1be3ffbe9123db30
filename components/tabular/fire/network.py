"""A prior-fitted network for regression on small tables: it is shown a context and answers for queries, untrained.

One token for each row, with the row's features in fixed slots; rows attend to context rows alone, so that a query's
answer depends on the context and on itself. After Müller et al. (ICLR 2022) and Hollmann et al. (TabPFN, ICLR 2023).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

SLOTS, BINS = 24, 100
_WIDTH, _BLOCKS, _HEADS, _HIDDEN = 96, 4, 4, 192


class Block(nn.Module):
    """Attention to the context, then a two-layer network, each after a layer norm and beside a residual."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, rows: Tensor, n_context: int) -> Tensor:
        """rows: [batch, n_context + queries, width], the context first."""
        normed = self.norm(rows)
        keys, values = (self._split(part) for part in self.key_value(normed[:, :n_context]).chunk(2, -1))
        seen = functional.scaled_dot_product_attention(self._split(self.query(normed)), keys, values)
        rows = rows + self.out(seen.transpose(1, 2).reshape(rows.shape))
        return rows + self.mlp(self.norm2(rows))

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class PriorFittedNetwork(nn.Module):
    """Standardised rows in, logits of a bar distribution for each query out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.embed_y = nn.Linear(SLOTS, _WIDTH), nn.Linear(1, _WIDTH)
        self.mask = nn.Parameter(torch.zeros(_WIDTH))  # a query's, where a context row has its target
        self.blocks = nn.ModuleList(Block(_WIDTH, _HEADS, _HIDDEN) for _ in range(_BLOCKS))
        self.head = nn.Sequential(nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _HIDDEN), nn.GELU(), nn.Linear(_HIDDEN, BINS))

    def forward(self, context: Tensor, y: Tensor, queries: Tensor) -> Tensor:
        """Logits [batch, m, BINS] of context [batch, n, F], y [batch, n] and queries [batch, m, F]; F <= SLOTS.

        Features are standardised on the context (`standardise`), and so is y.
        """
        n, n_features = context.shape[1:]
        rows = torch.cat([context, queries], 1) * math.sqrt(SLOTS / n_features)
        tokens = self.embed(functional.pad(rows, (0, SLOTS - n_features)))
        targets = torch.cat([self.embed_y(y[..., None]), self.mask.expand(*queries.shape[:2], -1)], 1)
        tokens = tokens + targets
        for block in self.blocks:
            tokens = block(tokens, n)
        logits: Tensor = self.head(tokens[:, n:])
        return logits


def standardise(context: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Both [batch, rows, F] with the context's mean 0 and standard deviation 1, clipped to 5; constant columns 0."""
    mean, sd = context.mean(1, keepdim=True), context.std(1, correction=0, keepdim=True)
    sd = torch.where(sd > 1e-6 * (1 + mean.abs()), sd, torch.inf)
    return tuple(((part - mean) / sd).clamp(-5, 5) for part in (context, others))  # type: ignore[return-value]
