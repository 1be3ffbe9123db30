"""A gymnasium environment by its id, checked for continuous actions, and copies of it side by side."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kfp_methods.errors import InputError, Problem

DEFAULT_STEPS = 1_000
log = logging.getLogger("kfp_methods")


@dataclass(frozen=True)
class BoxEnvironment:
    """An environment with vector observations and a bounded box of actions.

    Attributes:
        id: as gymnasium knows it.
        n_observations: length S of an observation.
        low: least actions [D].
        high: greatest actions [D].
        max_steps: its time limit; 1,000 where it has none.
    """

    id: str
    n_observations: int
    low: np.ndarray
    high: np.ndarray
    max_steps: int

    @classmethod
    def open(cls, env_id: str, field: str = "env_id") -> BoxEnvironment:
        """Looks the environment up and makes it once.

        Raises:
            InputError: it is unknown, cannot be made, or has other spaces.
        """
        env = _made(env_id, field)
        try:
            observed, acted, spec = env.observation_space, env.action_space, env.spec
        finally:
            env.close()
        boxes = gymnasium.spaces.Box
        if not isinstance(acted, boxes):
            problem = f"has {type(acted).__name__} actions where continuous ones (Box) are needed"
            raise InputError(Problem(field, env_id, problem, "Give an environment such as Reacher-v5"))
        if len(acted.shape) != 1 or not (np.isfinite(acted.low).all() and np.isfinite(acted.high).all()):
            problem = f"has actions of shape {acted.shape} where a bounded vector is needed"
            raise InputError(Problem(field, env_id, problem, "Wrap the environment so that its actions are bounded"))
        if not isinstance(observed, boxes) or len(observed.shape) != 1:
            problem = f"has observations of another kind ({observed}) than one vector"
            raise InputError(Problem(field, env_id, problem, "Register it with gymnasium's FlattenObservation wrapper"))
        steps = (spec.max_episode_steps if spec else None) or DEFAULT_STEPS
        return cls(env_id, observed.shape[0], acted.low.astype(np.float32), acted.high.astype(np.float32), steps)

    @contextlib.contextmanager
    def side_by_side(self, n: int, max_steps: int | None = None) -> Iterator[SyncVectorEnv]:
        """n copies that are reset by `reset(options={"reset_mask": …})` alone; closed at the end."""
        limit = max_steps or self.max_steps
        made = [lambda: gymnasium.make(self.id, max_episode_steps=limit, disable_env_checker=True)] * n
        envs = SyncVectorEnv(made, autoreset_mode=AutoresetMode.DISABLED)
        try:
            yield envs
        finally:
            envs.close()

    def clipped(self, actions: np.ndarray) -> np.ndarray:
        """Actions [n, D] within the bounds, in the environment's precision."""
        return np.clip(actions, self.low, self.high, dtype=np.float32)


def _made(env_id: str, field: str) -> gymnasium.Env[Any, Any]:
    if ":" in env_id:
        remedy = "Install the environment's package: one with a gymnasium.envs entry point is found by its id alone"
        raise InputError(Problem(field, env_id, "names a module to import", remedy))
    _log_the_simulators_warnings()
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        remedy = "Install what it needs, such as gymnasium[mujoco]"
        raise InputError(Problem(field, env_id, f"needs a package that is missing ({error})", remedy)) from None
    except (gymnasium.error.Error, TypeError, ValueError, ImportError) as error:
        problem = f"cannot be made ({' '.join(str(error).split())})"
        raise InputError(Problem(field, env_id, problem, "Give an id such as Reacher-v5")) from None


@functools.cache
def _log_the_simulators_warnings() -> None:
    """MuJoCo's warnings go to the log, each once, and not to a file in the working folder."""
    with contextlib.suppress(ImportError):
        importlib.import_module("mujoco").set_mju_user_warning(_warn_once)


@functools.lru_cache(maxsize=1_000)
def _warn_once(text: str) -> None:
    log.warning("MuJoCo: %s", text)
