"""The updates: what each changes, what its targets are, and that members do not meet."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kfp_methods.components.control.frictional_q import learner as learner_module
from kfp_methods.components.control.frictional_q.choices import MethodName
from kfp_methods.components.control.frictional_q.critics import follow
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.noise import Noise
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.frictional_q.variants import Settings, variants
from kfp_methods.components.control.replay import Batch

ALL: tuple[MethodName, ...] = ("fql_perturb", "fql_remap", "plain_vae", "bcq")
SETTINGS = Settings(4, 3, max_action=1.5, latent=6, hidden=16, cvae_hidden=16, gamma=0.9, tau=0.1, n_act=4)


def learner(
    methods: tuple[MethodName, ...] = ALL, seeds: tuple[int, ...] = (0, 1), beta: float = 2.0, **changed: Any
) -> ProposalLearner:
    settings = replace(SETTINGS, **changed)
    kinds = variants(methods, settings, phi=0.1, beta=beta, latent_clip=1.0, n_target=5, n_target_bcq=3)
    return ProposalLearner(settings, kinds, seeds, "cpu")


def batch(members: int, rows: int = 8, seed: int = 0) -> Batch:
    """The same random transitions for every member."""
    g = torch.Generator().manual_seed(seed)
    one = Batch(
        torch.randn(rows, 4, generator=g),
        torch.rand(rows, 3, generator=g) * 3 - 1.5,
        torch.randn(rows, generator=g),
        torch.randn(rows, 4, generator=g),
        (torch.rand(rows, generator=g) < 0.3).float(),
    )
    return Batch(*(tensor.expand(members, *tensor.shape) for tensor in one))


def constant(module: nn.Module, value: float) -> None:
    """Makes a critic say `value` everywhere."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.fill_(value if name.endswith("4.bias") else 0.0)


