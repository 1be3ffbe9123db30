"""From validated inputs to trained and diagnosed policies: on the sample, a user's log, or in an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.control import point_mass
from kfp_methods.components.control.arenas import Arena, GymArena, PointMassArena
from kfp_methods.components.control.environments import BoxEnvironment
from kfp_methods.components.control.frictional_q import training
from kfp_methods.components.control.frictional_q.choices import MethodName
from kfp_methods.components.control.frictional_q.diagnostics import Friction, Reconstruction, friction, reconstruction
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.model import FittedPolicy
from kfp_methods.components.control.frictional_q.noise import Noise, derived_seed
from kfp_methods.components.control.frictional_q.scaling import Scaling
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.frictional_q.timing import update_seconds
from kfp_methods.components.control.frictional_q.training import Learner, Plan, Watched
from kfp_methods.components.control.frictional_q.variants import Settings, Variant, variants
from kfp_methods.components.control.replay import Batch, Replay, Transitions
from kfp_methods.components.control.rollouts import Policy, Rollouts
from kfp_methods.networks import one_core

if TYPE_CHECKING:
    from kfp_methods.components.control.frictional_q.component import FrictionalQInputs
    from kfp_methods.components.control.frictional_q.user_data import UserData
    from kfp_methods.context import Context

CURVE_SHARE = 10  # the learning curve's evaluations use one first state of so many
POINT_MASS_STARTS = 15
PROBES, MOST_LOGGED = 500, 20_000
LOG_ENVIRONMENTS = 8
_DIAGNOSIS, _LOG = 8, 9


@dataclass(frozen=True)
class Outcome:
    """What one trained policy came to; numbers by the names of `tables`, NaN where there is nothing to measure.

    Attributes:
        method: which.
        seed: of everything random in it.
        numbers: by name.
        values: Q1 in the first states [N]; empty without an environment.
        returns: discounted returns from there [N].
        angles: between proposals and logged actions, in degrees; empty for TD3.
    """

    method: MethodName
    seed: int
    numbers: dict[str, float]
    values: np.ndarray = field(default_factory=lambda: np.empty(0))
    returns: np.ndarray = field(default_factory=lambda: np.empty(0))
    angles: np.ndarray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Experiment:
    """All that the outputs are made of.

    Attributes:
        main: the FQL that the user asked for.
        outcomes: of every method and seed.
        watched: the learning curve and seconds.
        behaviour: the logged policy's mean return of each seed; None where it is unknown.
        best: the linear-quadratic regulator's mean return; None but for the point mass.
        fitted: FQL's policy of the first seed.
        update_seconds: of one policy trained alone; of FQL, that the user asked for.
        where: the data in words.
        measured: whether returns could be measured.
        offline: whether there was a fixed buffer.
        seeds: of the run.
        one_log: whether all seeds learned from the same transitions.
        states: the user's, that want actions [n, S].
    """

    main: MethodName
    outcomes: list[Outcome]
    watched: Watched
    behaviour: list[float | None]
    best: float | None
    fitted: FittedPolicy
    update_seconds: dict[MethodName, float]
    where: str
    measured: bool
    offline: bool
    seeds: tuple[int, ...]
    one_log: bool
    states: np.ndarray | None

    @property
    def n_actions(self) -> int:
        """D."""
        return self.fitted.settings.n_actions

    def of(self, method: MethodName) -> list[Outcome]:
        """One a seed."""
        return [outcome for outcome in self.outcomes if outcome.method == method]


@dataclass(frozen=True)
class Task:
    """What is learned from: a log for each seed or one for all, and where and how often policies are tried."""

    logs: Sequence[Transitions]
    arena: Arena | None
    scaling: Scaling
    where: str
    behaviour: list[float | None]
    episodes: int
    best: float | None = None


def experiment(inputs: FrictionalQInputs, data: UserData | None, context: Context) -> Experiment:
    """Trains and diagnoses; on the CPU each operation on one core, whatever their number."""
    if context.device == "cuda":
        return _experiment(inputs, data, context)
    with one_core():
        return _experiment(inputs, data, context)


def _experiment(inputs: FrictionalQInputs, data: UserData | None, context: Context) -> Experiment:
    seeds = tuple(range(inputs.seed, inputs.seed + inputs.n_seeds))
    if inputs.mode == "online":
        return _online(inputs, data, seeds, context)
    task = _task(inputs, data, seeds, context)
    learners, kinds = _learners(inputs, task.scaling, seeds, _methods(inputs), context, data)
    replay = _replay(task, context.device)
    watched = training.train_offline(learners, replay, _plan(inputs, task, seeds), task.scaling, task.arena, context)
    replays, states = [replay] * len(learners), None if data is None else data.states
    return _finished(inputs, task, learners, kinds, replays, watched, seeds, states)


def _online(inputs: FrictionalQInputs, data: UserData | None, seeds: tuple[int, ...], context: Context) -> Experiment:
    assert data is not None and data.environment is not None  # noqa: S101 (the contract requires it)
    env = data.environment
    scaling = Scaling.of(env.low, env.high, env.n_observations) if data.base is None else data.base.scaling
    task = Task(
        [], GymArena(env), scaling.to(context.device), f"actions in {env.id}", [None] * len(seeds), inputs.eval_episodes
    )
    learners, kinds = _learners(inputs, task.scaling, seeds, _methods(inputs), context, data)
    plan = _plan(inputs, task, seeds)
    capacity = min(inputs.buffer_size, inputs.total_timesteps)
    exploration, waits = inputs.exploration_noise, inputs.learning_starts
    with training.workers(
        learners, env, plan, task.scaling, exploration=exploration, waits=waits, capacity=capacity
    ) as made:
        watched = training.train_online(made, plan, GymArena(env), context, f"learning in {env.id}")
        replays = [worker.replay for worker in made]
    return _finished(inputs, task, learners, kinds, replays, watched, seeds, data.states)


def main_method(inputs: FrictionalQInputs) -> MethodName:
    """FQL with the actor that was asked for."""
    auto = "perturb" if inputs.mode == "offline" else "remap"
    return "fql_perturb" if (auto if inputs.actor_mode == "auto" else inputs.actor_mode) == "perturb" else "fql_remap"


def _methods(inputs: FrictionalQInputs) -> tuple[MethodName, ...]:
    """Offline both actors are trained; online, where each costs its own steps, the chosen one."""
    own: tuple[MethodName, ...] = ("fql_perturb", "fql_remap") if inputs.mode == "offline" else (main_method(inputs),)
    return (*own, *dict.fromkeys(inputs.baselines))


def _plan(inputs: FrictionalQInputs, task: Task, seeds: tuple[int, ...]) -> Plan:
    steps = inputs.updates if inputs.mode == "offline" else inputs.total_timesteps
    episodes = max(1, task.episodes // CURVE_SHARE)
    return Plan(seeds, steps, inputs.batch_size, min(inputs.evaluations, steps), episodes)


def _task(inputs: FrictionalQInputs, data: UserData | None, seeds: tuple[int, ...], context: Context) -> Task:
    if data is None and inputs.sample_env == "point-mass":
        return _point_mass(inputs, seeds, context.device)
    if data is None:
        environment = BoxEnvironment.open(inputs.sample_env, "sample_env")
        logs = _logged(inputs, environment, seeds, context)
        where = f"{len(logs[0]):,} transitions that TD3 logged in {environment.id} while it learned, for each seed"
        # The copies were stopped and started anew on the way: what was cut before the time limit is no episode.
        earned = [_mean_return(log, environment.max_steps) for log in logs]
        return _of_logs(inputs, logs, environment, where, None, earned, context.device)
    assert data.transitions is not None  # noqa: S101 (the contract requires it)
    where = f"{len(data.transitions):,} logged transitions"
    base = None if data.base is None else data.base.scaling
    earned = [_mean_return(data.transitions)] * len(seeds)
    return _of_logs(inputs, [data.transitions], data.environment, where, base, earned, context.device)


def _point_mass(inputs: FrictionalQInputs, seeds: tuple[int, ...], device: str) -> Task:
    """Each seed has its own log; every policy, the logged and the best one are tried from the same first states."""
    logs, arena = [point_mass.log(seed) for seed in seeds], PointMassArena()
    regulator = point_mass.Regulator.solve(0.99)

    episodes = POINT_MASS_STARTS * inputs.eval_episodes

    def mean_return(policy: Policy) -> float:
        return float(arena.roll_out(policy, 1, episodes, inputs.gamma).returns.mean())

    def logged(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        return mean_return(lambda states: regulator.logged(states, generator))

    behaviour: list[float | None] = [logged(seed) for seed in seeds]
    scaling = Scaling.of(logs[0].low, logs[0].high, logs[0].observations if inputs.normalize_obs else 4).to(device)
    where = f"{len(logs[0]):,} logged transitions of a point mass for each seed"
    return Task(logs, arena, scaling, where, behaviour, episodes, mean_return(regulator.act))


def _mean_return(log: Transitions, limit: int = 0) -> float | None:
    returns = log.episode_returns(limit)
    return float(returns.mean()) if len(returns) else None


def _of_logs(
    inputs: FrictionalQInputs,
    logs: Sequence[Transitions],
    environment: BoxEnvironment | None,
    where: str,
    base: Scaling | None,
    behaviour: list[float | None],
    device: str,
) -> Task:
    log = logs[0]
    scaling = base or Scaling.of(
        log.low, log.high, log.observations if inputs.normalize_obs else log.observations.shape[1]
    )
    arena = None if environment is None else GymArena(environment)
    return Task(logs, arena, scaling.to(device), where, behaviour, inputs.eval_episodes)


def _logged(
    inputs: FrictionalQInputs, environment: BoxEnvironment, seeds: tuple[int, ...], context: Context
) -> list[Transitions]:
    """For each seed the log of a TD3 that learns in eight copies side by side: from random to what it then can."""
    scaling = Scaling.of(environment.low, environment.high, environment.n_observations).to(context.device)
    own = [derived_seed(seed, _LOG) for seed in seeds]
    learner = TD3(_settings(inputs, scaling), own, context.device)
    steps = max(inputs.total_timesteps, LOG_ENVIRONMENTS * 2)
    plan = Plan(own, steps, inputs.batch_size, 1, 1)
    waits = min(inputs.learning_starts, steps // 4) // LOG_ENVIRONMENTS
    with training.workers(
        [learner], environment, plan, scaling, exploration=inputs.exploration_noise, waits=waits,
        capacity=steps // LOG_ENVIRONMENTS * LOG_ENVIRONMENTS, side_by_side=LOG_ENVIRONMENTS,
    ) as made:  # fmt: skip
        training.train_online(made, plan, GymArena(environment), context, f"logging in {environment.id}")
        return [_in_order(made[0].replay, member, scaling, environment) for member in range(len(own))]


def _in_order(replay: Replay, member: int, scaling: Scaling, environment: BoxEnvironment) -> Transitions:
    """A member's log of environments side by side, one environment after the other; where it breaks off it is cut."""
    columns = Batch(**{name: tensor[member].cpu() for name, tensor in replay.columns.items()})
    order = torch.arange(replay.capacity).reshape(-1, LOG_ENVIRONMENTS).T.flatten()
    states, actions, rewards, following, done = (tensor[order] for tensor in tuple(columns))
    # An episode goes on where the next row begins in the state that this one led to.
    goes_on = (states[1:] == following[:-1]).all(1)
    cut = torch.cat([~goes_on, torch.ones(1, dtype=torch.bool)]).numpy()
    terminals = done.numpy() > 0
    outer = scaling.to("cpu").outer(actions).numpy()
    return Transitions(
        states.numpy(), outer, rewards.numpy(), following.numpy(), terminals, cut & ~terminals,
        environment.low, environment.high,
    )  # fmt: skip


