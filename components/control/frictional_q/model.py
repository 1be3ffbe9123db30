"""The trained policy as a file of tensors: it acts on rows of observations, also from MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

from kfp_methods.artifacts import read_tensors
from kfp_methods.components.control.frictional_q.policy import ProposalPolicy
from kfp_methods.components.control.frictional_q.scaling import Scaling
from kfp_methods.components.control.frictional_q.variants import Settings, Variant
from kfp_methods.errors import InputError, Problem
from kfp_methods.networks import take_members

_TENSORS, _SETTINGS = "policy.safetensors", "policy.json"
_ACT_SEED = 20_250_919
_SCALES = ("center", "spread", "middle", "half")


@dataclass(frozen=True)
class FittedPolicy:
    """One member's VAE, actor and critics with the scaling around them.

    `predict` takes the columns observation_0, … and returns action_0, …, each row's own best of the same `n_act`
    draws, and value, the critic's estimate of the discounted return (too high where the critic is wrong).

    Attributes:
        policy: of one member.
        scaling: of observations and actions.
        settings: with which it was trained.
        variant: which method it is.
        rows: a few observations for `example` [n, S].
    """

    policy: ProposalPolicy
    scaling: Scaling
    settings: Settings
    variant: Variant
    rows: Tensor

    @classmethod
    def of(cls, trained: ProposalPolicy, member: int, scaling: Scaling, variant: Variant, rows: Tensor) -> Self:
        """One member of a trained stack, on the CPU."""
        policy = _empty(trained.settings, variant)
        policy.load_state_dict(take_members(trained, [member]))
        return cls(policy, scaling.to("cpu"), trained.settings, variant, rows.cpu())

    def act(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [n, D] and values [n] for observations [n, S]."""
        generator = torch.Generator().manual_seed(_ACT_SEED)
        drawn = torch.randn(1, 1, self.settings.n_act, 2 * self.settings.latent, generator=generator)
        states = self.scaling.states(observations)[None]
        actions, values = self.policy.choose(states, drawn.expand(-1, states.shape[1], -1, -1))
        return self.scaling.outer(actions[0]), values[0]

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The action in each row's state.

        Raises:
            ValueError: a column is missing, or a value is not finite.
        """
        names = _names("observation", self.settings.n_states)
        if missing := [name for name in names if name not in frame]:
            raise ValueError(f"missing columns {missing[:5]}; needed: {names[0]}, …, {names[-1]}")
        observations = torch.from_numpy(frame[names].to_numpy(np.float32, copy=True))
        if not observations.isfinite().all():
            raise ValueError("an observation is missing or not finite")
        actions, values = self.act(observations) if len(frame) else (torch.zeros(0, self.settings.n_actions),) * 2
        found = pd.DataFrame(actions.numpy(), columns=_names("action", self.settings.n_actions), index=frame.index)
        return found.assign(value=values.numpy() if len(frame) else np.zeros(0, np.float32))

    def example(self) -> pd.DataFrame:
        """A few observations of the training data."""
        return pd.DataFrame(self.rows.numpy(), columns=_names("observation", self.settings.n_states))

    def save(self, folder: Path) -> None:
        """Writes the tensors and the settings."""
        tensors = self.policy.state_dict() | {name: getattr(self.scaling, name) for name in _SCALES}
        tensors["rows"] = self.rows
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / _TENSORS)
        settings = {
            "settings": asdict(self.settings),
            "variant": asdict(self.variant),
            "max_action": self.scaling.max_action,
        }
        (folder / _SETTINGS).write_text(json.dumps(settings, indent=1, allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, field: str = "model") -> Self:
        """Reads what `save` wrote; `field` is the input's name, for errors."""
        found: dict[str, Any] = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        tensors = read_tensors(folder / _TENSORS, field=field)
        return cls._built(found, {name: torch.from_numpy(array.copy()) for name, array in tensors.items()})

    @classmethod
    def _built(cls, found: Mapping[str, Any], tensors: dict[str, Tensor]) -> Self:
        settings = Settings(**found["settings"])
        variant = Variant(**{**found["variant"], "log_std": tuple(found["variant"]["log_std"])})
        rows, (center, spread, middle, half) = tensors.pop("rows"), (tensors.pop(name) for name in _SCALES)
        policy = _empty(settings, variant)
        policy.load_state_dict(tensors)
        scaling = Scaling(center, spread, middle, half, float(found["max_action"]))
        return cls(policy, scaling, settings, variant, rows)


def read_policy(folder: Path, field: str) -> FittedPolicy:
    """A policy that an earlier run of this method made.

    Raises:
        InputError: the folder holds something else.
    """
    try:
        return FittedPolicy.load(folder, field)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"is no policy of this method ({type(error).__name__}: {reason})"
        remedy = f"Give the folder of an earlier run's model output, with {_TENSORS} and {_SETTINGS}"
        raise InputError(Problem(field, folder.name, problem, remedy)) from None


def _empty(settings: Settings, variant: Variant) -> ProposalPolicy:
    return ProposalPolicy(settings, [variant], [torch.Generator().manual_seed(0)]).requires_grad_(False)


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}_{index}" for index in range(count)]
