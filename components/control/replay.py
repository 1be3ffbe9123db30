"""Logged transitions with continuous actions: read, checked, and kept as tensors to draw batches from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from kfp_methods.artifacts import Array
from kfp_methods.components.control.columns import read_columns
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.control.environments import BoxEnvironment

COLUMNS = (
    Array("observations", shape=("n", "S")),
    Array("actions", shape=("n", "D")),
    Array("rewards", shape=("n",)),
    Array("next_observations", shape=("n", "S")),
    Array("terminals", shape=("n",), kind="bool", required=False),
    Array("timeouts", shape=("n",), kind="bool", required=False),
    # what gymnasium and Minari call the same
    Array("terminations", shape=("n",), kind="bool", required=False),
    Array("truncations", shape=("n",), kind="bool", required=False),
    Array("action_low", shape=("D",), required=False),
    Array("action_high", shape=("D",), required=False),
)
BOUND_TOLERANCE = 1e-4
LARGE_OBSERVATION = 1e4


@dataclass(frozen=True)
class Transitions:
    """M transitions, in the order in which they were made.

    Attributes:
        observations: [M, S].
        actions: [M, D].
        rewards: [M].
        next_observations: [M, S].
        terminals: whether the task ended there [M].
        timeouts: whether the episode was cut there, which is no end of the task [M]; None when unknown.
        low: least actions [D].
        high: greatest actions [D].
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray | None
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)

    def episode_returns(self, limit: int = 0) -> np.ndarray:
        """Undiscounted returns of the complete episodes; empty when there is none, or no end is marked.

        What follows the last end is no complete episode and is left out.

        limit: the time limit; then an episode that was cut before it is a fragment and is left out too. 0: every cut
            is a time-out.
        """
        ends = self.terminals if self.timeouts is None else self.terminals | self.timeouts
        last = np.flatnonzero(ends)
        if not len(last):
            return np.empty(0)
        first = np.r_[0, last[:-1] + 1]
        returns = np.add.reduceat(self.rewards[: last[-1] + 1].astype(np.float64), first)
        return returns[self.terminals[last] | (last - first + 1 >= limit)]


def read_transitions(
    path: Path,
    field: str,
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    environment: BoxEnvironment | None = None,
) -> Transitions:
    """Transitions in a NPZ or safetensors file, or in a table.

    A table has one column for each entry of a vector (observations_0, …) or lists in one column.

    Args:
        path: the file.
        field: its input's name, for errors.
        low: least actions, instead of the file's action_low.
        high: greatest actions, likewise.
        environment: whose bounds hold where neither is given; without it the largest logged size is the bound.

    Raises:
        InputError: with an entry for each thing wrong.
    """
    columns = read_columns(path, field, COLUMNS)
    terminals = columns.get("terminals", columns.get("terminations"))
    timeouts = columns.get("timeouts", columns.get("truncations"))
    bounds, problems = _bounds(columns, field, low, high, environment)
    if terminals is None:
        remedy = "Add it: true where the task itself ended, false at time-outs"
        problems.append(Problem(field, path.name, "terminals is missing", remedy))
    if terminals is None or problems:
        raise InputError(problems)
    found = Transitions(
        columns["observations"].astype(np.float32),
        columns["actions"].astype(np.float32),
        columns["rewards"].astype(np.float32),
        columns["next_observations"].astype(np.float32),
        terminals,
        None if timeouts is None else timeouts & ~terminals,
        *bounds,
    )
    if problems := _problems(found, path.name, field):
        raise InputError(problems)
    return replace(found, actions=np.clip(found.actions, found.low, found.high))


