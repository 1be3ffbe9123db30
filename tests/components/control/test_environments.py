"""Gymnasium environments by id: which are refused, and what rolling policies out in them counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from kfp_methods.components.control import rollouts
from kfp_methods.components.control.arenas import GymArena
from kfp_methods.components.control.environments import BoxEnvironment
from kfp_methods.errors import InputError


class Counting(gymnasium.Env[Any, Any]):
    """Earns 1 a step; ends after the number of steps that its first action's size says, if that is positive."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 30.0]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t, self.start = 0, self.np_random.random()
        return np.array([self.start, 0, 0], np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.t += 1
        ended = 0 < action[1] <= self.t
        return np.array([self.start, self.t, action[1]], np.float32), 1.0, bool(ended), False, {}


@pytest.fixture
def counting() -> Iterator[BoxEnvironment]:
    gymnasium.register("KfpMethodsCounting-v0", entry_point=Counting, max_episode_steps=10)
    yield BoxEnvironment.open("KfpMethodsCounting-v0")
    del gymnasium.registry["KfpMethodsCounting-v0"]


def always(value: float) -> rollouts.Policy:
    return lambda states: torch.tensor([0.0, value]).expand(*states.shape[:-1], 2)


def test_an_environment_is_described(counting: BoxEnvironment) -> None:
    assert (counting.n_observations, counting.max_steps) == (3, 10)
    assert counting.low.tolist() == [-2.0, 0.0]
    assert counting.clipped(np.array([[5.0, -1.0]])).tolist() == [[2.0, 0.0]]


def test_returns_stop_at_the_time_limit_and_discounted_ones_settle(counting: BoxEnvironment) -> None:
    found = rollouts.roll_out(always(0), counting, np.array([[1, 2, 3]]), gamma=0.9)
    assert found.returns.tolist() == [[10.0] * 3]
    settled = (1 - 0.9**44) / 0.1  # 0.9^44 is the first below 0.01
    torch.testing.assert_close(found.discounted, torch.full((1, 3), settled))


def test_an_ended_episode_earns_no_more(counting: BoxEnvironment) -> None:
    found = rollouts.roll_out(always(4), counting, np.array([[1, 2], [3, 4]]), gamma=0.5)
    assert found.returns.tolist() == [[4.0, 4.0]] * 2
    torch.testing.assert_close(found.discounted, torch.full((2, 2), 1.875))


def test_members_meet_the_same_first_states(counting: BoxEnvironment) -> None:
    found = GymArena(counting).roll_out(always(2), 3, 4, 0.9)
    assert torch.equal(found.first[0], found.first[2])
    assert len(set(found.first[0, :, 0].tolist())) == 4


def test_only_the_masked_copies_are_reset(counting: BoxEnvironment) -> None:
    with counting.side_by_side(2) as envs:
        envs.reset(seed=[1, 2])
        envs.step(np.array([[0, 0], [0, 1]], float))
        observations, _ = envs.reset(options={"reset_mask": np.array([False, True])})
        observations, *_ = envs.step(np.zeros((2, 2)))
        assert observations[:, 1].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CartPole-v1", "Discrete"),
        ("Nowhere-v1", "Nowhere"),
        ("os:Reacher-v5", "names a module to import"),
        ("Reacher-v5 ", "cannot be made"),
        ("HalfCheetah-v3", "cannot be made"),
        ("CarRacing-v3", "env_id"),
    ],
)
def test_what_cannot_be_used_is_refused(env_id: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        BoxEnvironment.open(env_id)


def test_mujocos_warnings_leave_no_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with BoxEnvironment.open("Hopper-v5").side_by_side(2) as envs:
        envs.reset(seed=[0, 1])
    assert not list(tmp_path.iterdir())
