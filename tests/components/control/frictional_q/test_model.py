"""The policy as a file: it acts as it did in the run, and training can go on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.components.control.frictional_q.component import FrictionalQOutputs, load_model
from kfp_methods.errors import InputError

Execute = Callable[..., FrictionalQOutputs]


def test_a_saved_policy_acts_as_it_did(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    found = execute_here(**files, normalize_obs=True)
    found.model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.json", "policy.safetensors"]
    again = load_model(tmp_path)
    frame = again.example()
    pd.testing.assert_frame_equal(again.predict(frame), found.model.predict(frame), check_exact=True)
    table = found.actions.frame
    states, acted = table.iloc[:, :10], table.iloc[:, 10:]
    assert list(acted) == ["action_0", "action_1", "value"]
    pd.testing.assert_frame_equal(again.predict(states), acted, check_exact=True)
    assert acted[["action_0", "action_1"]].abs().to_numpy().max() <= 1


def test_a_rows_action_does_not_depend_on_the_others(execute_here: Execute) -> None:
    model = execute_here().model
    frame = model.example()
    whole, alone = model.predict(frame), model.predict(frame.iloc[3:4])
    pd.testing.assert_frame_equal(whole.iloc[3:4], alone, rtol=1e-5)
    assert model.predict(frame.iloc[:0]).empty


def test_rows_that_cannot_be_used_are_refused(execute_here: Execute) -> None:
    model = execute_here().model
    with pytest.raises(ValueError, match="missing columns"):
        model.predict(model.example().drop(columns="observation_2"))
    with pytest.raises(ValueError, match="not finite"):
        model.predict(model.example().assign(observation_0=np.nan))


@pytest.mark.slow
def test_training_goes_on_from_a_base_model(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    """A rate of almost nothing leaves the base's weights, so its policy acts as the base did."""
    base = execute_here(**files)
    base.model.save(tmp_path)
    still = {"actor_lr": 1e-12, "critic_lr": 1e-12, "cvae_lr": 1e-12, "seed": 9}
    again = execute_here(**files | still, base_model_uri=str(tmp_path))
    frame = base.model.example()
    pd.testing.assert_frame_equal(again.model.predict(frame), base.model.predict(frame), rtol=1e-4, atol=1e-5)
    fresh = execute_here(**files | still)
    assert not np.allclose(fresh.model.predict(frame), base.model.predict(frame), atol=1e-3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden": 17}, "Give hidden=16"),
        ({"latent_dim": 3}, "Give latent_dim=4"),
        ({"cvae_hidden": 8}, "cvae_hidden=16"),
    ],
)
def test_a_base_model_of_another_size_is_refused(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    execute_here(**files).model.save(tmp_path)
    with pytest.raises(InputError, match=words):
        execute_here(**files | changed, base_model_uri=str(tmp_path))


def test_a_damaged_model_is_refused(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    execute_here(**files).model.save(tmp_path)
    (tmp_path / "policy.json").write_text('{"settings": {}}')
    with pytest.raises(InputError, match="is no policy of this method"):
        execute_here(**files, base_model_uri=str(tmp_path))
