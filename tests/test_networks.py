"""A member of a stack is the ordinary network: same first weights, same outputs, same training."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from kfp_methods.networks import StackedLinear, StackedMLP, generators, one_core, take_members

SEEDS = [3, 1, 4]


@pytest.mark.parametrize("bias", [True, False])
def test_first_weights_are_pytorchs_own(bias: bool) -> None:
    stacked = StackedLinear(5, 7, generators(SEEDS), bias=bias)
    for index, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        single = nn.Linear(5, 7, bias=bias)
        assert torch.equal(stacked.weight[index], single.weight)
        assert bias is (stacked.bias is not None)
        if stacked.bias is not None:
            assert torch.equal(stacked.bias[index, 0], single.bias)


@pytest.mark.parametrize("shape", [(6,), (2, 6), (2, 3, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_member_computes_what_an_ordinary_network_does(shape: tuple[int, ...], bias: bool) -> None:
    stacked = StackedMLP([6, 8, 8, 3], generators(SEEDS), bias=bias)
    x = torch.randn(len(SEEDS), *shape)
    y = stacked(x)
    assert y.shape == (len(SEEDS), *shape[:-1], 3)
    for index in range(len(SEEDS)):
        torch.testing.assert_close(stacked.member(index)(x[index]), y[index])


def test_some_members_can_be_asked_alone() -> None:
    stacked = StackedMLP([2, 4, 1], generators(SEEDS))
    x = torch.randn(len(SEEDS), 5, 2)
    torch.testing.assert_close(stacked(x[1:], slice(1, None)), stacked(x)[1:])
    smaller = StackedMLP([2, 4, 1], generators([0, 0]))
    smaller.load_state_dict(take_members(stacked, [2, 0]))
    torch.testing.assert_close(smaller(x[[2, 0]]), stacked(x)[[2, 0]])


def test_no_member_at_all_is_an_empty_answer() -> None:
    stacked = StackedMLP([6, 8, 3], generators(SEEDS))
    assert stacked(torch.zeros(0, 5, 6), slice(0, 0)).shape == (0, 5, 3)


def test_members_train_as_if_alone() -> None:
    """The sum of losses gives each member its own gradient, and Adam does not mix entries."""
    stacked = StackedMLP([2, 8, 1], generators(SEEDS))
    singles = [stacked.member(index) for index in range(len(SEEDS))]
    optimisers = [torch.optim.Adam(net.parameters(), 0.05) for net in [stacked, *singles]]
    x, y = torch.randn(len(SEEDS), 9, 2), torch.randn(len(SEEDS), 9, 1)
    for _ in range(20):
        for optimiser in optimisers:
            optimiser.zero_grad()
        (stacked(x) - y).square().mean((1, 2)).sum().backward()
        for index, net in enumerate(singles):
            (net(x[index]) - y[index]).square().mean().backward()
        for optimiser in optimisers:
            optimiser.step()
    for index, net in enumerate(singles):
        torch.testing.assert_close(stacked(x)[index], net(x[index]), rtol=1e-4, atol=1e-4)


def test_a_member_does_not_depend_on_the_others() -> None:
    alone, among = (StackedMLP([4, 8, 2], generators(seeds)) for seeds in ([7], [1, 7, 2]))
    assert all(torch.equal(a[0], b[1]) for a, b in zip(alone.parameters(), among.parameters(), strict=True))


def test_a_member_is_a_copy() -> None:
    stacked = StackedMLP([2, 4, 1], generators(SEEDS))
    member = stacked.member(0)
    with torch.no_grad():
        for weight in member.parameters():
            weight.zero_()
    assert stacked.state_dict()["0.weight"].abs().sum() > 0


@one_core()
def cores_then_fault() -> None:
    raise RuntimeError(torch.get_num_threads())


def test_one_core_ends_as_it_began() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match=r"^1$"):
            cores_then_fault()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_listing_methods_does_not_import_it() -> None:
    probe = (
        "import sys; from kfp_methods import cli, catalogue; catalogue.entries(); "
        "print(sorted({'torch', 'kfp_methods.networks'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
