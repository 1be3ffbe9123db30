"""How a local run's tasks live in Docker: read-only, without rights or network, as nobody's root."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LABEL = "kfp-methods.job"
_IMAGE_USER = 10001  # the Dockerfile's
_STOP_SECONDS = 30


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
