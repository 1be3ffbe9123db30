"""What all tests share: the test methods are on the catalogue's path, and nothing of the user's environment is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
METHODS = TESTS / "methods"
os.environ["KFP_METHODS_PATH"] = str(METHODS)
for _name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "KFP_RUN_ID", "KFP_ENDPOINT"):
    os.environ.pop(_name, None)


@dataclass(frozen=True)
class Ended:
    """How an entrypoint process ended."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def executor_output(self) -> dict[str, Any]:
        return json.loads((self.folder / "executor_output.json").read_text())


def executor_input(
    name: str, folder: Path, parameters: Mapping[str, Any], artifacts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The message that KFP gives to a container of the method `name`, its outputs below `folder`."""
    from kfp_methods import catalogue

    kinds = catalogue.load(name).outputs.kinds().values()
    return {
        "inputs": {"parameterValues": dict(parameters), "artifacts": dict(artifacts or {})},
        "outputs": {
            "parameters": {k.name: {"outputFile": str(folder / k.name)} for k in kinds if not k.is_artifact},
            "artifacts": {
                k.name: {
                    "artifacts": [
                        {
                            "name": k.name,
                            "type": {"schemaTitle": f"system.{k.kfp_type}", "schemaVersion": "0.0.1"},
                            "uri": str(folder / k.name),
                            "metadata": {},
                        }
                    ]
                }
                for k in kinds
                if k.is_artifact
            },
            "outputFile": str(folder / "executor_output.json"),
        },
    }


@pytest.fixture(autouse=True)
def _environment_of_one_test() -> Iterator[None]:
    """What a test puts into the environment ends with it; MLflow's `set_tracking_uri` does so too, also in fixtures."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def execute(tmp_path: Path) -> Callable[..., Ended]:
    """Runs the container's command in a process, as a pod would; `environ` adds to a clean environment."""

    def run(
        name: str,
        parameters: Mapping[str, Any],
        *,
        artifacts: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        into: str = "out",
    ) -> Ended:
        folder = tmp_path / into
        message = json.dumps(executor_input(name, folder, parameters, artifacts))
        command = [sys.executable, "-m", "kfp_methods.entrypoint", name, "--executor-input", message]
        env = {**os.environ, "KFP_METHODS_PATH": str(METHODS), "OMP_NUM_THREADS": "1", **(environ or {})}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        return Ended(done.returncode, done.stdout, done.stderr, folder)

    return run


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `kfp-methods …` in an empty folder."""

    def run(*arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kfp_methods.cli", *arguments]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(environ or {})}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)

    return run


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """`kfp-methods …` in this process and an empty folder: exit code, standard output, standard error."""
    from kfp_methods.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kfp-methods", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
