"""Logged transitions from every kind of file, what is refused in them, and the buffer they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from kfp_methods.components.control.replay import Batch, Replay, Transitions, read_transitions, unmarked
from kfp_methods.errors import InputError
from tests.components.control.frictional_q.own_data import flat


def columns(n: int = 6) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(n, 3)),
        "actions": rng.uniform(-1, 1, (n, 2)),
        "rewards": np.arange(n, dtype=float),
        "next_observations": rng.normal(size=(n, 3)),
        "terminals": np.array([False, True, False, False, False, False])[:n],
        "timeouts": np.array([False, False, False, True, False, False])[:n],
    }


def read(folder: Path, given: dict[str, Any], **bounds: Any) -> Transitions:
    np.savez(folder / "log.npz", **given)
    return read_transitions(folder / "log.npz", "dataset_uri", **bounds)


def lists(given: dict[str, np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame({name: list(values) for name, values in given.items()})


@pytest.mark.parametrize("kind", ["npz", "flat.csv", "flat.parquet", "lists.parquet", "safetensors"])
def test_every_kind_of_file_gives_the_same(tmp_path: Path, kind: str) -> None:
    given, path = columns(), tmp_path / f"log.{kind}"
    if kind == "npz":
        np.savez(path, **given)
    elif kind == "safetensors":
        from safetensors.numpy import save_file

        save_file(given, path)
    else:
        frame = flat(given) if kind.startswith("flat") else lists(given)
        frame.to_csv(path, index=False) if kind.endswith("csv") else frame.to_parquet(path, index=False)
    found = read_transitions(path, "dataset_uri")
    for name in ("observations", "actions", "rewards", "next_observations"):
        np.testing.assert_allclose(getattr(found, name), given[name], rtol=1e-6)
        assert getattr(found, name).dtype == np.float32
    assert found.terminals.tolist() == given["terminals"].tolist()
    assert found.timeouts is not None
    assert found.timeouts.tolist() == given["timeouts"].tolist()
    np.testing.assert_allclose(found.high, np.abs(given["actions"]).max(), rtol=1e-6)


def test_gymnasiums_names_are_known(tmp_path: Path) -> None:
    given = columns()
    renamed = given | {"terminations": given["terminals"], "truncations": given["timeouts"]}
    found = read(tmp_path, {k: v for k, v in renamed.items() if k not in ("terminals", "timeouts")})
    assert found.terminals.tolist() == given["terminals"].tolist()
    assert found.timeouts is not None
    assert found.timeouts.sum() == 1


def test_returns_are_those_of_complete_episodes(tmp_path: Path) -> None:
    assert read(tmp_path, columns()).episode_returns().tolist() == [1.0, 5.0], "rows 4 and 5 end nowhere"
    unknown = read(tmp_path, {k: v for k, v in columns().items() if k != "timeouts"} | {"terminals": np.zeros(6, bool)})
    assert len(unknown.episode_returns()) == 0
    assert unmarked(unknown)
    assert not unmarked(read(tmp_path, columns()))


def test_what_was_cut_before_the_time_limit_is_a_fragment(tmp_path: Path) -> None:
    found = read(tmp_path, columns())  # ends after 2 steps, cut after 2 more, 2 that end nowhere
    assert found.episode_returns(limit=2).tolist() == [1.0, 5.0]
    assert found.episode_returns(limit=3).tolist() == [1.0], "the task's own end is none too early"


def test_bounds_come_from_the_user_then_the_file(tmp_path: Path) -> None:
    given = columns() | {"action_low": np.array([-2.0, -3.0]), "action_high": np.array([2.0, 3.0])}
    assert read(tmp_path, given).low.tolist() == [-2.0, -3.0]
    found = read(tmp_path, given, low=[-1.0, -1.0])
    assert (found.low.tolist(), found.high.tolist()) == ([-1.0, -1.0], [2.0, 3.0])


def test_rounding_beyond_the_bounds_is_clipped(tmp_path: Path) -> None:
    given = columns()
    given["actions"][2, 0] = 1.00005
    found = read(tmp_path, given, low=[-1.0, -1.0], high=[1.0, 1.0])
    assert found.actions.max() == 1.0


def without(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != name}


@pytest.mark.parametrize(
    ("changed", "bounds", "words"),
    [
        ({"actions": np.zeros((6, 2))}, {}, ["every action is zero"]),
        ({"actions": np.array([[0.5, 0.0]] * 5 + [[3.0, 0.0]])}, {"low": [-1, -1], "high": [1, 1]},
         ["1 of 6 actions", "by up to 2", "row 5"]),
        ({"rewards": np.array([0, 1, np.nan, 0, 0, 0])}, {}, ["rewards", "2"]),
        ({"observations": np.full((6, 3), np.inf)}, {}, ["observations", "[0, 0]"]),
        ({"rewards": np.zeros(5)}, {}, ["rewards", "n=6"]),
        ({"next_observations": np.zeros((6, 4))}, {}, ["next_observations", "S=3"]),
        ({"terminals": None}, {}, ["terminals is missing"]),
        ({"terminals": np.full(6, 3)}, {}, ["terminals", "neither 0 nor 1"]),
        ({"actions": None}, {}, ["actions", "missing"]),
        ({}, {"low": [1.0, -1.0], "high": [1.0, 1.0]}, ["action_low is not below action_high in entry 0"]),
        ({}, {"low": [-1.0]}, ["action_low", "1 entries", "2"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_arrays_is_named(
    tmp_path: Path, changed: dict[str, Any], bounds: dict[str, Any], words: list[str]
) -> None:
    given = {name: value for name, value in (columns() | changed).items() if value is not None}
    with pytest.raises(InputError) as caught:
        read(tmp_path, given, **bounds)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (flat(columns()).assign(observations_1=["a"] * 6), ["observations", "row 1, entry 1"]),
        (flat(columns()).drop(columns=["actions_0", "actions_1"]), ["'actions'", "missing"]),
        (flat(columns()).rename(columns={"next_observations_2": "other"}), ["next_observations", "2", "3"]),
        (lists(columns()).assign(actions=[[0.1, 0.2]] * 5 + [[0.1]]), ["actions", "lists of numbers of one length"]),
        (lists(columns()).assign(actions=[0.5] * 6), ["actions", "numbers where lists"]),
        (flat(columns()).drop(columns="rewards"), ["'rewards'", "missing"]),
        (flat(columns()).assign(rewards=[1.0, None, 1, 1, 1, 1]), ["rewards", "row 2"]),
    ],
)
def test_what_is_wrong_in_tables_is_named(tmp_path: Path, frame: pd.DataFrame, words: list[str]) -> None:
    frame.to_parquet(tmp_path / "log.parquet", index=False)
    with pytest.raises(InputError) as caught:
        read_transitions(tmp_path / "log.parquet", "dataset_uri")
    assert all(word in str(caught.value) for word in words), caught.value


def batch(value: float, members: int = 2, rows: int = 1) -> Batch:
    shape = (members, rows)
    return Batch(
        torch.full((*shape, 3), value), torch.full((*shape, 2), value), torch.full(shape, value),
        torch.full((*shape, 3), value + 1), torch.zeros(shape),
    )  # fmt: skip


def test_the_buffer_overwrites_its_oldest() -> None:
    replay = Replay.empty(2, 4, 3, 2, "cpu")
    for position in range(6):
        replay.write(position, batch(float(position)))
    assert replay.columns["rewards"].tolist() == [[4.0, 5.0, 2.0, 3.0]] * 2


def test_members_draw_from_their_own_streams() -> None:
    replay = Replay.empty(2, 4, 3, 2, "cpu")
    replay.columns["rewards"][:] = torch.tensor([[0.0, 1, 2, 3], [10, 11, 12, 13]])
    drawn = replay.draw(torch.tensor([[3, 0], [1, 1], [2, 0]]), torch.tensor([0, 1, 1]))
    assert drawn.rewards.tolist() == [[3.0, 0.0], [11.0, 11.0], [12.0, 10.0]]
    assert drawn.of(slice(1, 3)).rewards.tolist() == [[11.0, 11.0], [12.0, 10.0]]
