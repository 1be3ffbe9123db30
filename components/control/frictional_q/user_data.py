"""What a user gives: logged transitions, an environment, states that want actions, a policy to go on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kfp_methods.artifacts import Array
from kfp_methods.components.control.columns import read_columns
from kfp_methods.components.control.environments import BoxEnvironment
from kfp_methods.components.control.frictional_q.model import FittedPolicy, read_policy
from kfp_methods.components.control.replay import LARGE_OBSERVATION, Transitions, read_transitions, unmarked
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.control.frictional_q.component import FrictionalQInputs
    from kfp_methods.context import Context


@dataclass(frozen=True)
class UserData:
    """All None for the embedded sample.

    Attributes:
        transitions: the fixed buffer.
        environment: where to act, or where policies of the buffer are evaluated.
        states: observations that want actions [n, S].
        base: an earlier policy.
    """

    transitions: Transitions | None
    environment: BoxEnvironment | None
    states: np.ndarray | None
    base: FittedPolicy | None


def load(inputs: FrictionalQInputs, context: Context) -> UserData:
    """Reads and checks all that was given.

    Raises:
        InputError: a file or the environment cannot be used, or they do not fit together.
    """
    environment = BoxEnvironment.open(inputs.env_id) if inputs.env_id else None
    transitions = None
    if inputs.dataset is not None:
        path, bounds = context.fetch(inputs.dataset), (inputs.action_low, inputs.action_high)
        transitions = read_transitions(path, inputs.dataset.field, *bounds, environment)
        _warn(transitions, inputs, context)
    states = None if inputs.states is None else _states(context.fetch(inputs.states), inputs.states.field)
    base = None if inputs.base_model is None else read_policy(context.fetch(inputs.base_model), inputs.base_model.field)
    found = UserData(transitions, environment, states, base)
    if problems := [*_sizes(found, inputs), *_fit(found, inputs)]:
        raise InputError(problems)
    return found


def _states(path: Path, field: str) -> np.ndarray:
    wanted = (Array("observations", shape=("n", "S")),)
    return read_columns(path, field, wanted)["observations"].astype(np.float32)


def _warn(transitions: Transitions, inputs: FrictionalQInputs, context: Context) -> None:
    if unmarked(transitions):
        context.warn(
            "no transition of the dataset is terminal and timeouts are missing: every step is taken to go on, and "
            "the logged policy's return is unknown"
        )
    if not inputs.env_id:
        context.warn("without env_id nothing can be rolled out: returns and value errors are not measured")


def _sizes(found: UserData, inputs: FrictionalQInputs) -> list[Problem]:
    """Problems of the numbers of actions, observations and transitions."""
    problems = []
    spaces = [] if found.environment is None else [("env_id", found.environment.low.shape[0], inputs.env_id)]
    if found.transitions is not None and inputs.dataset is not None:
        actions, observations = found.transitions.actions, found.transitions.observations
        spaces.append((inputs.dataset.field, actions.shape[1], str(inputs.dataset)))
        if len(actions) < inputs.batch_size:
            problem = f"has {len(actions)} transitions, fewer than batch_size={inputs.batch_size}"
            problems.append(Problem(inputs.dataset.field, None, problem, "Give more, or a smaller batch_size"))
        largest = np.abs(observations).max(initial=0.0)
        if largest > LARGE_OBSERVATION and not inputs.normalize_obs:
            problem = f"has observations up to {largest:.3g} in size, too large for networks as they are"
            problems.append(Problem(inputs.dataset.field, None, problem, "Give normalize_obs=true"))
    for field, size, value in spaces:
        if size < 2:
            problem = f"has actions of {size} dimension: the normal space is empty"
            problems.append(Problem(field, value, problem, "Use BCQ or TD3, or give actions of at least 2 dimensions"))
    return problems


def _fit(found: UserData, inputs: FrictionalQInputs) -> list[Problem]:
    """Problems between what was given: one length of observations and of actions."""
    sizes: list[tuple[str, int, int | None]] = []
    if found.environment is not None:
        sizes.append(("env_id", found.environment.n_observations, len(found.environment.low)))
    if found.transitions is not None:
        sizes.append(("dataset_uri", found.transitions.observations.shape[1], found.transitions.actions.shape[1]))
    if found.states is not None:
        sizes.append(("states_uri", found.states.shape[1], None))
    if found.base is not None:
        sizes.append(("base_model_uri", found.base.settings.n_states, found.base.settings.n_actions))
    problems = []
    (_, S, D), *others = sizes or [("", 0, 0)]
    for field, observations, actions in others:
        for what, given, wanted in (("observations", observations, S), ("actions", actions, D)):
            if given is not None and given != wanted:
                problem = f"has {what} of {given} entries where {sizes[0][0]} has {wanted}"
                problems.append(Problem(field, None, problem, "Give those that belong together"))
    if found.base is not None:
        problems += _architecture(found.base, inputs)
    return problems


def _architecture(base: FittedPolicy, inputs: FrictionalQInputs) -> list[Problem]:
    theirs = base.settings
    wanted = {
        "hidden": inputs.hidden,
        "cvae_hidden": inputs.cvae_hidden,
        "latent_dim": inputs.latent_of(theirs.n_actions),
    }
    given = {"hidden": theirs.hidden, "cvae_hidden": theirs.cvae_hidden, "latent_dim": theirs.latent}
    return [
        Problem(name, value, f"the base model has {given[name]}", f"Give {name}={given[name]}")
        for name, value in wanted.items()
        if value != given[name]
    ]
