"""Encoder, concepts, selector and experts: p(c|x) p(t|x) p(y|c, t), t which expert decides.

De Santis et al., arXiv 2602.02886; the official code's sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy
import torch
from torch import Tensor, nn

from kfp_methods.components.tabular.mcbe.choices import SelectorKind
from kfp_methods.components.tabular.mcbe.formulas import Formula


class Encoder(nn.Module):
    """An MLP of vectors, or a small convolutional network of images, to `latent` numbers."""

    def __init__(self, shape: Sequence[int], hidden: int, latent: int) -> None:
        super().__init__()
        if len(shape) == 1:
            self.layers = nn.Sequential(nn.Linear(shape[0], hidden), nn.LeakyReLU(), nn.Linear(hidden, latent))
            return
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.LeakyReLU(),
            nn.AdaptiveAvgPool2d((min(8, shape[1]), min(8, shape[2]))), nn.Flatten(),
            nn.LazyLinear(hidden), nn.LeakyReLU(), nn.Linear(hidden, latent),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """[n, *shape] to [n, latent]."""
        return self.layers(x)


class LinearExperts(nn.Module):
    """M x O linear formulas, decoded from M embeddings; mask: weights that were dropped stay 0."""

    mask: Tensor

    def __init__(self, M: int, K: int, O: int, latent: int) -> None:  # noqa: E741
        super().__init__()
        self.shape = (M, O, K + 1)
        self.embeddings = nn.Parameter(torch.randn(M, latent))
        self.decoder = nn.Linear(latent, O * (K + 1))
        self.register_buffer("mask", torch.ones(M, O, K + 1))

    def weights(self) -> Tensor:
        """[M, O, K + 1]; the bias comes last."""
        return self.decoder(self.embeddings).view(self.shape) * self.mask

    def forward(self, c: Tensor) -> Tensor:
        """Concepts [n, K] to [n, M, O]."""
        W = self.weights()
        return torch.einsum("nk,mok->nmo", c, W[..., :-1]) + W[..., -1]

    def size(self) -> Tensor:
        """Sum of absolute weights and squared biases."""
        W = self.weights()
        return W[..., :-1].abs().sum() + W[..., -1].square().sum()


class MLPExperts(nn.Module):
    """M networks of one hidden layer from concepts to outputs; without it where `plain`."""

    def __init__(self, M: int, K: int, O: int, width: int, *, plain: bool) -> None:  # noqa: E741
        super().__init__()

        def network() -> nn.Module:
            if plain:
                return nn.Linear(K, O)
            return nn.Sequential(nn.Linear(K, width), nn.LeakyReLU(), nn.Linear(width, O))

        self.networks = nn.ModuleList(network() for _ in range(M))

    def forward(self, c: Tensor) -> Tensor:
        """Concepts [n, K] to [n, M, O]."""
        return torch.stack([network(c) for network in self.networks], dim=1)


class FormulaExperts(nn.Module):
    """M x O formulas in the concepts' own units, their outputs standardised."""

    c_mean: Tensor
    c_sd: Tensor
    y_mean: Tensor
    y_sd: Tensor

    def __init__(
        self, formulas: Sequence[Sequence[sympy.Expr]], concepts: tuple[Tensor, Tensor], outputs: tuple[Tensor, Tensor]
    ) -> None:
        super().__init__()
        self.formulas = nn.ModuleList(nn.ModuleList(Formula(one) for one in row) for row in formulas)
        for name, value in zip(("c_mean", "c_sd", "y_mean", "y_sd"), (*concepts, *outputs), strict=True):
            self.register_buffer(name, value)

    def forward(self, c: Tensor) -> Tensor:
        """Standardised concepts [n, K] to standardised outputs [n, M, O]."""
        raw = c * self.c_sd + self.c_mean
        found = torch.stack([torch.stack([one(raw) for one in row], -1) for row in self.formulas], 1)  # type: ignore[attr-defined]
        return (found - self.y_mean) / self.y_sd

    def current(self) -> list[list[sympy.Expr]]:
        """The formulas as trained."""
        return [[one.current() for one in row] for row in self.formulas]  # type: ignore[attr-defined]


