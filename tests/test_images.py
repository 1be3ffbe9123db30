"""Images without Docker: their names, the client that is called, failures in the user's words."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kfp_methods.engine import EngineError, buildkit_command, docker_engine
from kfp_methods.images import ROOT, ImageError, _build_error, build_image, groups, image_name
from kfp_methods.version import __version__

Client = Callable[..., Path]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Puts a stand-in for the docker client on an otherwise empty PATH, after those made before."""
    monkeypatch.setenv("PATH", "")

    def make(version: str, buildx: bool) -> Path:
        folder = tmp_path / f"bin-{version}"
        folder.mkdir()
        program = folder / "docker"
        program.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            f"if sys.argv[1:] == ['buildx', 'version'] and {buildx}: print('buildx v0.20'); sys.exit(0)\n"
            f"if sys.argv[1] == 'version': print({version!r}); sys.exit(1)  # no engine\n"
            "sys.exit('unknown command')\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", os.pathsep.join(filter(None, [os.environ["PATH"], str(folder)])))
        return program

    return make


def test_uses_the_plugin_of_a_newer_client(client: Client) -> None:
    program = client("28.2.2", buildx=True)
    assert buildkit_command() == [str(program), "buildx", "build", "--load"]


def test_passes_over_a_newer_client_without_its_plugin(client: Client) -> None:
    client("28.2.2", buildx=False)
    older = client("20.10.24+dfsg1", buildx=False)
    assert buildkit_command() == [str(older), "build"]


def test_says_that_a_client_cannot_build_with_buildkit(client: Client) -> None:
    program = client("28.2.2", buildx=False)
    with pytest.raises(EngineError, match=re.escape(str(program)) + r"\. Install the plugin buildx"):
        buildkit_command()


def test_says_that_there_is_no_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"no docker client on the PATH\. Install Docker"):
        buildkit_command()


def test_says_that_no_engine_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with (
        pytest.raises(EngineError, match=r"docker=unix://.*: no Docker engine answers\. Start it"),
        docker_engine(),
    ):
        pass


@pytest.mark.parametrize(
    ("registry", "tag", "environment", "expected"),
    [
        (None, None, {}, f"kfp-methods/tabular:{__version__}"),
        ("", None, {}, f"kfp-methods/tabular:{__version__}"),
        ("registry.example:5000/team/", "2", {}, "registry.example:5000/team/kfp-methods/tabular:2"),
        (
            None,
            None,
            {"KFP_METHODS_REGISTRY": "r.example/x", "KFP_METHODS_TAG": "t"},
            "r.example/x/kfp-methods/tabular:t",
        ),
        (
            "",
            "2",
            {"KFP_METHODS_REGISTRY": "r.example:5000/x", "KFP_METHODS_TAG": "t"},
            "kfp-methods/tabular:2",
        ),
    ],
)
def test_names(
    monkeypatch: pytest.MonkeyPatch,
    registry: str | None,
    tag: str | None,
    environment: dict[str, str],
    expected: str,
) -> None:
    for name in ("KFP_METHODS_REGISTRY", "KFP_METHODS_TAG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert image_name("tabular", registry, tag) == expected


def test_an_unknown_group_names_the_known_ones() -> None:
    with pytest.raises(ImageError, match=r"group=tabluar: has no image\. Give one of .*tabular"):
        build_image("tabluar")


def test_an_installation_without_the_repository_says_so(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"has no Dockerfile\. Build from a clone"):
        build_image("tabular", root=tmp_path)


def test_a_missing_secret_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"pip_config=.*missing\.conf: is no file"):
        build_image("tabular", pip_config=tmp_path / "missing.conf")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#9 1.2 OSError: [Errno 28] No space left on device".replace("No", "no"), "the disk is full"),
        ("#4 ERROR: pull access denied, repository does not exist", "the base image cannot be pulled"),
        ("#9 2.0 ssl.SSLCertVerificationError: certificate verify failed: unable to get", "not trusted"),
        ("#9 2.0 E: Certificate verification failed: The certificate is NOT trusted.", "not trusted"),
        ("#9 3.1 ERROR: No matching distribution found for torch==2.13.0", "packages cannot be fetched"),
        ("#7 0.4 E: Unable to locate package python3", "no Python that will do"),
        ("#9 9.9 Killed", "a step failed"),
    ],
)
def test_a_failed_build_says_why_and_what_to_do(line: str, expected: str) -> None:
    error = _build_error(["#8 DONE 0.1s", line])
    assert re.sub(r"^#\d+ [\d.]* ?", "", line)[:40] in str(error)
    assert expected in str(error)
    assert error.problems[0].remedy


def test_bake_knows_every_group_and_the_version() -> None:
    bake = (ROOT / "docker-bake.hcl").read_text()
    defaults = dict(re.findall(r'variable "(\w+)" \{\n  default = (.+)\n', bake))
    assert json.loads(defaults["GROUPS"]) == groups()
    assert json.loads(defaults["TAG"]) == __version__


def test_bake_and_the_dockerfile_agree_on_arguments_and_secrets() -> None:
    bake, dockerfile = (ROOT / "docker-bake.hcl").read_text(), (ROOT / "Dockerfile").read_text()
    arguments = set(re.findall(r"^    (\w+) += ", bake.partition("args = {")[2], re.MULTILINE))
    assert arguments == set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE)) - {"SOURCE"}
    assert set(re.findall(r"id=(\w+),src", bake)) == set(re.findall(r"type=secret,id=(\w+)", dockerfile))


@pytest.mark.parametrize("group", groups())
def test_the_lock_names_everything_wanted_and_no_host(group: str) -> None:
    folder = ROOT / "images" / group
    lock = (folder / "requirements.txt").read_text()
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    wanted = set(re.findall(r"^[\w.-]+", (folder / "requirements.in").read_text(), re.MULTILINE))
    assert wanted <= locked
    assert "://" not in lock
    assert not re.search(r"^--?\w", lock, re.MULTILINE)
