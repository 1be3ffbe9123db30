"""Many small networks trained at once: their weights are stacked along one leading axis of batched products.

Seeds and variants of a small network cost little more together than one of them alone, for a step of theirs is mostly
the overhead of calls. The sum of the members' losses has each member's own gradient, and an optimiser that works entry
by entry (SGD, Adam) treats each as if it were alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn


class StackedLinear(nn.Module):
    """K linear maps, x [K, …, inputs] -> [K, …, outputs].

    Each member starts as `torch.nn.Linear` does (uniform within 1/√inputs), its numbers drawn from its own generator.

    Attributes:
        weight: [K, outputs, inputs].
        bias: [K, 1, outputs]; None without one.
    """

    bias: nn.Parameter | None

    def __init__(self, inputs: int, outputs: int, generators: Sequence[Generator], *, bias: bool = True) -> None:
        super().__init__()
        bound, weights, biases = inputs**-0.5, [], []
        for generator in generators:
            weights.append(_uniform((outputs, inputs), bound, generator))
            if bias:
                biases.append(_uniform((1, outputs), bound, generator))
        self.weight = nn.Parameter(torch.stack(weights))
        self.bias = nn.Parameter(torch.stack(biases)) if bias else None

    def forward(self, x: Tensor, members: slice | None = None) -> Tensor:
        """Each member's map of its own rows; `members` when x holds only theirs."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if members is not None:
            weight, bias = weight[members], None if bias is None else bias[members]
        rows = x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])
        y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias, rows, weight.mT)
        return y.reshape(*x.shape[:-1], weight.shape[1])

    def member(self, index: int) -> nn.Linear:
        """A copy of one member as an ordinary layer."""
        _, outputs, inputs = self.weight.shape
        single = nn.Linear(inputs, outputs, bias=self.bias is not None).to(self.weight)
        with torch.no_grad():
            single.weight.copy_(self.weight[index])
            if self.bias is not None:
                single.bias.copy_(self.bias[index, 0])
        return single


def _rectifier() -> nn.Module:
    return nn.ReLU(inplace=True)


class StackedMLP(nn.Sequential):
    """K multilayer perceptrons of the same widths, x [K, …, widths[0]] -> [K, …, widths[-1]].

    Args:
        widths: of the input, the hidden layers and the output.
        generators: one a member, from which its layers are drawn in their order.
        bias: whether the layers have one.
        activation: makes the layer between two linear ones.
    """

    def __init__(
        self,
        widths: Sequence[int],
        generators: Sequence[Generator],
        *,
        bias: bool = True,
        activation: Callable[[], nn.Module] = _rectifier,
    ) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [StackedLinear(inputs, outputs, generators, bias=bias), activation()]
        super().__init__(*layers[:-1])

    def forward(self, x: Tensor, members: slice | None = None) -> Tensor:
        """Each member's output for its own rows; `members` when x holds only theirs."""
        for layer in self:
            x = layer(x, members) if isinstance(layer, StackedLinear) else layer(x)
        return x

    def member(self, index: int) -> nn.Sequential:
        """A copy of one member as an ordinary network; its activations are those of the stack."""
        return nn.Sequential(*(layer.member(index) if isinstance(layer, StackedLinear) else layer for layer in self))


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Within it, torch computes each CPU operation on one core.

    An operation on small networks lasts microseconds: split over cores it mostly waits for them, most of all on a busy
    machine. And a result on one core does not depend on how many there are.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def generators(seeds: Sequence[int], device: str = "cpu") -> list[Generator]:
    """One generator of random numbers a seed."""
    return [torch.Generator(device).manual_seed(seed) for seed in seeds]


def take_members(module: nn.Module, members: Sequence[int]) -> dict[str, Tensor]:
    """The state of some of a stack's members, as the state of a smaller stack; every tensor is stacked."""
    rows = list(members)
    return {name: tensor[rows].clone() for name, tensor in module.state_dict().items()}


def _uniform(shape: tuple[int, ...], bound: float, generator: Generator) -> Tensor:
    return torch.empty(shape, device=generator.device).uniform_(-bound, bound, generator=generator)
