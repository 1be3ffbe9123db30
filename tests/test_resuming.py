"""A run whose process was killed goes on where it last saved, when it is started again with the same inputs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ended, executor_input

SAVE_EACH_STEP = {"KFP_METHODS_CHECKPOINT_SECONDS": "0"}
pytestmark = pytest.mark.slow


def killed_half_way(
    name: str, parameters: dict[str, object], kept: Path, folder: Path, number: signal.Signals
) -> subprocess.CompletedProcess[str]:
    """Runs a method until its first checkpoint is there, then sends the signal; returns what it printed."""
    import os

    message = json.dumps(executor_input(name, folder, {**parameters, "checkpoints": str(kept)}))
    command = [sys.executable, "-m", "kfp_methods.entrypoint", name, "--executor-input", message]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **SAVE_EACH_STEP}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        deadline = time.monotonic() + 120
        while not list(kept.rglob("*.pt")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_goes_on(execute: Callable[..., Ended], tmp_path: Path, number: signal.Signals) -> None:
    kept = tmp_path / "kept"
    parameters = {"steps": 30, "pause": 0.1}
    first = killed_half_way("noop", parameters, kept, tmp_path / "first", number)
    assert first.returncode == (-9 if number is signal.SIGKILL else 143)
    again = execute("noop", {**parameters, "checkpoints": str(kept)}, into="again", environ=SAVE_EACH_STEP)
    assert again.code == 0, again.stderr
    assert "going on after" in again.stderr
    assert again.summary["metrics"]["steps_made"] == 30
    assert not list(kept.rglob("*.pt")), "a finished run leaves no checkpoint"


def test_other_inputs_start_anew(execute: Callable[..., Ended], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    killed_half_way("noop", {"steps": 30, "pause": 0.1}, kept, tmp_path / "first", signal.SIGKILL)
    again = execute("noop", {"steps": 3, "checkpoints": str(kept)}, into="again", environ=SAVE_EACH_STEP)
    assert again.code == 0
    assert "going on after" not in again.stderr


def test_a_folder_that_cannot_be_written_is_a_bad_input(execute: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = execute("noop", {"checkpoints": str(tmp_path / "file")})
    assert ended.code == 2
    assert "checkpoints=" in ended.stderr
    assert "Traceback" not in ended.stderr
