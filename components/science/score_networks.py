"""The networks of the built-in score model, and the preconditioning that makes them denoisers at every noise level.

Karras, Aittala, Aila, Laine, "Elucidating the Design Space of Diffusion-Based Generative Models", 2022 (EDM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu

from kfp_methods.components.science.score_choices import NetworkKind, Preconditioning


@dataclass(frozen=True)
class Architecture:
    """How a network F(x [B, D], c [B, 1]) -> [B, D] is built.

    Attributes:
        kind: `mlp`, or `unet` for points that are images.
        shape: of one point: (D,), or (channels, height, width).
        width: of the MLP's layers; channels at the U-Net's full resolution.
        blocks: residual blocks of the MLP; resolutions of the U-Net.
    """

    kind: NetworkKind
    shape: tuple[int, ...]
    width: int
    blocks: int

    @property
    def n_features(self) -> int:
        return int(torch.Size(self.shape).numel())


def build(architecture: Architecture, seed: int) -> nn.Module:
    """A network with torch's default initial weights (also of the last layer), drawn from their own generator.

    Raises:
        ValueError: a U-Net for points that are no images, or whose sides cannot be halved that often.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if architecture.kind == "mlp":
            return ResidualMLP(architecture.n_features, architecture.width, architecture.blocks)
        return UNet(architecture.shape, architecture.width, architecture.blocks)


class ResidualMLP(nn.Module):
    """h <- h + Linear-SiLU-Linear(LayerNorm(h + Linear(c))), between a linear layer on [x, c] and one to [B, D]."""

    def __init__(self, n_features: int, width: int, blocks: int) -> None:
        super().__init__()
        self.enter = nn.Linear(n_features + 1, width)
        self.blocks = nn.ModuleList(_ResidualBlock(width) for _ in range(blocks))
        self.leave = nn.Linear(width, n_features)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        h = self.enter(torch.cat([x, c], dim=1))
        for block in self.blocks:
            h = block(h, c)
        return self.leave(h)


class _ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.clock, self.norm = nn.Linear(1, width), nn.LayerNorm(width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        return h + self.body(self.norm(h + self.clock(c)))


class UNet(nn.Module):
    """A small convolutional U-Net: one residual block a resolution on each side, widths w, 2w, 2w, …"""

    def __init__(self, shape: Sequence[int], width: int, resolutions: int) -> None:
        super().__init__()
        if len(shape) != 3 or any(side % 2 ** (resolutions - 1) for side in shape[1:]):
            raise ValueError(f"a U-Net of {resolutions} resolutions needs images of such sides, not {tuple(shape)}")
        self.shape = tuple(shape)
        widths = [width, *[2 * width] * (resolutions - 1)]
        self.enter = nn.Conv2d(shape[0], width, 3, padding=1)
        self.down = nn.ModuleList(_ConvBlock(before, after) for before, after in pairwise([width, *widths]))
        self.middle = _ConvBlock(widths[-1], widths[-1])
        above = [*reversed(widths)]
        self.up = nn.ModuleList(
            _ConvBlock(below + beside, beside) for below, beside in zip([widths[-1], *above], above, strict=False)
        )
        self.leave = nn.Conv2d(width, shape[0], 3, padding=1)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        h, skips = self.enter(x.unflatten(1, self.shape)), []
        for index, block in enumerate(self.down):
            h = block(h if index == 0 else nn.functional.avg_pool2d(h, 2), c)
            skips.append(h)
        h = self.middle(h, c)
        for index, block in enumerate(self.up):
            h = block(torch.cat([h if index == 0 else interpolate(h, scale_factor=2.0), skips.pop()], dim=1), c)
        return self.leave(h).flatten(1)


class _ConvBlock(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.clock, self.shortcut = nn.Linear(1, after), nn.Conv2d(before, after, 1)
        self.first, self.second = (nn.Conv2d(n, after, 3, padding=1) for n in (before, after))
        self.norms = nn.ModuleList(nn.GroupNorm(min(8, n), n) for n in (before, after))

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        inner = self.first(silu(self.norms[0](h))) + self.clock(c)[:, :, None, None]
        return self.shortcut(h) + self.second(silu(self.norms[1](inner)))


class Preconditioned(nn.Module):
    """D(x, sigma) = c_skip x + c_out F(c_in x, ln(sigma)/4); without preconditioning, F(x, ln(sigma)/4) itself.

    c_skip = s^2/(sigma^2+s^2), c_out = sigma s/sqrt(sigma^2+s^2), c_in = 1/sqrt(sigma^2+s^2), with s the standard
    deviation of the data (EDM, table 1).
    """

    def __init__(self, network: nn.Module, sigma_data: float = 1.0, preconditioning: Preconditioning = "edm") -> None:
        super().__init__()
        self.network, self.sigma_data, self.preconditioning = network, sigma_data, preconditioning

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The output at x [B, D] and noise levels sigma [B, 1]."""
        learned = self.learned(x, sigma)
        if self.preconditioning == "none":
            return learned
        s, total = self.sigma_data, sigma.square() + self.sigma_data**2
        return s**2 / total * x + sigma * s / total.sqrt() * learned

    def learned(self, x: Tensor, sigma: Tensor) -> Tensor:
        """What the network itself gives."""
        if self.preconditioning == "edm":
            x = x / (sigma.square() + self.sigma_data**2).sqrt()
        return self.network(x, sigma.log() / 4)
