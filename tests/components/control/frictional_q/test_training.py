"""The loops: a run that was cut off goes on with the same bits, in a log and in an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.checkpoints import Checkpoints
from kfp_methods.components.control.frictional_q import running
from kfp_methods.components.control.frictional_q.component import FrictionalQInputs, FrictionalQOutputs
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.context import Context
from tests.components.control.frictional_q.conftest import QUICK, execute

pytestmark = pytest.mark.slow

OFFLINE: dict[str, Any] = {"updates": 8, "evaluations": 4, "n_seeds": 2}
ONLINE: dict[str, Any] = {
    "mode": "online", "env_id": "Reacher-v5", "total_timesteps": 90, "learning_starts": 25, "evaluations": 3,
}  # fmt: skip


class CutOffError(Exception):
    """Stands for the end of the process."""


def kept(folder: Path, root: Path) -> Context:
    context = Context(folder, "cpu")
    context.find_checkpoints = lambda: Checkpoints(root, "frictional_q", {}, 0.0)
    return context


def assert_same(one: FrictionalQOutputs, other: FrictionalQOutputs) -> None:
    for name in ("method_results", "learning_curve", "actions"):
        pd.testing.assert_frame_equal(getattr(one, name).frame, getattr(other, name).frame, check_exact=True)


@pytest.mark.parametrize(("parameters", "cut_at"), [(OFFLINE, 1), (OFFLINE, 5), (ONLINE, 3), (ONLINE, 60)])
def test_a_run_that_was_cut_off_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], cut_at: int
) -> None:
    whole, update = execute(Context(tmp_path, "cpu"), **parameters), ProposalLearner.update

    def cut(self: ProposalLearner, batch: Any, step: int) -> None:
        if step == cut_at:
            raise CutOffError
        update(self, batch, step)

    monkeypatch.setattr(ProposalLearner, "update", cut)
    with pytest.raises(CutOffError):
        execute(kept(tmp_path, tmp_path / "kept"), **parameters)
    again: list[int] = []
    monkeypatch.setattr(
        ProposalLearner, "update", lambda self, batch, step: (again.append(step), update(self, batch, step))[1]
    )
    assert_same(execute(kept(tmp_path, tmp_path / "kept"), **parameters), whole)
    assert (again[0] > 1) == (cut_at not in (1, 3)), "what was done is not repeated"


def test_the_curve_has_as_many_points_as_were_asked(tmp_path: Path) -> None:
    for parameters, steps in ((OFFLINE, [2, 4, 6, 8]), (ONLINE, [30, 60, 90])):
        context = Context(tmp_path, "cpu")
        curve = execute(context, **parameters).learning_curve.frame
        assert sorted(set(curve["step"])) == steps
        assert {point.step for point in context.points} == set(steps)


def test_online_every_method_learns_from_its_own_steps(tmp_path: Path) -> None:
    found = execute(Context(tmp_path, "cpu"), **ONLINE, actor_mode="perturb")
    assert list(found.method_results.frame["method"]) == ["fql_perturb", "plain_vae", "bcq", "td3"]
    assert found.metrics.return_mean is not None
    assert found.metrics.return_mean_other_actor is None
    assert found.metrics.behaviour_return is None
    released = execute(Context(tmp_path, "cpu"), **ONLINE, baselines=[])
    assert list(released.method_results.frame["method"]) == ["fql_remap"]
    assert released.metrics.update_time_ratio_vs_td3 is None
    assert {result.claim.id for result in released.claims if result.value is not None} == {"proposals-follow-the-data"}


def test_a_sample_can_be_logged_in_a_simulator(tmp_path: Path) -> None:
    small = {"sample_env": "Hopper-v5", "total_timesteps": 400, "learning_starts": 80, "n_act": 2, "baselines": ["td3"]}
    found = execute(Context(tmp_path, "cpu"), **small)
    assert "400 transitions that TD3 logged in Hopper-v5" in found.report.summary
    assert found.metrics.behaviour_return is not None
    assert found.metrics.best_return is None


def test_what_was_cut_before_the_time_limit_is_no_episode_of_the_logged_policy(tmp_path: Path) -> None:
    """Nothing ends in HalfCheetah but at its 1,000 steps."""
    small = {"sample_env": "HalfCheetah-v5", "total_timesteps": 400, "learning_starts": 80, "n_act": 2}
    found = execute(Context(tmp_path, "cpu"), **small, baselines=["td3"])
    assert found.metrics.behaviour_return is None
    assert "the logged policy earns" not in found.report.summary


def test_each_seed_has_its_own_log_in_a_simulator(tmp_path: Path) -> None:
    inputs = FrictionalQInputs.parse(
        QUICK | {"sample_env": "Hopper-v5", "total_timesteps": 160, "learning_starts": 80, "n_seeds": 2}
    )
    seeds = [running._task(inputs, None, pair, Context(tmp_path, "cpu")) for pair in ((0, 1), (1, 2))]
    one, other = seeds
    assert (one.logs[0].actions != one.logs[1].actions).any()
    np.testing.assert_array_equal(one.logs[1].actions[:20], other.logs[0].actions[:20])
