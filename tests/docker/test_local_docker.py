"""bmia through kfp.local in its real image: tracking, own files, interruption, without rights or network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient

from kfp_methods.images import BuiltImage

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("docker"),
]
COMMAND = [sys.executable, "-m", "kfp_methods.cli", "run", "bmia", "--preset", "smoke", "--json"]


def _run(*arguments: str, folder: Path) -> tuple[dict[str, Any], str]:
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def finished(tabular_image: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    result, log = _run("--runner", "docker", "--output", "docker", "--image", tabular_image.reference, folder=folder)
    assert result["exit_code"] == 0, log
    return result


def test_the_container_tracks_to_the_local_database(finished: dict[str, Any]) -> None:
    tracked = finished["mlflow"]
    assert tracked["error"] == ""
    client = MlflowClient(tracked["url"])
    run = client.get_run(tracked["run_id"])
    assert run.info.status == "FINISHED"
    assert "report.html" in {item.path for item in client.list_artifacts(tracked["run_id"])}


def test_outputs_belong_to_no_root(finished: dict[str, Any]) -> None:
    owner = Path(finished["outputs"]["claims"]).stat().st_uid  # the report is a copy of the command line's
    assert owner == (10001 if os.getuid() == 0 else os.getuid())


def test_a_file_of_the_users_reaches_the_container(tabular_image: BuiltImage, tmp_path: Path) -> None:
    np.savez(tmp_path / "audit ü.npz", x=np.zeros((3, 2)), y=np.arange(3))
    np.savez(tmp_path / "logits.npz", logits=np.zeros((2, 3)))
    files = ["--audit-uri", "audit ü.npz", "--reference-uri", "audit ü.npz", "--target-logits-uri", "logits.npz"]
    result, _ = _run("--runner", "docker", "--image", tabular_image.reference, *files, folder=tmp_path)
    assert result["exit_code"] == 2
    assert "for 3 records" in result["error"]


def test_an_interrupted_container_writes_what_it_has(engine: Any, tabular_image: BuiltImage, tmp_path: Path) -> None:
    command = [*COMMAND[:-1], "--runner", "docker", "--image", tabular_image.reference, "--epochs", "5000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not _is_training(engine) and time.monotonic() < deadline:
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["exit_code"] == 143
    assert "Interrupted" in (summary.parent / "report").read_text()


def _is_training(engine: Any) -> bool:
    running = engine.containers.list(filters={"label": "kfp-methods.job"})
    return any(b"training" in container.logs() for container in running)