def _bounds(
    columns: Mapping[str, np.ndarray],
    field: str,
    low: Sequence[float],
    high: Sequence[float],
    environment: BoxEnvironment | None,
) -> tuple[tuple[np.ndarray, np.ndarray], list[Problem]]:
    """Least and greatest actions: as given, as in the file, as in the environment, or as large as any logged one.

    An environment with actions of another length has no say; that it does not fit is for the caller to notice.
    """
    D = columns["actions"].shape[1]
    largest = np.full(D, np.abs(columns["actions"]).max(initial=0.0))
    least, greatest = -largest, largest
    if environment is not None and len(environment.low) == D:
        least, greatest = environment.low, environment.high
    found, problems = [], []
    for name, given, otherwise in (("action_low", low, least), ("action_high", high, greatest)):
        bound = np.asarray(given, np.float32) if len(given) else columns.get(name, otherwise).astype(np.float32)
        if bound.shape != (D,):
            problem = f"has {len(bound)} entries, the actions have {D}"
            problems.append(Problem(name, list(given), problem, "Give one bound for each entry of an action"))
        found.append(bound)
    if not problems and largest.max() > 0 and (found[0] >= found[1]).any():
        entry = int(np.argmax(found[0] >= found[1]))
        problem = f"action_low is not below action_high in entry {entry}"
        problems.append(Problem(field, None, problem, "Give the bounds of the actions in this order"))
    return (found[0], found[1]), problems


def _problems(found: Transitions, name: str, field: str) -> list[Problem]:
    problems = []
    beyond = np.maximum(found.actions - found.high, found.low - found.actions).max(axis=1)
    if (outside := beyond > BOUND_TOLERANCE).any():
        what = f"{outside.sum()} of {len(found)} actions lie outside the declared bounds, by up to {beyond.max():.4g}"
        remedy = f"Clip them, or give wider bounds (first: row {int(np.argmax(outside))})"
        problems.append(Problem(field, name, what, remedy))
    if not len(found):
        problems.append(Problem(field, name, "has no transitions", "Give a log of a policy that acts"))
    elif not np.abs(found.actions).max() > 0:
        remedy = "Give transitions of a policy that acts"
        problems.append(Problem(field, name, "every action is zero: there is no direction to stay near to", remedy))
    return problems


def unmarked(found: Transitions) -> bool:
    """Whether nothing says where episodes end, so that a time-out may pass for an ordinary step."""
    return found.timeouts is None and not found.terminals.any()


class Batch(NamedTuple):
    """K batches of B transitions: states [K, B, S], actions [K, B, D], rewards and `done` [K, B]."""

    states: Tensor
    actions: Tensor
    rewards: Tensor
    next_states: Tensor
    done: Tensor

    def of(self, members: slice) -> Batch:
        """The batches of some members."""
        return Batch(*(tensor[members] for tensor in self))


class Replay:
    """G streams of transitions as tensors [G, M, …]; states and actions in the units that the networks see.

    `columns` maps the fields of `Batch` to tensors, and may be saved and restored as it is.
    """

    def __init__(self, columns: dict[str, Tensor]) -> None:
        self.columns = columns

    @classmethod
    def empty(cls, streams: int, capacity: int, n_states: int, n_actions: int, device: str) -> Self:
        """Room for `capacity` transitions in each stream."""
        widths = {"states": (n_states,), "actions": (n_actions,), "rewards": (), "next_states": (n_states,), "done": ()}
        return cls({k: torch.zeros(streams, capacity, *width, device=device) for k, width in widths.items()})

    @property
    def capacity(self) -> int:
        return self.columns["rewards"].shape[1]

    def write(self, position: int, batch: Batch) -> None:
        """Puts B new transitions of every stream at `position` and after, overwriting the oldest at the end."""
        rows = (position + torch.arange(batch.rewards.shape[1])) % self.capacity
        for name, values in batch._asdict().items():
            self.columns[name][:, rows] = values.to(self.columns[name])

    def draw(self, rows: Tensor, streams: Tensor) -> Batch:
        """The transitions `rows` [K, B] of each member's stream [K]."""
        return Batch(*(self.columns[name][streams[:, None], rows] for name in Batch._fields))