def _settings(inputs: FrictionalQInputs, scaling: Scaling) -> Settings:
    return Settings(
        n_states=len(scaling.center),
        n_actions=len(scaling.half),
        max_action=scaling.max_action,
        latent=inputs.latent_of(len(scaling.half)),
        hidden=inputs.hidden,
        cvae_hidden=inputs.cvae_hidden,
        gamma=inputs.gamma,
        tau=inputs.tau,
        policy_frequency=inputs.policy_frequency,
        actor_lr=inputs.actor_lr,
        critic_lr=inputs.critic_lr,
        cvae_lr=inputs.cvae_lr,
        n_act=inputs.n_act,
        normal_mode=inputs.normal_mode,
        both_signs=inputs.both_signs,
        use_tc=inputs.use_tc,
    )


def _learners(
    inputs: FrictionalQInputs,
    scaling: Scaling,
    seeds: tuple[int, ...],
    methods: tuple[MethodName, ...],
    context: Context,
    data: UserData | None,
) -> tuple[list[Learner], tuple[Variant, ...]]:
    """Everything with a VAE in one stack, TD3 in another."""
    settings = _settings(inputs, scaling)
    kinds = variants(
        methods,
        settings,
        phi=inputs.phi,
        beta=inputs.beta,
        latent_clip=inputs.latent_clip,
        n_target=inputs.n_target,
        n_target_bcq=min(10, inputs.n_target),
    )
    learner = ProposalLearner(settings, kinds, seeds, context.device)
    if data is not None and data.base is not None:
        own = [number for number, member in enumerate(learner.members) if member.method == main_method(inputs)]
        learner.adopt(data.base.policy, own)
    return [learner, *([TD3(settings, seeds, context.device)] if "td3" in methods else [])], kinds


