"""The two loops: updates on a fixed buffer, and updates between steps of an environment. Both can be resumed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.control.arenas import Arena
from kfp_methods.components.control.environments import BoxEnvironment
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.noise import Noise, derived_seed
from kfp_methods.components.control.frictional_q.scaling import Scaling
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.replay import Batch, Replay
from kfp_methods.components.control.rollouts import Rollouts

if TYPE_CHECKING:
    from gymnasium.vector import SyncVectorEnv

    from kfp_methods.context import Context

Learner = ProposalLearner | TD3
_BATCHES, _EVALUATION, _EXPLORATION, _RESETS = 4, 5, 6, 7
MOST_STEPS_IN_A_BLOCK = 5_000


@dataclass(frozen=True)
class Plan:
    """How training goes and how it is watched.

    Attributes:
        seeds: of the members.
        steps: updates of an offline run, steps in each member's environment of an online one.
        batch_size: B.
        evaluations: how often the policies are rolled out on the way.
        episodes: from how many first states then.
    """

    seeds: Sequence[int]
    steps: int
    batch_size: int
    evaluations: int
    episodes: int


@dataclass
class Watched:
    """What was seen on the way; lists and dictionaries of plain numbers, to be saved with a checkpoint.

    Attributes:
        curve: mean return of a member after a number of steps.
    """

    curve: list[dict[str, Any]] = field(default_factory=list)

    def states(self) -> dict[str, Any]:
        return {"curve": self.curve}


def evaluate(
    learner: Learner, arena: Arena, scaling: Scaling, seeds: Sequence[int], episodes: int
) -> tuple[Rollouts, Tensor]:
    """Rolls every member out; also Q1 of its actions in the first states [K, N]. The same noise every time."""
    noise = Noise(seeds, _EVALUATION, learner.device)

    def policy(observations: Tensor) -> Tensor:
        return scaling.outer(learner.act(scaling.states(observations.to(learner.device)), noise)[0]).cpu()

    found = arena.roll_out(policy, len(learner.members), episodes, learner.settings.gamma)
    _, values = learner.act(scaling.states(found.first.to(learner.device)), noise)
    return found, values.cpu()


def train_offline(
    learners: Sequence[Learner],
    replay: Replay,
    plan: Plan,
    scaling: Scaling,
    arena: Arena | None,
    context: Context,
) -> Watched:
    """`plan.steps` updates of every learner on the same batches.

    A stream of `replay` belongs to a seed; a single one serves all seeds, each with its own batches.
    """
    watched, draws = Watched(), Noise(plan.seeds, _BATCHES, learners[0].device)
    one = replay.columns["rewards"].shape[0] == 1
    saved = {**_saved(learners), **draws.states("batches"), **watched.states()}
    for done in context.resumable(range(plan.steps), "training on the fixed buffer", **saved):
        rows = draws.rows(replay.capacity, plan.batch_size)
        for learner in learners:
            streams = torch.zeros_like(learner.seed_of) if one else learner.seed_of
            learner.update(replay.draw(rows[learner.seed_of], streams), done + 1)
        if arena is not None and (done + 1) * plan.evaluations // plan.steps > done * plan.evaluations // plan.steps:
            _watch(learners, arena, scaling, plan, done + 1, watched, context)
    return watched


@dataclass
class Worker:
    """A learner with an environment, or several, and a buffer for each of its members.

    Attributes:
        learner: K members.
        replay: K streams.
        envs: K x E environments, member by member.
        noise: of exploration and batches.
        exploration: sd of the noise on actions, in units of m.
        waits: steps of uniformly random actions before the first update.
    """

    learner: Learner
    replay: Replay
    envs: SyncVectorEnv
    noise: Noise
    environment: BoxEnvironment
    scaling: Scaling
    exploration: float
    waits: int
    batch_size: int
    states: Tensor = field(init=False)

    @property
    def side_by_side(self) -> int:
        """Environments E of each member."""
        return self.envs.num_envs // len(self.learner.members)

    def reset(self, seeds: Sequence[int]) -> None:
        """Starts every environment anew; `seeds` are the run's, one each E environments of a member."""
        each: list[int | None] = [
            derived_seed(seeds[n], e) % 2**31 for n in self.learner.seed_of.tolist() for e in range(self.side_by_side)
        ]
        self.states = self._seen(self.envs.reset(seed=each)[0])

    def step(self, number: int) -> None:
        """One step of every environment, kept in the buffer, then one update."""
        actions = self._explored(number)
        outer = self.scaling.outer(actions).flatten(0, 1).cpu().numpy()
        observations, rewards, ended, cut, _ = self.envs.step(self.environment.clipped(outer))
        following = self._seen(observations)
        K, E = actions.shape[:2]
        earned, done = (torch.from_numpy(a.astype(np.float32)).reshape(K, E) for a in (rewards, ended))
        self.replay.write(number * E, Batch(self.states, actions, earned, following, done))
        stopped = ended | cut
        self.states = self._seen(self.envs.reset(options={"reset_mask": stopped})[0]) if stopped.any() else following
        filled = min((number + 1) * E, self.replay.capacity)
        if number + 1 > self.waits:
            rows = self.noise.rows(filled, self.batch_size)[self.learner.seed_of]
            members = torch.arange(K, device=self.learner.device)
            self.learner.update(self.replay.draw(rows, members), number + 1 - self.waits)

    def _explored(self, number: int) -> Tensor:
        m, D = self.learner.settings.max_action, self.learner.settings.n_actions
        if number < self.waits:
            return self.noise.uniform(self.side_by_side, D)[self.learner.seed_of] * m
        noise = self.noise.normal(self.side_by_side, D)[self.learner.seed_of]
        return (self.learner.act(self.states, self.noise)[0] + self.exploration * m * noise).clamp(-m, m)

    def _seen(self, observations: Any) -> Tensor:
        """Observations [K E, S] as the networks see them, [K, E, S]."""
        found = torch.as_tensor(observations, dtype=torch.float32, device=self.learner.device)
        return self.scaling.states(found.reshape(len(self.learner.members), -1, found.shape[-1]))


