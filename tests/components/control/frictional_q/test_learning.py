"""What learning on the point mass's log comes to, with the sample's networks and nearly as many updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfp_methods.components.control.frictional_q import running, training
from kfp_methods.components.control.frictional_q.component import FrictionalQInputs
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.frictional_q.variants import variants
from kfp_methods.context import Context
from kfp_methods.networks import one_core


@pytest.mark.slow
@one_core()
def test_perturbed_proposals_are_judged_rightly_and_keep_what_the_logged_policy_earns(tmp_path: Path) -> None:
    """|bias of FQL| < |bias of TD3|, its return is not below TD3's, and not 0.5 below the logged policy's."""
    inputs, seeds = FrictionalQInputs.parse({"n_seeds": 1, "evaluations": 1, "updates": 2_500}), (0,)
    task = running._point_mass(inputs, seeds, "cpu")
    settings = running._settings(inputs, task.scaling)
    kinds = variants(
        ("fql_perturb",), settings, phi=inputs.phi, beta=inputs.beta, latent_clip=inputs.latent_clip,
        n_target=inputs.n_target, n_target_bcq=1,
    )  # fmt: skip
    learners: list[training.Learner] = [ProposalLearner(settings, kinds, seeds, "cpu"), TD3(settings, seeds, "cpu")]
    replay, plan = running._replay(task, "cpu"), running._plan(inputs, task, seeds)
    training.train_offline(learners, replay, plan, task.scaling, None, Context(tmp_path, "cpu"))
    ours, td3 = (running._outcomes(inputs, task, learner, replay, seeds)[0].numbers for learner in learners)
    assert abs(ours["value_bias"]) < abs(td3["value_bias"])
    assert ours["return_mean"] >= td3["return_mean"]
    assert task.behaviour[0] is not None
    assert ours["return_mean"] >= task.behaviour[0] - 0.5
    assert ours["preference"] > 0.7