def state(module: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(module.state_dict())


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("made", [learner(), TD3(SETTINGS, [0, 1], "cpu")], ids=["vae", "td3"])
def test_with_constant_critics_the_target_is_known(made: Any) -> None:
    constant(made.target_critics, 2.5)
    given = batch(len(made.members))
    torch.testing.assert_close(made.targets(given), given.rewards + 0.9 * (1 - given.done) * 2.5)


def critic_of_the_state(module: nn.Module) -> None:
    """Q = 3 relu(s₀), whatever the action."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for name, parameter in module.named_parameters():
            if name.endswith("weight"):
                parameter[:, 0, 0] = 3.0 if name.endswith("4.weight") else 1.0


def test_the_target_ignores_proposals_when_the_critic_does() -> None:
    made, given = learner(), batch(8)
    critic_of_the_state(made.target_critics)
    expected = given.rewards + 0.9 * (1 - given.done) * 3 * given.next_states[..., 0].relu()
    torch.testing.assert_close(made.targets(given), expected)


def test_one_proposal_leaves_nothing_to_choose() -> None:
    kinds = variants(("fql_perturb",), SETTINGS, phi=0.1, beta=2.0, latent_clip=1.0, n_target=1, n_target_bcq=1)
    made = ProposalLearner(SETTINGS, kinds, (5,), "cpu")
    given, again = batch(1), Noise((5,), 2)
    proposals = made.policy.propose(given.next_states, again.normal(8, 1, 12)[:, :, 0])
    q1, q2 = made.target_critics(given.next_states, made.policy.refine(made.target_actor, given.next_states, proposals))
    expected = given.rewards + 0.9 * (1 - given.done) * torch.minimum(q1, q2)
    torch.testing.assert_close(made.targets(given), expected)


def test_the_least_critic_comes_before_the_best_proposal_and_bcq_blends() -> None:
    """Recomputed member by member with ordinary loops."""
    made, given, again = learner(seeds=(0,)), batch(4), Noise((0,), 2)
    drawn = again.normal(8, 5, 12)[0]
    found = made.targets(given)
    for k, member in enumerate(made.members):
        count, least = (3, 0.75) if member.method == "bcq" else (5, 1.0)
        for row in range(8):
            values = []
            for number in range(count):
                states = given.next_states[:, row : row + 1]
                noise = drawn[row, number].expand(4, 1, -1)
                proposals = made.policy.propose(states, noise)
                q1, q2 = made.target_critics(states, made.policy.refine(made.target_actor, states, proposals))
                low, high = sorted([q1[k, 0].item(), q2[k, 0].item()])
                values.append(least * low + (1 - least) * high)
            expected = given.rewards[k, row] + 0.9 * (1 - given.done[k, row]) * max(values)
            assert found[k, row].item() == pytest.approx(expected.item(), abs=1e-5)


def test_with_all_weights_zero_the_loss_is_known() -> None:
    """Nothing is rebuilt, so the errors are the actions' own sizes, and the latents are standard normal."""
    made, given = learner(("fql_perturb", "plain_vae"), (0,), use_tc=False), batch(2)
    with torch.no_grad():
        for parameter in made.policy.cvae.parameters():
            parameter.zero_()
    terms = made.vae_terms(given, Noise((0,), 9))
    torch.testing.assert_close(terms.tangent_error, given.actions.square().sum(2).mean(1))
    assert terms.kl_z.tolist() == [0.0, 0.0]
    assert terms.kl_s.tolist() == [0.0, 0.0]
    torch.testing.assert_close(terms.normal_error, torch.tensor([1.5**2]))
    assert terms.kl_normal.tolist() == [0.0]


def test_the_actors_step_changes_the_actor_alone() -> None:
    made = learner()
    others = [made.policy.cvae, made.policy.critics, made.target_critics, made.target_actor, made.discriminator]
    before, actor = [state(module) for module in others if module], state(made.policy.actor)
    made.train_actor(batch(8))
    assert all(same(old, state(module)) for old, module in zip(before, others, strict=True) if module)
    assert not same(actor, state(made.policy.actor))


def test_the_vaes_step_leaves_the_discriminator_to_its_own() -> None:
    """What the discriminator learns does not depend on the VAE's own step, and the other networks stay."""
    made, other = learner(), learner()
    before = state(made.policy.critics), state(made.policy.actor)
    other.optimisers["cvae"].param_groups[0]["lr"] = 0.0
    for one in (made, other):
        one.train_cvae(batch(8))
    assert made.discriminator is not None
    assert other.discriminator is not None
    assert same(state(made.discriminator), state(other.discriminator))
    assert not same(state(made.discriminator), state(learner().discriminator))  # type: ignore[arg-type]
    assert not same(state(made.policy.cvae), state(other.policy.cvae))
    assert same(before[0], state(made.policy.critics))
    assert same(before[1], state(made.policy.actor))


@pytest.mark.parametrize("made", [learner(), TD3(SETTINGS, [0, 1], "cpu")], ids=["vae", "td3"])
def test_actors_and_slow_copies_move_on_even_steps_only(made: Any) -> None:
    actor = made.policy.actor if isinstance(made, ProposalLearner) else made.actor
    for step in range(1, 5):
        before = state(actor), state(made.target_actor), state(made.target_critics)
        made.update(batch(len(made.members), seed=step), step)
        after = state(actor), state(made.target_actor), state(made.target_critics)
        assert [same(a, b) for a, b in zip(before, after, strict=True)] == [step % 2 == 1] * 3


def test_polyak_with_tau_one_copies() -> None:
    made = learner()
    made.update(batch(8), 1)
    follow(made.target_critics, made.policy.critics, 1.0)
    assert same(state(made.target_critics), state(made.policy.critics))
    before = state(made.target_critics)
    made.update(batch(8), 1)
    follow(made.target_critics, made.policy.critics, 0.25)
    for name, online in made.policy.critics.state_dict().items():
        torch.testing.assert_close(made.target_critics.state_dict()[name], 0.75 * before[name] + 0.25 * online)


def test_the_background_is_the_normal_that_the_critic_likes_least() -> None:
    made, given = learner(("fql_perturb",), (0,)), batch(1)
    actions, states, weights = made.background(given)
    assert actions.shape == (1, 8, 3)
    assert torch.equal(states, given.states)
    assert weights.tolist() == [[1.0] * 8]
    every, repeated, _ = learner(("fql_perturb",), (0,), normal_mode="augmentation").background(given)
    assert every.shape == (1, 16, 3)
    values = made.q1(repeated, every).reshape(8, 2)
    torch.testing.assert_close(made.q1(given.states, actions)[0], values.amin(1))


def test_both_signs_double_the_background() -> None:
    given = batch(1)
    every, *_ = learner(("fql_perturb",), (0,), normal_mode="augmentation", both_signs=True).background(given)
    rows = every.reshape(8, 4, 3)
    torch.testing.assert_close(rows[:, :2], -rows[:, 2:])


def test_a_logged_action_of_no_size_has_no_background() -> None:
    made, given = learner(("fql_perturb",), (0,)), batch(1)
    still = given._replace(actions=given.actions * torch.tensor([0.0] * 4 + [1.0] * 4)[:, None])
    terms = made.vae_terms(still, Noise((0,), 9))
    alone = made.vae_terms(Batch(*(tensor[:, 4:] for tensor in still)), Noise((1,), 9))
    assert made.background(still)[2].tolist() == [[0.0] * 4 + [1.0] * 4]
    torch.testing.assert_close(terms.kl_normal, alone.kl_normal)


def test_normals_are_rebuilt_without_the_tangent_latent() -> None:
    """Changing the tangent encoder leaves the normal terms alone; changing the shared one does not."""
    made, given = learner(("fql_perturb",), (0,)), batch(1)
    before = made.vae_terms(given, Noise((0,), 9))
    with torch.no_grad():
        for parameter in made.policy.cvae.tangent.parameters():
            parameter.mul_(2)
    after = made.vae_terms(given, Noise((0,), 9))
    assert torch.equal(before.normal_error, after.normal_error)
    assert not torch.equal(before.tangent_error, after.tangent_error)


def test_bcq_has_one_latent_and_the_ablation_no_contrast() -> None:
    made = learner()
    assert (made.with_normals.stop, made.with_shared.stop, len(made.members)) == (4, 6, 8)
    before = state(made.policy.cvae.shared)
    for step in range(1, 4):
        made.update(batch(8), step)
    for name, tensor in made.policy.cvae.shared.state_dict().items():
        assert torch.equal(tensor[6:], before[name][6:]), "nothing reaches BCQ's unused encoder"
        assert not torch.equal(tensor[:6], before[name][:6])


def test_bcq_can_be_trained_alone() -> None:
    made, whole = learner(("bcq",)), learner(("fql_perturb", "bcq"))
    for step in range(1, 5):
        made.update(batch(2, seed=step), step)
        whole.update(batch(4, seed=step), step)
    assert made.discriminator is None
    for name, tensor in made.policy.critics.state_dict().items():
        assert tensor.isfinite().all()
        assert tensor.shape == whole.policy.critics.state_dict()[name][2:].shape


def test_perturbations_are_small_and_the_remap_is_free() -> None:
    made = learner(seeds=(0,))
    states, proposals = torch.randn(4, 50, 4), torch.rand(4, 50, 3) * 3 - 1.5
    with torch.no_grad():
        for parameter in made.policy.actor.parameters():
            parameter.mul_(50)
    refined = made.policy.refine(made.policy.actor, states, proposals)
    moved = (refined - proposals).abs().flatten(1).amax(1)
    assert refined.abs().max() <= 1.5
    limits = {"fql_perturb": 0.15, "plain_vae": 0.15, "bcq": 0.075}
    for member, size in zip(made.members, moved.tolist(), strict=True):
        if member.method == "fql_remap":
            assert size > 1
        else:
            assert size == pytest.approx(limits[member.method], rel=1e-4)


def test_latents_are_clamped() -> None:
    made, states = learner(seeds=(0,)), torch.randn(4, 5, 4)
    noise, far = torch.full((4, 5, 12), 0.5), torch.full((4, 5, 12), 9.0)
    assert torch.equal(made.policy.propose(states, far)[3], made.policy.propose(states, noise)[3]), "BCQ: ±0.5"
    assert torch.equal(made.policy.propose(states, far)[0], made.policy.propose(states, far.clamp(-1, 1))[0])
    assert torch.equal(made.policy.propose(states, far, 0.5), made.policy.propose(states, noise))


def test_the_best_proposal_is_done() -> None:
    made = learner(seeds=(0,))
    states, noise = torch.randn(4, 6, 4), torch.randn(4, 6, 9, 12)
    actions, values = made.policy.choose(states, noise)
    for number in range(9):
        refined = made.policy.refine(made.policy.actor, states, made.policy.propose(states, noise[:, :, number]))
        assert (made.q1(states, refined) <= values + 1e-6).all()
    torch.testing.assert_close(made.q1(states, actions), values)


def test_a_seed_does_not_depend_on_other_seeds_or_methods() -> None:
    """Equal but for rounding: batched products may add in another order."""
    whole, alone = learner(seeds=(0, 1)), learner(("fql_perturb",), (1,))
    for step in range(1, 7):
        whole.update(batch(8, seed=step), step)
        alone.update(batch(1, seed=step), step)
    member = whole.members.index(next(m for m in whole.members if (m.method, m.seed) == ("fql_perturb", 1)))
    for name, tensor in alone.policy.state_dict().items():
        torch.testing.assert_close(whole.policy.state_dict()[name][member], tensor[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("latent", [3, 6])
def test_bcqs_vae_is_the_published_one(monkeypatch: pytest.MonkeyPatch, latent: int) -> None:
    """F.mse_loss(rebuilt, action) + 0.5 * (-0.5 * (1 + log std² - mean² - std²).mean()), here D = 3 times that."""
    made, given = learner(("bcq",), (0,), latent=latent), batch(1)
    found: list[Tensor] = []
    monkeypatch.setattr(learner_module, "descend", lambda loss, optimiser: found.append(loss))
    made.train_cvae(given)
    policy = made.policy.cvae
    mean, log_std = policy.tangent(torch.cat([given.states, given.actions], dim=-1), made.log_std)
    z = mean + log_std.exp() * Noise((0,), 2).normal(8, 2 * latent)[..., :latent]
    rebuilt = policy.decode(given.states, z, torch.zeros_like(z))
    kl = -0.5 * (1 + 2 * log_std - mean.square() - (2 * log_std).exp()).mean()
    torch.testing.assert_close(found[0], 3 * (nn.functional.mse_loss(rebuilt, given.actions) + 0.5 * kl))


def test_targets_in_parts_are_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = learner(), learner()
    monkeypatch.setattr(parts.policy, "rows_at_once", lambda proposals: 3)
    torch.testing.assert_close(parts.targets(batch(8)), whole.targets(batch(8)))


def test_an_odd_batch_is_trained_on_whole() -> None:
    made = learner()
    before = state(made.policy.cvae)
    made.update(batch(8, rows=7), 1)
    assert not same(before, state(made.policy.cvae))


def test_td3s_actor_takes_no_proposal_and_its_noise_is_clipped() -> None:
    made, given = TD3(SETTINGS, [0], "cpu"), batch(1, rows=500)
    seen: list[Tensor] = []
    target = made.target_critics.forward
    made.target_critics.forward = lambda s, a: (seen.append(a), target(s, a))[1]  # type: ignore[method-assign, func-returns-value]
    made.targets(given)
    smooth = 1.5 * torch.tanh(made.target_actor(given.next_states))
    difference = seen[0] - smooth
    assert difference.abs().max() <= 0.5 * 1.5 + 1e-6
    assert difference.std().item() == pytest.approx(0.2 * 1.5, rel=0.1)