class Mixture(nn.Module):
    """The whole model; one expert for each row and output."""

    binary: Tensor

    def __init__(
        self,
        encoder: Encoder,
        experts: nn.Module,
        M: int,
        O: int,  # noqa: E741
        latent: int,
        binary: Sequence[bool],
        selector: SelectorKind,
    ) -> None:
        super().__init__()
        self.encoder, self.experts, self.M, self.O = encoder, experts, M, O
        self.concepts = nn.Linear(latent, len(binary))
        last = nn.Linear(latent, M * O)
        self.selector = nn.Sequential(nn.Linear(latent, latent), nn.LeakyReLU(), last) if selector == "mlp" else last
        self.register_buffer("binary", torch.tensor(list(binary)))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Concepts before the sigmoid [n, K], and the selector's logits [n, M, O]."""
        h = self.encoder(x)
        return self.concepts(h), self.selector(h).view(-1, self.M, self.O)

    def predicted(self, logits: Tensor) -> Tensor:
        """Concepts: probabilities of binary ones, standardised numbers of others."""
        return torch.where(self.binary, logits.sigmoid(), logits)

    def decide(self, c: Tensor, p: Tensor) -> Tensor:
        """Outputs [n, O] of concepts [n, K] by the chosen experts, p one-hot over M [n, M, O]."""
        return (p * self.experts(c)).sum(1)


def chosen(logits: Tensor) -> Tensor:
    """One-hot of the likeliest expert [n, M, O]; the first of equals."""
    return torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1.0)


def sampled(logits: Tensor, temperature: float, rng: torch.Generator) -> Tensor:
    """Straight-through Gumbel softmax: one-hot forwards, the softmax's gradient backwards."""
    uniform = torch.rand(logits.shape, generator=rng).to(logits.device).clamp(1e-10, 1 - 1e-7)
    soft = ((logits - torch.log(-torch.log(uniform))) / temperature).softmax(1)
    return chosen(soft) + soft - soft.detach()


class BlackBox(nn.Module):
    """x to y, with the same encoder."""

    def __init__(self, encoder: Encoder, latent: int, O: int) -> None:  # noqa: E741
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(nn.LeakyReLU(), nn.Linear(latent, latent), nn.LeakyReLU(), nn.Linear(latent, O))

    def forward(self, x: Tensor) -> Tensor:
        """[n, O]."""
        return self.head(self.encoder(x))


class PerRow(nn.Module):
    """Linear weights over concepts for every row (LICEM), or embeddings of concepts (CEM, Espinosa Zarlenga et al.)."""

    binary: Tensor

    def __init__(self, encoder: Encoder, latent: int, O: int, binary: Sequence[bool], *, embedded: bool) -> None:  # noqa: E741
        super().__init__()
        K, self.O, self.embedded = len(binary), O, embedded
        self.encoder, self.concepts = encoder, nn.Linear(latent, K)
        size = 2 * K * _EMBEDDING if embedded else O * (K + 1)
        self.weights = nn.Sequential(nn.LeakyReLU(), nn.Linear(latent, latent), nn.LeakyReLU(), nn.Linear(latent, size))
        self.head = nn.Linear(K * _EMBEDDING, O)
        self.register_buffer("binary", torch.tensor(list(binary)))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Concepts before the sigmoid [n, K], and what depends on the row."""
        h = self.encoder(x)
        return self.concepts(h), self.weights(h)

    def decide(self, c: Tensor, weights: Tensor) -> Tensor:
        """Outputs [n, O]."""
        n, K = c.shape
        if self.embedded:
            both = weights.view(n, K, 2, _EMBEDDING)
            mixed = c[..., None] * both[:, :, 0] + (1 - c[..., None]) * both[:, :, 1]
            return self.head(mixed.reshape(n, -1))
        W = weights.view(n, self.O, K + 1)
        return torch.einsum("nk,nok->no", c, W[..., :-1]) + W[..., -1]


_EMBEDDING = 16
