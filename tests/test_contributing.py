"""The page for authors is true: its example is written as it stands there, and runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TESTS

ROOT = TESTS.parent
NAME = "median_of_means"
_METHOD, _TESTS = f"tabular/{NAME}", f"tests/components/tabular/{NAME}"
_FILES = {
    f"{_TESTS}/test_estimate.py": "The median of means on numbers",
    f"{_METHOD}/estimate.py": "Median of means: the mean of a heavy-tailed",
    f"{_METHOD}/component.py": "Median of means: an estimate",
    f"{_METHOD}/metadata.yaml": "name: median_of_means",
    f"{_TESTS}/own_data.py": "A user's table",
}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "KFP_METHODS_PATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of methods with the example, made by the page's command and its blocks of code."""
    into = tmp_path_factory.mktemp("methods")
    made = run(into, "kfp_methods.cli", "new", NAME, "--group", "tabular", "--into", str(into))
    assert made.returncode == 0, made.stderr
    (into / _TESTS).mkdir(parents=True)
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    for name, start in _FILES.items():
        [text] = [block for block in blocks if block.removeprefix('"""').startswith(start)]
        (into / name).write_text(text, encoding="utf-8")
    return into


@pytest.mark.slow
def test_the_example_keeps_the_house_s_rules(folder: Path) -> None:
    config = str(ROOT / "pyproject.toml")
    for arguments in (("check", "--config", config), ("format", "--check", "--config", config)):
        done = run(folder, "ruff", *arguments, *(name for name in _FILES if name.endswith(".py")))
        assert done.returncode == 0, done.stdout
    assert not re.search("WRITE", "".join(path.read_text() for path in (folder / _METHOD).glob("*.*")))


@pytest.mark.slow
def test_the_example_s_own_tests_pass(folder: Path) -> None:
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", f"{_TESTS}/test_estimate.py")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.slow
def test_the_example_runs_on_its_sample_and_on_a_file(folder: Path) -> None:
    done = run(folder, "kfp_methods.cli", "run", NAME, "--preset", "smoke", "--json")
    assert done.returncode == 0, done.stderr
    [claim] = json.loads(done.stdout)["claims"]
    assert claim["value"] is not None
    (folder / "numbers.csv").write_text("x\n" + "\n".join(map(str, range(20))) + "\n")
    done = run(folder, "kfp_methods.cli", "run", NAME, "--data-uri", "numbers.csv")
    assert done.returncode == 0, done.stderr
    assert "(the plain mean says 9.5)" in done.stdout
    assert "unknown." in done.stdout, "the reason stands where the figure would"
    done = run(folder, "kfp_methods.cli", "check", NAME, "--data-uri", "numbers.csv", "--blocks", "21")
    assert (done.returncode, done.stdout) == (2, "")
    assert "blocks=21: is more than the 20 values. Give at most 20." in done.stderr


@pytest.mark.slow
def test_the_example_s_broken_files_are_refused(folder: Path) -> None:
    probe = """
import sys
from pathlib import Path
from kfp_methods import catalogue
from kfp_methods.context import Context
from kfp_methods.errors import InputError
sys.path.insert(0, sys.argv[2])
import own_data
method = catalogue.load(sys.argv[1])
for parameters, words in own_data.broken(Path.cwd()):
    try:
        method.read(method.inputs.parse(parameters), Context(Path.cwd(), "cpu"))
    except InputError as error:
        assert all(word in str(error) for word in words), (words, str(error))
    else:
        raise AssertionError(parameters)
"""
    env = {**os.environ, "KFP_METHODS_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", probe, NAME, _TESTS], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