@contextlib.contextmanager
def workers(
    learners: Sequence[Learner],
    environment: BoxEnvironment,
    plan: Plan,
    scaling: Scaling,
    *,
    exploration: float,
    waits: int,
    capacity: int,
    side_by_side: int = 1,
) -> Iterator[list[Worker]]:
    """One worker a learner; their environments are closed at the end."""
    with contextlib.ExitStack() as stack:
        made = []
        for learner in learners:
            K, s = len(learner.members), learner.settings
            envs = stack.enter_context(environment.side_by_side(K * side_by_side))
            replay = Replay.empty(K, capacity, s.n_states, s.n_actions, learner.device)
            noise = Noise(plan.seeds, _EXPLORATION, learner.device)
            made.append(Worker(learner, replay, envs, noise, environment, scaling, exploration, waits, plan.batch_size))
        yield made


def train_online(made: Sequence[Worker], plan: Plan, arena: Arena, context: Context, label: str) -> Watched:
    """Steps and updates in turn.

    The environments start anew at the beginning of each block of steps, as after a time-out: a simulator's state cannot
    be saved in general, and so a resumed run goes the same way as one that was never interrupted.
    """
    watched, learners = Watched(), [worker.learner for worker in made]
    steps = plan.steps // made[0].side_by_side
    each = -(-steps // (MOST_STEPS_IN_A_BLOCK * plan.evaluations))  # blocks from one evaluation to the next
    blocks = each * plan.evaluations
    edges = [steps * block // blocks for block in range(blocks + 1)]
    saved = {**_saved(learners), **watched.states()}
    for number, worker in enumerate(made):
        saved |= worker.noise.states(f"exploration_{number}") | {f"replay_{number}": worker.replay.columns}
    for block in context.resumable(range(blocks), label, **saved):
        for worker in made:
            worker.reset([derived_seed(seed, _RESETS, block) for seed in plan.seeds])
            for step in range(edges[block], edges[block + 1]):
                worker.step(step)
        if (block + 1) % each == 0:
            _watch(learners, arena, made[0].scaling, plan, edges[block + 1], watched, context)
    return watched


def _saved(learners: Sequence[Learner]) -> dict[str, Any]:
    return {
        f"{name}_{number}": state for number, learner in enumerate(learners) for name, state in learner.states().items()
    }


def _watch(
    learners: Sequence[Learner],
    arena: Arena,
    scaling: Scaling,
    plan: Plan,
    step: int,
    watched: Watched,
    context: Context,
) -> None:
    """Adds every member's mean return to the curve."""
    for learner in learners:
        returns = evaluate(learner, arena, scaling, plan.seeds, plan.episodes)[0].returns.mean(1)
        for member, value in zip(learner.members, returns.tolist(), strict=True):
            point = {"step": step, "method": member.method, "seed": plan.seeds[member.seed], "return": value}
            watched.curve.append(point)
    for method in dict.fromkeys(member.method for learner in learners for member in learner.members):
        values = [p["return"] for p in watched.curve if p["step"] == step and p["method"] == method]
        if all(map(math.isfinite, values)):
            context.metric(f"return_{method}", sum(values) / len(values), step)
