"""Frictional Q-Learning: a policy from logged transitions that does not trust its critic where nothing was tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import InstanceOf, model_validator

from kfp_methods.components.control.frictional_q.choices import BASELINES, ActorMode, Baseline, Mode, NormalMode
from kfp_methods.components.control.frictional_q.claims import CLAIMS
from kfp_methods.contract import (
    Dataset,
    FittedModel,
    Method,
    Metrics,
    Model,
    ModelInputs,
    Outputs,
    artifact,
    by_preset,
    metric,
    output,
    parameter,
)
from kfp_methods.errors import InputError, Problem
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.control.frictional_q.user_data import UserData
    from kfp_methods.context import Context


class FrictionalQInputs(ModelInputs):
    """What is learned from, how, and what it is compared with."""

    own_data = ("env_id",)

    dataset: Dataset | None = artifact(
        "Logged transitions: NPZ with observations (n, S), actions (n, D), rewards (n), next_observations (n, S), "
        "terminals (n), perhaps timeouts (n) and action_low, action_high (D); or a table with columns of lists or "
        "observations_0, …; D at least 2."
    )
    states: Dataset | None = artifact(
        "States that want actions: NPZ with observations (n, S), or a table with observations_0, …"
    )
    base_model: Model | None = artifact("An earlier run's model output, from whose weights FQL goes on.")
    env_id: str = parameter(
        "",
        "A gymnasium environment with continuous actions, such as Reacher-v5: where an online run acts, and where the "
        "policies of a dataset are evaluated.",
        max_length=200,
    )
    mode: Mode = parameter("offline", "offline: learn from the dataset alone; online: act in env_id and learn.")
    sample_env: Literal["point-mass", "HalfCheetah-v5", "Hopper-v5"] = by_preset(
        "Where the embedded sample's transitions come from: a point mass whose truth is known, or MuJoCo, logged by "
        "TD3 while it learns.",
        smoke="point-mass",
        sample="point-mass",
        gpu="HalfCheetah-v5",
    )
    updates: int = by_preset("Updates of an offline run.", smoke=20, sample=3_000, gpu=40_000, ge=1, le=10_000_000)
    total_timesteps: int = by_preset(
        "Steps of an online run in each policy's environment (and of the gpu sample's log).",
        smoke=300,
        sample=5_000,
        gpu=100_000,
        ge=1,
        le=100_000_000,
    )
    normal_mode: NormalMode = parameter(
        "critic", "Which normal of a logged action is contrasted: the one the critic likes least, or all."
    )
    both_signs: bool = parameter(False, "Contrast the negated normals too; the released code does not.")
    actor_mode: ActorMode = parameter(
        "auto", "perturb: proposals are moved by at most phi; remap: mapped anew; auto: perturb offline, remap online."
    )
    phi: float = parameter(0.1, "Largest perturbation, as a share of the largest action.", gt=0, le=1)
    beta: float = by_preset(
        "Weight of the KL terms (gpu: the paper's for HalfCheetah and Humanoid; elsewhere it has 2).",
        smoke=2.0,
        sample=2.0,
        gpu=1.0,
        ge=0,
    )
    use_tc: bool = parameter(True, "Punish the total correlation of the two latents.")
    latent_dim: int = parameter(0, "Size of each latent; 0: twice the number of action dimensions.", ge=0, le=10_000)
    n_target: int = by_preset("Proposals in a target (BCQ: at most 10).", smoke=5, sample=5, gpu=16, ge=1, le=1_000)
    n_act: int = by_preset("Proposals of which the best is done.", smoke=5, sample=5, gpu=128, ge=1, le=10_000)
    latent_clip: float = parameter(1.0, "Prior draws are clamped to this size.", gt=0)
    gamma: float = by_preset("Discount.", smoke=0.95, sample=0.95, gpu=0.99, ge=0, lt=1)
    tau: float = by_preset("Share of the new weights in a target network's step.", smoke=0.05, sample=0.05, gpu=0.005,
                           gt=0, le=1)  # fmt: skip
    policy_frequency: int = parameter(2, "Updates from one step of the actor to the next.", ge=1, le=1_000)
    actor_lr: float = by_preset("Adam's rate for actors.", smoke=1e-3, sample=1e-3, gpu=3e-4, gt=0)
    critic_lr: float = by_preset(
        "Adam's rate for critics (gpu: the paper's for HalfCheetah, Ant and Humanoid; elsewhere it has 1e-3).",
        smoke=1e-3,
        sample=1e-3,
        gpu=3e-4,
        gt=0,
    )
    cvae_lr: float = parameter(1e-3, "Adam's rate for the VAE and its discriminator.", gt=0)
    batch_size: int = by_preset("Transitions in an update.", smoke=100, sample=100, gpu=256, ge=2, le=100_000)
    hidden: int = by_preset("Width of critics and actors.", smoke=64, sample=64, gpu=256, ge=1, le=8_192)
    cvae_hidden: int = by_preset("Width of encoders and decoder.", smoke=64, sample=64, gpu=512, ge=1, le=8_192)
    exploration_noise: float = parameter(
        0.1, "Online: sd of the noise on actions, as a share of the largest action.", ge=0
    )
    learning_starts: int = by_preset(
        "Online: random steps before the first update.", smoke=100, sample=1_000, gpu=25_000, ge=1
    )
    buffer_size: int = parameter(1_000_000, "Online: transitions that are kept.", ge=2)
    baselines: list[Baseline] = parameter(list(BASELINES), "What FQL is compared with on the same data.")
    friction_mu: float = parameter(0.2, "Normal deviation up to which a state counts as sticking.", gt=0)
    normalize_obs: bool = parameter(False, "Scale each observation of the dataset to mean 0 and sd 1.")
    action_low: list[float] = parameter([], "Least actions; empty: the file's, the environment's, or as logged.")
    action_high: list[float] = parameter([], "Greatest actions; likewise.")
    n_seeds: int = by_preset("Trainings of each method, one a seed.", smoke=2, sample=3, gpu=3, ge=1, le=100)
    evaluations: int = by_preset("Points of the learning curve.", smoke=1, sample=5, gpu=20, ge=1, le=1_000)
    eval_episodes: int = by_preset(
        "Episodes of the final evaluation (on the point mass, whose episodes are cheap, 15 times as many).",
        smoke=2,
        sample=20,
        gpu=30,
        ge=1,
        le=1_000,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> FrictionalQInputs:
        if problems := self._source_problems():
            raise InputError(problems)
        return self

    def latent_of(self, n_actions: int) -> int:
        """Size of each latent for actions of that length."""
        return self.latent_dim or 2 * n_actions

    def _source_problems(self) -> list[Problem]:
        """Online needs an environment and no dataset; offline, whatever else is given, a dataset."""
        problems = []
        if self.mode == "online":
            if not self.env_id:
                remedy = "Give an environment such as Reacher-v5, or mode=offline"
                problems.append(Problem("env_id", None, "mode=online needs an environment", remedy))
            if self.dataset:
                problem = "mode=online does not read a dataset"
                problems.append(Problem("dataset_uri", str(self.dataset), problem, "Leave it out, or mode=offline"))
            if self.normalize_obs:
                remedy = "Leave it out, or wrap the environment"
                problems.append(Problem("normalize_obs", True, "needs a dataset to take the scale from", remedy))
            if self.learning_starts >= self.total_timesteps:
                problem, remedy = f"leaves no update within total_timesteps={self.total_timesteps}", "Give less"
                problems.append(Problem("learning_starts", self.learning_starts, problem, remedy))
        elif self.dataset is None and not self.uses_sample:
            given = next(name for name in ("env_id", "states", "base_model") if getattr(self, name))
            problem = f"mode=offline needs a dataset beside {given}"
            problems.append(Problem("dataset_uri", None, problem, "Give logged transitions, or mode=online"))
        return problems


class FrictionalQMetrics(Metrics):
    """Of FQL, means over seeds, and the main figures of the compared methods; None where they cannot be measured."""

    return_mean: float | None = metric("Mean return of FQL's policy; None without an environment.", optional=True)
    return_std: float | None = metric("Standard deviation of the returns over first states.", optional=True)
    behaviour_return: float | None = metric("Mean return of the logged policy.", optional=True)
    best_return: float | None = metric("Mean return of the best linear policy (point mass only).", optional=True)
    value_bias: float | None = metric(
        "Mean of Q1 minus the discounted return that followed; above 0: over-estimated.", optional=True
    )
    q_mean: float | None = metric("Mean Q1 of the policy's actions at logged states.", optional=True)
    cvae_rec_tangent: float | None = metric("Squared error of logged actions rebuilt by the VAE.", optional=True)
    cvae_rec_normal: float | None = metric(
        "Squared error of normal actions rebuilt from the shared latent.", optional=True
    )
    kl_z: float | None = metric("KL divergence of the tangent latent.", optional=True)
    kl_s: float | None = metric("KL divergence of the shared latent.", optional=True)
    disc_loss: float | None = metric("The discriminator's loss; 1.386 is a guess. None without use_tc.", optional=True)
    anisotropy: float | None = metric(
        "Mean slope of Q1 at right angles to the logged action / mean slope along it.", optional=True
    )
    normal_deviation: float | None = metric(
        "Mean distance by which the policy leaves near logged actions sideways / largest action.", optional=True
    )
    stick_fraction: float | None = metric("Share of states where that distance is at most friction_mu.", optional=True)
    tangent_preference: float | None = metric(
        "Share of proposals closer in angle to the logged action than to any of its normals.", optional=True
    )
    tangent_preference_both_signs: float | None = metric(
        "Share of proposals closer to it than to any of its normals and their negatives.", optional=True
    )
    tangent_preference_by_chance: float = metric("tangent_preference of directions at random: 1 / D.")
    tangent_preference_plain_vae: float | None = metric("tangent_preference without contrast.", optional=True)
    return_mean_other_actor: float | None = metric("Mean return with the other actor_mode (offline).", optional=True)
    return_mean_bcq: float | None = metric("Mean return of BCQ.", optional=True)
    return_mean_td3: float | None = metric("Mean return of TD3.", optional=True)
    return_mean_plain_vae: float | None = metric("Mean return of FQL without contrast.", optional=True)
    value_bias_other_actor: float | None = metric("Value bias with the other actor_mode (offline).", optional=True)
    value_bias_bcq: float | None = metric("Value bias of BCQ.", optional=True)
    value_bias_td3: float | None = metric("Value bias of TD3.", optional=True)
    value_bias_plain_vae: float | None = metric("Value bias of FQL without contrast.", optional=True)
    normal_deviation_bcq: float | None = metric("Normal deviation of BCQ.", optional=True)
    normal_deviation_td3: float | None = metric("Normal deviation of TD3.", optional=True)
    update_seconds: float = metric("Seconds of one update of one FQL policy, trained alone.")
    update_seconds_plain_vae: float | None = metric("The same without contrast.", optional=True)
    update_seconds_bcq: float | None = metric("The same of BCQ.", optional=True)
    update_seconds_td3: float | None = metric("The same of TD3.", optional=True)
    update_time_ratio_vs_td3: float | None = metric("update_seconds / update_seconds_td3.", optional=True)


class FrictionalQOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[FrictionalQMetrics] = output("Means over seeds.")
    method_results: InstanceOf[Table] = output("Every method and seed: returns, value bias, friction, VAE's errors.")
    learning_curve: InstanceOf[Table] = output("Mean return of every method and seed on the way; empty without env_id.")
    actions: InstanceOf[Table] = output(
        "FQL's actions and their values for the given states, or for a few logged ones."
    )
    model: InstanceOf[FittedModel] = output("FQL's policy of the first seed: VAE, actor, critics and scaling.")


def load(inputs: FrictionalQInputs, context: Context) -> UserData | None:
    """The user's files and environment, checked; None for the embedded sample."""
    if inputs.uses_sample:
        return None
    from kfp_methods.components.control.frictional_q import user_data

    return user_data.load(inputs, context)


def run(inputs: FrictionalQInputs, data: UserData | None, context: Context) -> FrictionalQOutputs:
    """Trains FQL and its baselines on the same transitions, and diagnoses all of them."""
    from kfp_methods.components.control.frictional_q import running
    from kfp_methods.components.control.frictional_q.outputs import outputs

    return outputs(inputs, running.experiment(inputs, data, context), context)


def load_model(folder: Path) -> FittedModel:
    """The policy that `FittedPolicy.save` wrote."""
    from kfp_methods.components.control.frictional_q.model import FittedPolicy

    return FittedPolicy.load(folder)


METHOD = Method("frictional_q", FrictionalQInputs, FrictionalQOutputs, load, run, CLAIMS, load_model)
