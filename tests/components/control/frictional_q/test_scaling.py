"""Between the environment's units and the networks'."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kfp_methods.components.control.frictional_q.scaling import Scaling


@pytest.mark.parametrize("bound", [0.4, 1.0, 2.0])
def test_a_symmetric_box_stays_as_it_is(bound: float) -> None:
    box = np.full(3, bound, np.float32)
    scaling, actions = Scaling.of(-box, box, 5), torch.rand(7, 3) * 2 * bound - bound
    assert scaling.max_action == pytest.approx(bound)
    torch.testing.assert_close(scaling.inner(actions), actions)
    torch.testing.assert_close(scaling.states(torch.ones(2, 5)), torch.ones(2, 5))


@pytest.mark.parametrize(("low", "high"), [([-1.0, -2.0], [1.0, 2.0]), ([0.0, -1.0], [1.0, 3.0])])
def test_any_other_box_becomes_the_unit_box_and_comes_back(low: list[float], high: list[float]) -> None:
    scaling = Scaling.of(np.array(low, np.float32), np.array(high, np.float32), 1)
    corners = torch.tensor([low, high])
    assert scaling.max_action == 1
    torch.testing.assert_close(scaling.inner(corners), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    torch.testing.assert_close(scaling.outer(scaling.inner(corners)), corners)


def test_observations_are_standardised_and_constant_ones_centred() -> None:
    rng = np.random.default_rng(0)
    seen = np.stack([rng.normal(1e5, 3e4, 500), np.full(500, 7.0)], axis=1).astype(np.float32)
    box = np.ones(2, np.float32)
    states = Scaling.of(-box, box, seen).states(torch.from_numpy(seen))
    torch.testing.assert_close(states.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    assert states.std(0).tolist() == pytest.approx([1.0, 0.0], abs=2e-3)
