"""A Docker engine, a Debian base made on the spot, and the tabular image built on it, once for these tests.

Nothing is pulled. Where no engine runs, one is installed and started if CI=true or
KFP_METHODS_START_DOCKER=1, and the tests are skipped otherwise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kfp_methods.engine import EngineError, docker_engine
from kfp_methods.images import ROOT, BuiltImage, build_image
from tests.docker.host_pip import MARKER, pip_config_for_containers

BASE_IMAGE = "kfp-methods-test-base:bookworm"
_START_SECONDS = 60


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Docker SDK's client of a running engine."""
    with contextlib.ExitStack() as stack:
        if not _engine_answers():
            if os.environ.get("CI") != "true" and os.environ.get("KFP_METHODS_START_DOCKER") != "1":
                pytest.skip("no Docker engine runs; KFP_METHODS_START_DOCKER=1 lets the tests start one")
            stack.enter_context(_started_engine(tmp_path_factory.mktemp("dockerd") / "dockerd.log"))
        yield stack.enter_context(docker_engine())


@pytest.fixture(scope="session")
def base_image(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The smallest Debian, made by debootstrap once and kept as a local image."""
    import docker

    with contextlib.suppress(docker.errors.ImageNotFound):
        engine.images.get(BASE_IMAGE)
        return BASE_IMAGE
    _install("debootstrap", "debootstrap")
    root = tmp_path_factory.mktemp("debian") / "root"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(root)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root / "var/lib/apt/lists")
    shutil.rmtree(root / "var/cache/apt")
    archive = root.with_suffix(".tar")
    subprocess.run(["tar", "--create", f"--file={archive}", f"--directory={root}", "."], check=True)
    shutil.rmtree(root)
    repository, _, tag = BASE_IMAGE.partition(":")
    engine.api.import_image_from_file(str(archive), repository=repository, tag=tag)
    archive.unlink()
    return BASE_IMAGE


@pytest.fixture(scope="session")
def build(base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BuiltImage]]:
    """`build_image` with what this machine needs to reach its package indexes, all of it as build secrets."""
    folder = tmp_path_factory.mktemp("secrets")
    with pip_config_for_containers() as (config, certificates):
        (folder / "pip.conf").write_text(f"# {MARKER}\n{config}")
        (folder / "ca.pem").write_text(f"# {MARKER}\n{certificates}")
        yield partial(
            build_image,
            base_image=base_image,
            network="host",
            pip_config=folder / "pip.conf",
            ca_bundle=folder / "ca.pem",
        )


@pytest.fixture(scope="session")
def group_image(build: Callable[..., BuiltImage]) -> Callable[[str], BuiltImage]:
    """A group's image, built once from the working tree under the name that its pipelines ask for."""
    return cache(lambda group: build(group, root=ROOT))


@pytest.fixture(scope="session")
def tabular_image(group_image: Callable[[str], BuiltImage]) -> BuiltImage:
    """The tabular group's image."""
    return group_image("tabular")


def _engine_answers() -> bool:
    with contextlib.suppress(EngineError), docker_engine():
        return True
    return False


@contextlib.contextmanager
def _started_engine(log: Path) -> Iterator[None]:
    _install("dockerd", "docker.io")
    with log.open("w") as output:
        process = subprocess.Popen(["dockerd"], stdout=output, stderr=output, start_new_session=True)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _engine_answers():
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"dockerd did not start:\n{log.read_text()[-3000:]}")
                time.sleep(0.5)
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def _install(program: str, package: str) -> None:
    if shutil.which(program) is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "--yes", package], check=True, stdout=subprocess.DEVNULL)
