"""Classifiers that end in one linear layer, so that the features it sees can be taken."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from kfp_methods.components.tabular.bmia.choices import Architecture
from kfp_methods.errors import InputError, Problem


def build(
    architecture: Architecture,
    input_shape: Sequence[int],
    n_classes: int,
    *,
    seed: int,
    hidden: Sequence[int] = (256, 256),
) -> nn.Sequential:
    """A freshly initialised classifier whose last module is the linear layer.

    Args:
        architecture: `linear`, `mlp` (ReLU layers of `hidden` widths), `cnn` (two convolutions) or `resnet18`
            (its form for small images: a 3x3 stem without pooling).
        input_shape: one record's shape: (d,), (height, width) or (channels, height, width).
        n_classes: number of classes C.
        seed: of the initial weights, drawn from their own generator.
        hidden: the MLP's widths.

    Raises:
        InputError: a convolutional architecture for records that are not images.
    """
    return _initialised(layout(architecture, input_shape, n_classes, hidden), seed)


def layout(
    architecture: Architecture, input_shape: Sequence[int], n_classes: int, hidden: Sequence[int]
) -> nn.Sequential:
    """The same without weights, on torch's meta device, where it costs no memory. Raises as `build`."""
    with torch.device("meta"):
        if architecture == "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(_size(input_shape), n_classes))
        if architecture == "mlp":
            return _mlp(_size(input_shape), hidden, n_classes)
        body = _cnn if architecture == "cnn" else _resnet18
        return body(*_image_shape(architecture, input_shape), n_classes)


def last_layer(model: nn.Sequential) -> nn.Linear:
    """The linear layer that a classifier ends in.

    Raises:
        InputError: it ends in something else.
    """
    last = model[-1]
    if not isinstance(last, nn.Linear):
        problem = f"the last layer is {type(last).__name__}, not linear"
        raise InputError(Problem("arch", None, problem, "Use a classifier whose last module is nn.Linear"))
    return last


def last_layer_weights(model: nn.Sequential) -> Tensor:
    """The last layer's weights with its bias as last column (0 without one), float64 [C, d+1]."""
    layer = last_layer(model)
    bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
    return torch.cat([layer.weight, bias[:, None]], dim=1).detach().double()


def _size(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())


def _image_shape(architecture: str, shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) not in (2, 3):
        problem = f"needs images, but a record has shape {tuple(shape)}"
        remedy = "Use mlp or linear, or give x as n x H x W or n x C x H x W"
        raise InputError(Problem("arch", architecture, problem, remedy))
    channels, height, width = shape if len(shape) == 3 else (1, *shape)
    return channels, height, width


def _mlp(n_inputs: int, hidden: Sequence[int], n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for width in hidden:
        layers += [nn.Linear(n_inputs, width), nn.ReLU()]
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_classes))


def _cnn(channels: int, height: int, width: int, n_classes: int) -> nn.Sequential:
    return nn.Sequential(
        _Channels(),
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(64 * 16, 128), nn.ReLU(),
        nn.Linear(128, n_classes),
    )  # fmt: skip


def _resnet18(channels: int, height: int, width: int, n_classes: int) -> nn.Sequential:
    """He et al., arXiv 1512.03385, with the stem usual for images of about 32 pixels."""
    stem = [_Channels(), nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [_ResidualBlock(before, after) for before, after in pairwise(widths)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, n_classes))


class _Channels(nn.Module):
    """[n, H, W] becomes [n, 1, H, W]; images that have channels pass."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1) if x.ndim == 3 else x


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; halves the resolution where the width grows."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        projection = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.shortcut = nn.Identity() if before == after else projection

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _initialised(model: nn.Sequential, seed: int) -> nn.Sequential:
    """torch's default initial weights, uniform in +-1/sqrt(fan-in), without its global generator."""
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear | nn.Conv2d):
            bound = module.weight[0].numel() ** -0.5
            for parameter in module.parameters(recurse=False):
                parameter.data.uniform_(-bound, bound, generator=generator)
    return model
