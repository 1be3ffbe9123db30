"""How a local run's tasks live in Docker: read-only, without rights or network, as nobody's root."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_methods.engine import docker_engine
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from docker import DockerClient

_LABEL = "kfp-methods.job"
_IMAGE_USER = 10001  # the Dockerfile's
_STOP_SECONDS = 30
_NETWORKS = ("none", "host", "bridge", "default")


def docker_runner(root: Path, environment: Mapping[str, str], job: str, network: str) -> Any:
    """kfp.local's DockerRunner with our images' restrictions; the folder `root` is the only place shared with the host.

    The tasks run as the calling user, so that the outputs are the user's; where that is root, as the image's own user,
    to whom `root` is then given.
    """
    import docker
    from kfp import local

    user, group = os.getuid(), os.getgid()
    if user == 0:
        user = group = _IMAGE_USER
        _give(root, user, group)
    forwarded = {key: value for key, value in os.environ.items() if key.startswith("MLFLOW_")}
    return local.DockerRunner(
        environment={**forwarded, **environment},
        user=f"{user}:{group}",
        read_only=True,
        tmpfs={"/tmp": "rw,exec,size=4g,mode=1777"},  # noqa: S108
        mounts=[docker.types.Mount(target=str(root), source=str(root), type="bind")],
        shm_size="1g",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode=network,
        labels={_LABEL: job},
    )


def require_images(references: Iterable[str], network: str) -> None:
    """Asks before anything starts whether the engine has what the tasks need.

    An image of a registry that is not here is pulled. One without a registry is not: Docker would look for it on a
    public one, where its name may be anybody's.

    Raises:
        InputError: there is no Docker engine, an image cannot be had, or there is no such network.
    """
    import docker

    with docker_engine() as engine:
        for reference in references:
            try:
                engine.images.get(reference)
            except docker.errors.ImageNotFound:
                _pull(engine, reference)
            except docker.errors.APIError as error:
                raise _no_image(reference, error.explanation or "it is no name of an image") from None
        if network not in _NETWORKS and not network.startswith("container:"):
            try:
                engine.networks.get(network)
            except docker.errors.APIError:
                problem, remedy = "there is no such network", "Give none, host, or one that docker network ls shows"
                raise InputError(Problem("docker_network", network, problem, remedy)) from None


def _pull(engine: DockerClient, reference: str) -> None:
    import docker

    registry, slash, _ = reference.partition("/")
    if not slash or not (set(".:") & set(registry) or registry == "localhost"):
        raise _no_image(reference, "the Docker engine has no such image")
    print(f"pulling {reference}", file=sys.stderr)
    try:
        engine.images.pull(reference)
    except docker.errors.APIError as error:
        reason = " ".join(str(error.explanation or error).split())
        raise _no_image(reference, f"the Docker engine has no such image, and cannot pull it ({reason})") from None


def _no_image(reference: str, problem: str) -> InputError:
    from kfp_methods.images import groups

    group = re.split(r"[:@]", reference.rpartition("/")[2])[0]
    known = group in groups()
    build = f"Build it with `kfp-methods build {group}`" if known else "Build it with `kfp-methods build GROUP`"
    return InputError(Problem("image", reference, problem, f"{build}, or give --image one that is there"))


def stop_containers(job: str) -> None:
    """Sends SIGTERM to a job's containers, and SIGKILL half a minute later."""
    docker = sys.modules.get("docker")
    if docker is None:
        return
    with contextlib.suppress(docker.errors.DockerException), contextlib.closing(docker.from_env()) as client:
        for container in client.containers.list(filters={"label": f"{_LABEL}={job}"}):
            container.stop(timeout=_STOP_SECONDS)


def _give(folder: Path, user: int, group: int) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            shutil.chown(path, user, group)
