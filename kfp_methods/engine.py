"""The Docker engine, and a client that can build with BuildKit: found, or what to do to have them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from docker import DockerClient

_LAST_CLIENT_WITH_BUILTIN_BUILDKIT = 22


class EngineError(InputError):
    """Docker is missing, stopped, closed to this user or too old."""


@contextlib.contextmanager
def docker_engine() -> Iterator[DockerClient]:
    """The running Docker engine, as the Docker SDK's client.

    Raises:
        EngineError: the SDK is not installed, or no engine answers.
    """
    try:
        import docker
    except ImportError:
        remedy = "Install it: pip install 'kfp-methods[kubeflow]'"
        raise EngineError(Problem("docker", None, "the Docker SDK is not installed", remedy)) from None
    host = os.environ.get("DOCKER_HOST")
    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        raise _no_engine(host, str(error)) from error
    with contextlib.closing(client):
        try:
            client.ping()
        except (docker.errors.DockerException, OSError) as error:
            raise _no_engine(host, str(error)) from error
        yield client


def buildkit_command() -> list[str]:
    """The command that builds with BuildKit, from the first docker client on the PATH that can.

    Clients before version 23 have BuildKit built in; later ones need their buildx plugin.

    Raises:
        EngineError: there is no such client.
    """
    clients = dict.fromkeys(
        program for folder in os.get_exec_path() if (program := shutil.which("docker", path=folder))
    )
    for program in clients:
        if _output([program, "buildx", "version"]):
            return [program, "buildx", "build", "--load"]
        if 0 < _major_version(program) <= _LAST_CLIENT_WITH_BUILTIN_BUILDKIT:
            return [program, "build"]
    if not clients:
        problem, remedy = "there is no docker client on the PATH", "Install Docker (Debian: docker.io)"
    else:
        problem = f"cannot build with BuildKit: {', '.join(clients)}"
        remedy = "Install the plugin buildx, or Debian's docker.io, whose client has BuildKit built in"
    raise EngineError(Problem("docker", None, problem, remedy))


def _no_engine(host: str | None, error: str) -> EngineError:
    if "permission denied" in error.lower():
        problem, remedy = "this user may not use the engine", "Add the user to the group docker, or use sudo"
    else:
        problem = "no Docker engine answers"
        remedy = "Start it (systemctl start docker, Docker Desktop), or name a running one in DOCKER_HOST"
    return EngineError(Problem("docker", host, problem, remedy))


def _major_version(program: str) -> int:
    match = re.match(r"\d+", _output([program, "version", "--format", "{{.Client.Version}}"], partial=True))
    return int(match[0]) if match else 0


def _output(command: Sequence[str], partial: bool = False) -> str:
    """What a command prints; nothing when it fails, unless `partial`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # no shell
    return done.stdout if partial or done.returncode == 0 else ""
