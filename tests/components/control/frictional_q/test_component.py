"""The method as a user runs it: what is measured, what is left out, and what a run then says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.control.frictional_q import tables
from kfp_methods.components.control.frictional_q.choices import METHODS
from kfp_methods.components.control.frictional_q.component import FrictionalQInputs, FrictionalQOutputs
from kfp_methods.context import Context
from kfp_methods.errors import InputError
from kfp_methods.report import Text
from tests.components.control.frictional_q import own_data

Execute = Callable[..., FrictionalQOutputs]


def names(found: FrictionalQOutputs) -> list[str]:
    return [part.name for part in found.report.parts if not isinstance(part, Text)]


@pytest.mark.slow
def test_the_point_mass_measures_everything(execute_here: Execute, context: Context) -> None:
    found = execute_here(n_seeds=2)
    rows = [(method, seed) for method in METHODS for seed in range(2)]
    assert list(found.method_results.frame[["method", "seed"]].itertuples(index=False, name=None)) == rows
    assert names(found) == ["promises", "comparison", "curve", "angles", "method_results"]
    missing = [name for name, value in found.metrics.model_dump().items() if value is None]
    assert not missing
    assert found.metrics.best_return is not None
    assert found.metrics.behaviour_return is not None
    assert found.metrics.best_return > found.metrics.behaviour_return
    assert not context.warnings
    ours = found.method_results.frame.query("method == 'fql_perturb'")
    assert found.metrics.return_mean == pytest.approx(ours["return_mean"].mean())
    assert found.metrics.tangent_preference == pytest.approx(ours["preference"].mean())
    claim = next(result for result in found.claims if result.claim.id == "less-overestimation-than-td3")
    td3 = found.method_results.frame.query("method == 'td3'")
    expected = np.abs(ours["value_bias"].to_numpy()) - np.abs(td3["value_bias"].to_numpy())
    assert claim.samples == pytest.approx(tuple(expected))
    assert all(result.over == "seeds" and len(result.samples) in (0, 2) for result in found.claims)
    assert found.metrics.tangent_preference_by_chance == 0.5
    follows = next(result for result in found.claims if result.claim.id == "proposals-follow-the-data")
    assert follows.note.startswith("Directions at random score 0.50. Against negated normals too: 0.")
    assert f"Without contrast: {found.metrics.tangent_preference_plain_vae:.2f}" in follows.note
    unmeasured = {result.claim.id for result in found.claims if result.verdict is Verdict.NOT_MEASURED}
    assert unmeasured == {"return-near-the-logged-policy", "steadier-than-td3"}


def test_without_an_environment_only_the_critics_word_is_known(
    execute_here: Execute, files: dict[str, Any], context: Context
) -> None:
    found = execute_here(**files | {"env_id": ""})
    metrics = found.metrics
    for name in ("return_mean", "return_std", "value_bias", "return_mean_td3", "value_bias_bcq", "best_return"):
        assert getattr(metrics, name) is None
    for name in ("q_mean", "normal_deviation", "anisotropy", "stick_fraction", "tangent_preference", "kl_z"):
        assert getattr(metrics, name) is not None
    assert metrics.behaviour_return == pytest.approx(logged_return(), rel=1e-4)
    assert names(found) == ["comparison", "angles", "method_results", "actions"]
    assert "No environment was given, so what the policy earns cannot be said" in found.report.summary
    assert found.learning_curve.frame.empty
    assert context.warnings == ["without env_id nothing can be rolled out: returns and value errors are not measured"]
    by_id = {result.claim.id: result for result in found.claims}
    assert by_id["return-above-td3"].note == "Returns need an environment: give env_id."
    assert by_id["proposals-follow-the-data"].value is not None
    assert by_id["contrast-sharpens-proposals"].value is not None
    assert len(found.actions.frame) == 7
    compared = next(part for part in found.report.parts if getattr(part, "name", "") == "comparison")
    assert list(compared.frame) == ["policy", "return", "mean Q", "normal deviation", "follows the data"]  # type: ignore[union-attr]


def test_on_one_log_the_claims_are_over_its_trainings(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files | {"n_seeds": 2, "updates": 2})
    judged = [result for result in found.claims if result.value is not None]
    assert len(judged) == 6
    for result in judged:
        assert result.over == "trainings on one log"
        assert result.seeds == (0, 1)
        assert result.note.endswith("All seeds learned from one log: the interval says nothing of other logs.")


def test_at_full_size_the_papers_rates_are_those_of_the_logged_environment() -> None:
    gpu, sample = FrictionalQInputs.parse({"preset": "gpu"}), FrictionalQInputs.parse({})
    assert (gpu.sample_env, gpu.beta, gpu.critic_lr, gpu.tau) == ("HalfCheetah-v5", 1.0, 3e-4, 0.005)
    assert (sample.beta, sample.critic_lr) == (2.0, 1e-3)


def logged_return() -> float:
    log = own_data.arm()
    return float(log["rewards"].reshape(-1, 50).sum(1).mean())


def test_a_log_that_marks_no_end_is_warned_about(execute_here: Execute, context: Context, tmp_path: Path) -> None:
    log = own_data.arm(100)
    np.savez(tmp_path / "log.npz", **{name: log[name] for name in log if name != "timeouts"})
    found = execute_here(dataset_uri=str(tmp_path / "log.npz"))
    assert any("timeouts are missing" in warning for warning in context.warnings)
    assert found.metrics.behaviour_return is None
    assert "the logged policy earns" not in found.report.summary


def test_with_an_environment_the_policies_are_rolled_out(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files)
    assert names(found) == ["promises", "comparison", "curve", "angles", "method_results", "actions"]
    assert found.metrics.return_mean is not None
    assert -100 < found.metrics.return_mean < 0
    assert "2,000 logged transitions" in found.report.summary
    assert list(found.actions.frame)[-3:] == ["action_0", "action_1", "value"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        {"normal_mode": "augmentation", "both_signs": True},
        {"use_tc": False},
        {"actor_mode": "remap"},
        {"baselines": []},
        {"baselines": ["td3"]},
        {"batch_size": 21},
        {"latent_dim": 3, "beta": 0.0},
        {"n_target": 1, "n_act": 1, "policy_frequency": 1, "tau": 1.0, "gamma": 0.0},
        {"seed": 2**31 - 1},
    ],
    ids=str,
)
def test_every_choice_runs(execute_here: Execute, parameters: dict[str, Any]) -> None:
    found = execute_here(**parameters)
    assert found.metrics.return_mean is not None
    assert (found.metrics.disc_loss is None) == (parameters.get("use_tc") is False)
    assert (found.metrics.return_mean_bcq is None) == ("baselines" in parameters)
    title = "FQL (remap)" if parameters.get("actor_mode") == "remap" else "FQL (perturb)"
    assert found.report.summary.startswith(title)


def test_a_baseline_named_twice_is_run_once(execute_here: Execute) -> None:
    found = execute_here(baselines=["td3", "td3"])
    assert list(found.method_results.frame["method"]) == ["fql_perturb", "fql_remap", "td3"]


def test_a_training_that_diverges_is_said_and_left_out(execute_here: Execute, context: Context) -> None:
    found = execute_here(critic_lr=1e30, updates=20)
    assert found.metrics.q_mean is None
    assert any("left the finite numbers" in warning for warning in context.warnings)
    biased = next(result for result in found.claims if result.claim.id == "less-overestimation-than-td3")
    assert biased.note == "A compared value is not finite: that training diverged."


def test_an_environment_is_the_users_data() -> None:
    assert FrictionalQInputs.parse({}).uses_sample
    assert not FrictionalQInputs.parse({"mode": "online", "env_id": "Reacher-v5"}).uses_sample


def test_inputs_that_do_not_go_together_are_all_named() -> None:
    with pytest.raises(InputError) as caught:
        FrictionalQInputs.parse({"phi": 0.0, "action_low": [math.inf]})
    assert [problem.field for problem in caught.value.problems] == ["phi", "action_low"]
    with pytest.raises(InputError) as caught:
        FrictionalQInputs.parse({"mode": "online", "normalize_obs": True, "dataset_uri": "a.npz"})
    assert [problem.field for problem in caught.value.problems] == ["env_id", "dataset_uri", "normalize_obs"]
    with pytest.raises(InputError, match="dataset beside states"):
        FrictionalQInputs.parse({"states_uri": "states.csv"})


def test_columns_of_the_results_are_explained(execute_here: Execute) -> None:
    table = execute_here().method_results
    assert list(table.frame) == ["method", "seed", *tables.COLUMNS]
    assert all(name in table.caption for name in tables.COLUMNS)
