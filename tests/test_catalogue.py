"""The catalogue, the documents generated from it, and new methods."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfp_methods import catalogue, components, docs
from kfp_methods.errors import InputError
from tests.conftest import METHODS

NOOP = METHODS / "tabular" / "noop"


def test_entries_come_by_group_and_name() -> None:
    found = [(entry.group, entry.name) for entry in catalogue.entries()]
    assert ("tabular", "noop") in found
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_an_entry_is_what_metadata_says() -> None:
    entry = catalogue.entry("noop")
    written = yaml.safe_load((NOOP / "metadata.yaml").read_text())
    assert (entry.title, entry.summary, entry.stability) == tuple(written[k] for k in ("title", "summary", "stability"))
    assert entry.sample_data["licence"] == "Apache-2.0"
    assert entry.folder == NOOP
    assert entry.last_verified == str(written["lastVerified"])


@pytest.mark.parametrize(("name", "remedy"), [("nopp", "Did you mean noop?"), ("zzz", "`kfp-methods list` shows them")])
def test_an_unknown_method_is_explained(name: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        catalogue.load(name)
    assert caught.value.problems[0].remedy == remedy


def test_what_joins_replicates_is_known_but_not_listed() -> None:
    assert catalogue.load("collect").name == "collect"
    assert "collect" not in [entry.name for entry in catalogue.entries()]


@pytest.mark.parametrize("content", ["name: [", "title: only", "- a list", "", b"\xff\xfe\x00"])
def test_metadata_that_cannot_be_read_is_named(tmp_path: Path, content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tabular" / "broken" / "metadata.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setattr(components, "__path__", [str(tmp_path)])
    with pytest.raises(InputError, match=r"metadata.yaml=.*broken.*: cannot be read") as caught:
        catalogue.entries()
    assert len(str(caught.value).splitlines()) == 1


def test_the_catalogue_page_has_every_method_and_breaks_no_table() -> None:
    entry = dataclasses.replace(catalogue.entry("noop"), summary="one | two\nthree", title="T")
    other = dataclasses.replace(entry, name="other", group="zeta")
    page = docs.catalogue_page([entry, other])
    assert "## tabular" in page
    assert "## zeta" in page
    rows = [line for line in page.splitlines() if line.startswith("| [`")]
    assert len(rows) == 2
    assert r"T: one \| two three" in rows[0]
    assert all(row.replace(r"\|", "").count("|") == 6 for row in rows)


def test_a_readme_says_the_whole_interface() -> None:
    entry, method = catalogue.entry("noop"), catalogue.load("noop")
    text = docs.readme(entry, method, "\nBy hand.\n")
    fields = [kind.parameter_name for kind in method.inputs.kinds().values()]
    for name in [*fields, *method.outputs.kinds(), "total", "sum-positive"]:
        assert f"| `{name}` |" in text
    assert "three numbers (licence Apache-2.0)" in text
    assert docs.HAND_START + "\n\nBy hand.\n\n" + docs.HAND_END in text


def test_show_says_inputs_outputs_claims_and_licence() -> None:
    text = docs.describe(catalogue.entry("noop"), catalogue.load("noop"))
    expected = [
        "data_uri (Dataset) = embedded sample",
        "steps (int) = by preset",
        "seed (int) = 0",
        "doubled (Dataset)",
        "total",
        "sum-positive: The sum is above zero",
        "paper: no paper",
        "licence Apache-2.0",
    ]
    for part in expected:
        assert part in text


class Author:
    """Someone who writes a method in a folder of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.components = root / "components"
        self.folder = self.components / "science" / "my_method"

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`kfp-methods …`, which takes the author's folder for its repository."""
        code = (
            "import sys; from pathlib import Path; from kfp_methods.cli import author, main; "
            f"author.REPOSITORY = Path({str(self.root)!r}); sys.argv[0] = 'kfp-methods'; main()"
        )
        env = {**os.environ, "KFP_METHODS_PATH": str(self.components), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.root, env=env, check=False)


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    author = Author(tmp_path_factory.mktemp("author"))
    done = author("new", "my_method", "--group", "science", "--into", str(author.components))
    assert done.returncode == 0, done.stderr
    assert "WRITE" in done.stdout
    return author


def test_a_new_method_says_what_to_write(author: Author) -> None:
    files = {path.name: path.read_text() for path in author.folder.iterdir() if path.is_file()}
    assert {"component.py", "metadata.yaml"} <= set(files)
    assert all("WRITE" in files[name] for name in ("component.py", "metadata.yaml"))
    assert "{{" not in files["component.py"] + files["metadata.yaml"]


def test_a_new_method_is_listed(author: Author) -> None:
    found = json.loads(author("list", "--json", "--group", "science").stdout)
    assert "my_method" in [row["method"] for row in found["methods"]]


def test_a_new_method_is_clean_code(author: Author) -> None:
    settings = ["--config", str(METHODS.parents[1] / "pyproject.toml"), "--no-cache"]
    command = [sys.executable, "-m", "ruff", "check", *settings, str(author.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_new_method_runs_at_once(author: Author) -> None:
    done = author("run", "my_method", "--preset", "smoke", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["data"] == "sample"
    assert 0 < result["metrics"]["mean"] < 2
    assert result["claims"][0]["n"] == 2
    assert {"report", "metrics", "claims", "scaled"} == set(result["outputs"])


@pytest.mark.slow
def test_a_new_method_takes_the_users_file(author: Author) -> None:
    (author.root / "own.csv").write_text("x\n1\n3\n")
    assert "your data" in author("check", "my_method", "--data-uri", "own.csv").stdout
    (author.root / "wrong.csv").write_text("y\n1\n")
    wrong = author("check", "my_method", "--data-uri", "wrong.csv")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("data_uri=")


@pytest.mark.slow
def test_documents_are_written_once_and_then_current(author: Author) -> None:
    assert author("docs", "--check").returncode == 1
    written = author("docs")
    assert written.returncode == 0, written.stderr
    names = {
        "components/science/my_method/README.md",
        "components/science/my_method/component.yaml",
        "docs/catalogue.md",
    }
    assert {line.removeprefix("written: ") for line in written.stdout.splitlines()} == names
    readme = author.folder / "README.md"
    text = readme.read_text().replace("(Say here what the method is for and what a user should know.)", "By hand: ü|.")
    readme.write_text(text)
    current = author("docs", "--check")
    assert (current.returncode, current.stdout) == (0, "")
    readme.write_text(text.replace("By hand: ü|.", "By hand: ü|.\nTwice.").replace("| `scale` |", "| `scales` |"))
    stale = author("docs", "--check")
    assert (stale.returncode, stale.stdout) == (1, "not current: components/science/my_method/README.md\n")
    author("docs")
    assert "By hand: ü|.\nTwice." in readme.read_text()
    assert "| `scale` |" in readme.read_text()


@pytest.mark.parametrize(
    ("name", "group", "field"),
    [("my_method", "science", "NAME"), ("noop2!", "science", "NAME"), ("../up", "science", "NAME"), ("My", "x", "NAME"),
     ("fine", "../up", "group")],
)  # fmt: skip
def test_a_bad_or_taken_name_is_refused(author: Author, name: str, group: str, field: str) -> None:
    before = sorted(author.root.rglob("*.py"))
    done = author("new", name, "--group", group, "--into", str(author.components))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{field}=")
    assert sorted(author.root.rglob("*.py")) == before
