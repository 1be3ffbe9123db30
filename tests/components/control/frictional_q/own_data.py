"""A user's log of an arm that reaches for a point (Reacher-v5), and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd

TRANSITIONS = 2_000
QUICK = {"n_seeds": 1, "eval_episodes": 3, "updates": 20}


def arm(count: int = TRANSITIONS, seed: int = 0) -> dict[str, np.ndarray]:
    """Transitions of random torques, named as D4RL names them."""
    env, rng = gymnasium.make("Reacher-v5"), np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    observation, _ = env.reset(seed=seed)
    while len(rows) < count:
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        following, reward, terminal, timeout, _ = env.step(action)
        rows.append((observation, action, reward, following, terminal, timeout))
        observation = env.reset()[0] if terminal or timeout else following
    env.close()
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def flat(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """The same as a table with a column for each number."""
    parts: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        parts |= {name: values} if values.ndim == 1 else {f"{name}_{i}": values[:, i] for i in range(values.shape[1])}
    return pd.DataFrame(parts)


def make(folder: Path) -> dict[str, Any]:
    """A log as NPZ, the environment it came from, and a table of states that want actions."""
    log = arm()
    np.savez(folder / "fahrten.npz", **log)
    flat({"observations": log["observations"][:7]}).to_csv(folder / "states.csv", index=False)
    return {
        "dataset_uri": str(folder / "fahrten.npz"),
        "states_uri": str(folder / "states.csv"),
        "env_id": "Reacher-v5",
        **QUICK,
    }


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    log = arm(200)

    def npz(name: str, **changed: Any) -> dict[str, Any]:
        columns = {key: value for key, value in (log | changed).items() if value is not None}
        np.savez(folder / f"{name}.npz", **columns)
        return {"dataset_uri": str(folder / f"{name}.npz")}

    def spoiled(name: str, row: int, value: float) -> np.ndarray:
        values = log[name].copy()
        values.reshape(len(values), -1)[row, 0] = value
        return values

    good = npz("good")
    flat(log).drop(columns="actions_1").to_csv(folder / "one.csv", index=False)
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "policy.json").write_text("{}")
    return [
        (npz("line", actions=log["actions"][:, :1]), ["dataset_uri", "normal space is empty", "BCQ or TD3"]),
        ({"dataset_uri": str(folder / "one.csv")}, ["dataset_uri", "normal space is empty"]),
        (npz("zeros", actions=log["actions"] * 0), ["dataset_uri", "every action is zero"]),
        (npz("nan", rewards=spoiled("rewards", 17, np.nan)), ["dataset_uri", "rewards", "17"]),
        (npz("inf", observations=spoiled("observations", 23, np.inf)), ["dataset_uri", "observations", "23"]),
        (npz("short", rewards=log["rewards"][:-1]), ["dataset_uri", "rewards", "199"]),
        (npz("wide", actions=spoiled("actions", 5, 1.5)) | {"env_id": "Reacher-v5"},
         ["dataset_uri", "1 of 200 actions", "0.5", "row 5"]),
        (npz("huge", observations=log["observations"] * 1e6), ["dataset_uri", "normalize_obs=true"]),
        (npz("none", terminals=None), ["dataset_uri", "terminals"]),
        (good | {"batch_size": 500}, ["dataset_uri", "200 transitions", "batch_size=500"]),
        (good | {"env_id": "Hopper-v5"}, ["dataset_uri", "env_id", "11", "10"]),
        (good | {"env_id": "CartPole-v1"}, ["env_id", "Discrete", "Box"]),
        (good | {"env_id": "Nowhere-v1"}, ["env_id", "Nowhere"]),
        (good | {"env_id": "os:Reacher-v5"}, ["env_id", "module"]),
        ({"mode": "online", "env_id": "Pendulum-v1"}, ["env_id", "normal space is empty"]),
        ({"mode": "online"}, ["env_id", "mode=online needs an environment"]),
        ({"env_id": "Reacher-v5"}, ["dataset_uri", "mode=offline needs a dataset"]),
        (good | {"mode": "online", "env_id": "Reacher-v5"}, ["dataset_uri", "does not read a dataset"]),
        ({"mode": "online", "env_id": "Reacher-v5", "learning_starts": 900}, ["learning_starts", "no update"]),
        (good | {"base_model_uri": str(folder / "model")}, ["base_model_uri", "policy.safetensors"]),
        (good | {"action_low": [-1.0], "action_high": [1.0, 1.0]}, ["action_low", "1 entries", "2"]),
        ({"phi": 0.0, "tau": 2.0}, ["phi", "tau"]),
    ]  # fmt: skip