def _replay(task: Task, device: str) -> Replay:
    def stacked(name: str) -> Tensor:
        return torch.stack([torch.from_numpy(getattr(log, name)).float() for log in task.logs]).to(device)

    return Replay(
        {
            "states": task.scaling.states(stacked("observations")),
            "actions": task.scaling.inner(stacked("actions")),
            "rewards": stacked("rewards"),
            "next_states": task.scaling.states(stacked("next_observations")),
            "done": stacked("terminals"),
        }
    )


def _finished(
    inputs: FrictionalQInputs,
    task: Task,
    learners: list[Learner],
    kinds: tuple[Variant, ...],
    replays: list[Replay],
    watched: Watched,
    seeds: tuple[int, ...],
    states: np.ndarray | None,
) -> Experiment:
    outcomes: list[Outcome] = []
    for learner, replay in zip(learners, replays, strict=True):
        outcomes += _outcomes(inputs, task, learner, replay, seeds)
    proposer = learners[0]
    assert isinstance(proposer, ProposalLearner)  # noqa: S101
    main = main_method(inputs)
    member = next(number for number, one in enumerate(proposer.members) if one.method == main)
    variant = next(kind for kind in kinds if kind.method == main)
    seen = replays[0].columns["states"][0, :5]
    rows = seen * task.scaling.spread + task.scaling.center
    methods = dict.fromkeys((main, *inputs.baselines))
    rows_of_one = torch.arange(inputs.batch_size, device=proposer.device)[None] % replays[0].capacity
    batch = replays[0].draw(rows_of_one, torch.zeros(1, dtype=torch.long, device=proposer.device))
    return Experiment(
        main=main,
        outcomes=outcomes,
        watched=watched,
        behaviour=task.behaviour,
        best=task.best,
        fitted=FittedPolicy.of(proposer.policy, member, task.scaling, variant, rows),
        update_seconds=update_seconds(methods, proposer.settings, kinds, batch, proposer.device),
        where=task.where,
        measured=task.arena is not None,
        offline=inputs.mode == "offline",
        seeds=seeds,
        one_log=inputs.mode == "offline" and len(task.logs) == 1 < len(seeds),
        states=states,
    )


