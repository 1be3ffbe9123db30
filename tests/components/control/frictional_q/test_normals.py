"""Normal actions are an orthogonal basis of what the logged action leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import null_space

from kfp_methods.components.control.frictional_q.normals import normal_rows, split


@pytest.mark.parametrize("D", [2, 3, 6, 17])
@pytest.mark.parametrize("m", [0.4, 1.0, 2.0])
def test_rows_are_orthogonal_to_the_action_and_to_each_other(D: int, m: float) -> None:
    actions = torch.randn(50, D, dtype=torch.float64, generator=torch.Generator().manual_seed(D))
    actions[0] = 0
    actions[0, -1] = -0.3  # first entry 0
    actions[1] = 0
    actions[1, 0] = -1.0  # along -e₁
    rows, valid = normal_rows(actions, m)
    assert rows.shape == (50, D - 1, D)
    assert valid.all()
    u = actions / actions.norm(dim=1, keepdim=True)
    eye = torch.eye(D, dtype=torch.float64)
    torch.testing.assert_close(torch.einsum("nrd,nd->nr", rows, u), torch.zeros(50, D - 1, dtype=torch.float64))
    torch.testing.assert_close(rows @ rows.mT, (m**2 * eye[1:, 1:]).expand(50, -1, -1), atol=1e-6, rtol=0)
    projector = m**2 * (eye - u[:, :, None] * u[:, None, :])
    torch.testing.assert_close(rows.mT @ rows, projector, atol=1e-6, rtol=0)


def test_the_subspace_is_scipys() -> None:
    for seed in range(20):
        action = np.random.default_rng(seed).normal(size=5)
        rows = normal_rows(torch.from_numpy(action), 1.0)[0].numpy()
        basis = null_space(action[None])
        np.testing.assert_allclose(rows.T @ rows, basis @ basis.T, atol=1e-12)


def test_a_known_projector() -> None:
    rows, _ = normal_rows(torch.tensor([0.3, -0.4, 0.0], dtype=torch.float64), 2.0)
    expected = torch.tensor([[2.56, 1.92, 0], [1.92, 1.44, 0], [0, 0, 4]], dtype=torch.float64)
    torch.testing.assert_close(rows.mT @ rows, expected)


def test_in_the_plane_there_is_one_normal_a_quarter_turn_away() -> None:
    angles = torch.linspace(0, 2 * torch.pi, 33, dtype=torch.float64)[:-1]
    actions = 0.7 * torch.stack([angles.cos(), angles.sin()], dim=1)
    rows, _ = normal_rows(actions, 1.0)
    assert rows.shape == (32, 1, 2)
    turned = torch.stack([-angles.sin(), angles.cos()], dim=1)
    sides = (rows[:, 0] * turned).sum(1)
    torch.testing.assert_close(sides.abs(), torch.ones(32, dtype=torch.float64))
    assert set(sides.round().tolist()) == {-1.0, 1.0}, "it flips where the first entry changes its sign"


def test_an_action_of_no_size_has_no_normals() -> None:
    rows, valid = normal_rows(torch.tensor([[0.0, 0.0], [1e-9, 0.0], [1e-3, 0.0]]), 1.0)
    assert valid.tolist() == [False, False, True]
    assert rows.isfinite().all()


def test_the_parts_of_a_vector() -> None:
    along, across = split(torch.tensor([3.0, 4.0, 0.0]), torch.tensor([0.0, -2.0, 0.0]))
    assert (along.item(), across.item()) == (4.0, 3.0)
