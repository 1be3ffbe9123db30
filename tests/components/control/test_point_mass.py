"""The point mass moves as written, and its best policy solves the Riccati equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kfp_methods.components.control import point_mass
from kfp_methods.components.control.arenas import PointMassArena


def test_a_step_by_hand() -> None:
    states = torch.tensor([[1.0, 0.5, -1.99, -0.5]])
    following, reward = point_mass.step(states, torch.tensor([[0.5, -3.0]]))
    torch.testing.assert_close(following, torch.tensor([[1.0525, 0.55, -2.0, -0.6]]))
    expected = -(1 + 1.99**2 + 0.1 * (0.25 + 0.25) + 0.01 * (0.25 + 1))
    assert reward.item() == pytest.approx(expected)


def test_the_regulator_is_the_known_one() -> None:
    """Gain and value for discount 0.99, computed independently."""
    found = point_mass.Regulator.solve(0.99)
    np.testing.assert_allclose(found.gain, [7.426194, 4.512169], atol=1e-6)
    np.testing.assert_allclose(found.value, [[5.876375, 0.986438], [0.986438, 0.600539]], atol=1e-6)


def test_with_the_exact_value_the_greedy_action_is_the_regulators() -> None:
    gamma, regulator = 0.99, point_mass.Regulator.solve(0.99)
    grid = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    P = torch.from_numpy(regulator.value)
    for position, velocity in ((0.05, 0.02), (-0.1, 0.05), (0.03, -0.15), (1.5, 0.0)):
        states = torch.zeros(len(grid), 4, dtype=torch.float64)
        states[:, 0], states[:, 1] = position, velocity
        actions = torch.stack([grid, torch.zeros_like(grid)], dim=1)
        following, rewards = point_mass.step(states, actions)
        axis = following[:, :2]
        q = rewards - gamma * torch.einsum("ni,ij,nj->n", axis, P, axis)
        wanted = -(regulator.gain @ [position, velocity])
        assert grid[q.argmax()].item() == pytest.approx(np.clip(wanted, -1, 1), abs=6e-4)


def test_the_regulators_value_is_what_it_earns() -> None:
    gamma = 0.99
    regulator = point_mass.Regulator.solve(gamma)
    first = torch.tensor([[[0.1, 0.0, -0.05, 0.1]]])
    found = point_mass.roll_out(regulator.act, first, gamma, steps=1_500)
    x, y = np.array([0.1, 0.0]), np.array([-0.05, 0.1])
    assert found.returns.item() == pytest.approx(-(x @ regulator.value @ x + y @ regulator.value @ y), rel=1e-3)
    assert torch.equal(found.returns, found.discounted)


def test_the_log_is_near_a_line_and_repeats() -> None:
    log, again, other = point_mass.log(0), point_mass.log(0), point_mass.log(1)
    assert len(log) == 20_000
    assert np.array_equal(log.actions, again.actions)
    assert not np.array_equal(log.actions, other.actions)
    assert log.timeouts is not None
    assert log.timeouts.sum() == 200
    assert not log.terminals.any()
    within = ~log.timeouts[:-1]
    assert np.array_equal(log.next_observations[:-1][within], log.observations[1:][within])
    position = log.observations[:, 0::2] / np.linalg.norm(log.observations[:, 0::2], axis=1, keepdims=True)
    inside = (np.abs(log.actions) < 1).all(1)
    across = log.actions[inside, 0] * position[inside, 1] - log.actions[inside, 1] * position[inside, 0]
    assert across.std() == pytest.approx(0.3, abs=0.03), "only the noise leaves the position's direction"


def test_every_policy_starts_from_the_same_states() -> None:
    still = PointMassArena(steps=3).roll_out(lambda s: torch.zeros(*s.shape[:-1], 2), 3, 7, 0.9)
    assert still.first.shape == (3, 7, 4)
    assert torch.equal(still.first[0], still.first[2])
    assert torch.equal(PointMassArena(steps=3).roll_out(lambda s: s[..., :2], 1, 5, 0.9).first[0], still.first[0, :5])