def _outcomes(
    inputs: FrictionalQInputs, task: Task, learner: Learner, replay: Replay, seeds: tuple[int, ...]
) -> list[Outcome]:
    K = len(learner.members)
    streams = replay.columns["rewards"].shape[0]
    every = torch.arange(K, device=learner.device)
    of_seeds = streams == len(seeds) and inputs.mode == "offline"
    owner = torch.zeros_like(every) if streams == 1 else learner.seed_of if of_seeds else every
    noise = Noise(seeds, _DIAGNOSIS, learner.device)
    logged = replay.draw(_spread(replay.capacity, MOST_LOGGED).expand(K, -1).to(learner.device), owner)
    probe = replay.draw(_spread(replay.capacity, PROBES).expand(K, -1).to(learner.device), owner)
    friction_found = friction(learner, probe, logged, inputs.friction_mu, noise)
    rebuilt = reconstruction(learner, probe, noise) if isinstance(learner, ProposalLearner) else None
    rolled = None
    if task.arena is not None:
        rolled = training.evaluate(learner, task.arena, task.scaling, seeds, task.episodes)
    return [_outcome(learner, member, seeds, friction_found, rebuilt, rolled) for member in range(len(learner.members))]


def _spread(capacity: int, count: int) -> Tensor:
    """Row numbers spread evenly over a log [1, count or fewer]."""
    count = min(count, capacity)
    return (torch.arange(count) * capacity // count)[None]


def _outcome(
    learner: Learner,
    k: int,
    seeds: tuple[int, ...],
    found: Friction,
    rebuilt: Reconstruction | None,
    rolled: tuple[Rollouts, Tensor] | None,
) -> Outcome:
    """Member k's numbers."""
    numbers = {name: float(getattr(found, name)[k]) for name in vars(found)}
    angles = values = returns = np.empty(0)
    if rebuilt is not None:
        numbers |= {name: float(tensor[k]) for name, tensor in vars(rebuilt).items() if name != "angles"}
        angles = rebuilt.angles[k].cpu().numpy()
    if rolled is not None:
        rollouts, q = rolled
        returns, values = rollouts.discounted[k].double().numpy(), q[k].double().numpy()
        undiscounted = rollouts.returns[k].double().numpy()
        numbers |= {
            "return_mean": float(undiscounted.mean()),
            "return_std": float(undiscounted.std()),
            "value_bias": float((values - returns).mean()),
        }
    member = learner.members[k]
    return Outcome(member.method, seeds[member.seed], numbers, values, returns, angles)
