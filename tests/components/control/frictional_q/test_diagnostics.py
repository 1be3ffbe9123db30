"""Friction and proposals measured on learners whose answers are known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kfp_methods.components.control.frictional_q.diagnostics import friction, reconstruction
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.noise import Noise
from kfp_methods.components.control.frictional_q.normals import normal_rows
from kfp_methods.components.control.frictional_q.variants import Settings, variants
from kfp_methods.components.control.replay import Batch


class Known:
    """Acts as told; Q1 is a plane in the action."""

    def __init__(self, actions: Tensor, slope: Tensor, max_action: float = 2.0) -> None:
        self.actions, self.slope = actions, slope
        self.settings = Settings(1, 2, max_action=max_action)

    def act(self, states: Tensor, noise: Any) -> tuple[Tensor, Tensor]:
        return self.actions, self.q1(states, self.actions)

    def q1(self, states: Tensor, actions: Tensor) -> Tensor:
        return (actions * self.slope).sum(-1)


def transitions(states: list[float], actions: list[list[float]]) -> Batch:
    s, a = torch.tensor(states)[None, :, None], torch.tensor(actions)[None]
    return Batch(s, a, torch.zeros(s.shape[:2]), s, torch.zeros(s.shape[:2]))


def test_friction_by_hand() -> None:
    probe = transitions([0.0, 0.0], [[1.0, 0.0], [0.0, -2.0]])
    logged = transitions([0.0] * 3 + [9.0] * 20, [[2.0, 0.0], [0.0, 1.0], [-1.0, -1.0]] + [[1.0, 0.6]] * 20)
    known = Known(torch.tensor([[[1.0, 0.6], [0.1, 1.0]]]), torch.tensor([3.0, 4.0]))
    found = friction(known, probe, logged, mu=0.2, noise=None)  # type: ignore[arg-type]
    # Along: |3| and |-4|; at right angles: 4 and 3.
    assert found.anisotropy.item() == pytest.approx(3.5 / 3.5)
    assert found.q_mean.item() == pytest.approx((3 + 2.4 + 0.3 + 4) / 2)
    # Ten nearest states hold also seven far ones, whose action is the policy's own.
    assert found.normal_deviation.item() == pytest.approx((0.0 + 0.1 / 2) / 2, abs=1e-6)
    assert found.stick_fraction.item() == 1.0


def test_a_policy_that_leaves_sideways_does_not_stick() -> None:
    probe, logged = transitions([0.0], [[1.0, 0.0]]), transitions([0.0] * 12, [[0.5, 0.0]] * 12)
    known = Known(torch.tensor([[[-2.0, 1.0]]]), torch.ones(2))
    found = friction(known, probe, logged, mu=0.2, noise=None)  # type: ignore[arg-type]
    assert found.normal_deviation.item() == pytest.approx(0.5)
    assert found.stick_fraction.item() == 0.0


def test_actions_without_a_direction_are_left_out() -> None:
    probe = transitions([0.0, 0.0], [[0.0, 0.0], [1.0, 0.0]])
    known = Known(torch.tensor([[[1.0, 1.0], [1.0, 0.0]]]), torch.tensor([1.0, 2.0]))
    found = friction(known, probe, transitions([0.0] * 3, [[0.0, 0.0]] * 3), mu=0.2, noise=None)  # type: ignore[arg-type]
    assert found.anisotropy.item() == pytest.approx(2.0)
    assert found.normal_deviation.item() == 0.0


@pytest.fixture
def learner() -> ProposalLearner:
    settings = Settings(1, 2, latent=4, hidden=16, cvae_hidden=16, n_act=2)
    kinds = variants(
        ("fql_perturb", "plain_vae", "bcq"), settings, phi=0.1, beta=1.0, latent_clip=1.0, n_target=2, n_target_bcq=2
    )
    return ProposalLearner(settings, kinds, [0], "cpu")


def test_proposals_that_are_the_logged_action_are_preferred(learner: ProposalLearner) -> None:
    probe = Batch(*(t.expand(3, *t.shape[1:]) for t in transitions([1.0] * 6, [[0.6, 0.3]] * 6)))
    for sign, share, angle in ((1.0, 1.0, 0.0), (-1.0, 0.0, 180.0)):
        told = sign * torch.tensor([0.6, 0.3])
        learner.policy.propose = lambda s, noise, clip=None, a=told: a.expand(*s.shape[:-1], 2)  # type: ignore[method-assign,misc]
        found = reconstruction(learner, probe, Noise([0], 1))
        assert found.preference.tolist() == [share] * 3
        assert found.preference_both_signs.tolist() == [share] * 3
        torch.testing.assert_close(found.angles, torch.full_like(found.angles, angle), atol=0.1, rtol=0)


def test_a_negated_normal_is_a_rival_where_both_signs_count(learner: ProposalLearner) -> None:
    probe = Batch(*(t.expand(3, *t.shape[1:]) for t in transitions([1.0] * 6, [[0.6, 0.3]] * 6)))
    ahead, (row,) = torch.tensor([0.6, 0.3]), normal_rows(torch.tensor([[0.6, 0.3]]), 1.0)[0][0]
    for told, plain, both in ((0.1 * ahead + row, 0.0, 0.0), (0.1 * ahead - row, 1.0, 0.0)):
        learner.policy.propose = lambda s, noise, clip=None, a=told: a.expand(*s.shape[:-1], 2)  # type: ignore[method-assign,misc]
        found = reconstruction(learner, probe, Noise([0], 1))
        assert found.preference.tolist() == [plain] * 3
        assert found.preference_both_signs.tolist() == [both] * 3


@pytest.mark.parametrize("D", [2, 6])
def test_what_directions_at_random_score(D: int) -> None:
    settings = Settings(1, D, latent=4, hidden=16, cvae_hidden=16)
    kinds = variants(("fql_perturb",), settings, phi=0.1, beta=1.0, latent_clip=1.0, n_target=2, n_target_bcq=2)
    learner, generator = ProposalLearner(settings, kinds, [0], "cpu"), torch.Generator().manual_seed(0)
    learner.policy.propose = lambda s, noise, clip=None: torch.randn(*s.shape[:-1], D, generator=generator)  # type: ignore[method-assign]
    probe = transitions([1.0] * 2_000, torch.randn(2_000, D, generator=generator).tolist())
    found = reconstruction(learner, probe, Noise([0], 1))
    assert found.preference.item() == pytest.approx(1 / D, abs=0.02)
    assert found.preference_both_signs.item() == pytest.approx(0.5 / D, abs=0.02)


def test_parts_that_a_method_lacks_are_nan(learner: ProposalLearner) -> None:
    probe = Batch(*(t.expand(3, *t.shape[1:]) for t in transitions([1.0] * 6, [[0.6, 0.3]] * 6)))
    found = reconstruction(learner, probe, Noise([0], 1))
    assert found.rec_normal.isnan().tolist() == [False, True, True]
    assert found.kl_s.isnan().tolist() == [False, False, True]
    assert found.disc_loss.isnan().tolist() == [False, True, True]
    assert found.rec_tangent.isfinite().all()
