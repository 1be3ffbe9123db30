"""A group's image is built from the repository's one Dockerfile, looked at and pushed.

The build calls a docker client and not the Docker SDK: the SDK speaks only to Docker's classic builder, which knows
neither secrets nor cache mounts, and a private certificate or index given as a build argument would stay readable in
the image's history. Everything else (reaching the engine, inspecting, pushing) goes through the SDK.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_methods.errors import InputError, Problem
from kfp_methods.version import __version__
from kfp_methods.version import image_name as default_image_name

if TYPE_CHECKING:
    from docker import DockerClient

ROOT = Path(__file__).resolve().parents[1]
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_LAST_CLIENT_WITH_BUILTIN_BUILDKIT = 22
_TAIL_LINES = 60


class ImageError(InputError):
    """An image cannot be built or pushed; the text says what to do about it."""


@dataclass(frozen=True)
class Layer:
    """One step of an image's history that takes space."""

    command: str
    size_bytes: int


@dataclass(frozen=True)
class BuiltImage:
    """What a build made: `name:tag`, the image's id, its size unpacked, and where the time and the space went.

    `cached_steps` counts the Dockerfile's steps that an earlier build had already done; `digest` is the registry's
    name for the image after a push, for pinning.
    """

    name: str
    tag: str
    id: str
    size_bytes: int
    seconds: float
    layers: tuple[Layer, ...]
    cached_steps: int
    digest: str | None = None

    @property
    def reference(self) -> str:
        return f"{self.name}:{self.tag}"


def groups(root: Path = ROOT) -> list[str]:
    """The groups that have an image: folders of `images/` with requirements for the one Dockerfile."""
    return sorted(
        folder.parent.name
        for folder in root.glob("images/*/requirements.in")
        if not (folder.parent / "Dockerfile").exists()
    )


def image_name(group: str, registry: str | None = None, tag: str | None = None) -> str:
    """`[registry/]kfp-methods/<group>:<tag>`; what is not given comes from the environment or the version."""
    name, _, default_tag = default_image_name(group).rpartition(":")
    if registry is not None:
        name = f"{registry.rstrip('/')}/kfp-methods/{group}".lstrip("/")
    return f"{name}:{tag or default_tag}"


def build_image(
    group: str,
    *,
    base_image: str | None = None,
    registry: str | None = None,
    tag: str | None = None,
    push: bool = False,
    ca_bundle: Path | None = None,
    pip_config: Path | None = None,
    apt_sources: Path | None = None,
    network: str | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    root: Path = ROOT,
) -> BuiltImage:
    """Build the image of `group`, push it if asked, and say what it is.

    Args:
        group: a folder of `images/`.
        base_image: a Debian or Ubuntu with Python 3.11 or newer; None is the Dockerfile's own, a CUDA image.
        registry: put in front of the name, as in `registry.example/team`; None takes KFP_METHODS_REGISTRY.
        tag: None takes KFP_METHODS_TAG, or the version.
        push: send the image to its registry, with the credentials of `docker login`.
        ca_bundle: PEM certificates to trust during the build; None takes the file that PIP_CERT, SSL_CERT_FILE or
            REQUESTS_CA_BUNDLE names. Like the next two it is a build secret and in no layer.
        pip_config: a pip.conf for the build; None takes the file that PIP_CONFIG_FILE names.
        apt_sources: a sources.list for the build in place of the base image's.
        network: the network of the build's steps: "host" lets them reach what only this machine can.
        on_line: called with every line of progress.
        root: the repository.

    Raises:
        ImageError: Docker is missing, stopped or without BuildKit, or the build or the push failed.
    """
    _require_group(group, root)
    reference = image_name(group, registry, tag)
    secrets = {
        "ca_bundle": ca_bundle or _file_from_environment(*_CA_VARIABLES),
        "pip_config": pip_config or _file_from_environment("PIP_CONFIG_FILE"),
        "apt_sources": apt_sources,
    }
    arguments = {
        "BASE_IMAGE": base_image,
        "GROUP": group,
        "IMAGE": reference,
        "VERSION": __version__,
        "REVISION": _revision(root),
        "SOURCE": _source(),
    }
    with _engine() as engine:
        client = _buildkit_client()
        started = time.monotonic()
        command = [*client, *_build_options(reference, arguments, secrets, network), str(root)]
        cached = _run_build(command, on_line)
        seconds = time.monotonic() - started
        image = engine.images.get(reference)
        layers = tuple(
            Layer(" ".join(step["CreatedBy"].split()), step["Size"]) for step in image.history() if step["Size"]
        )
        digest = push_image(reference, on_line) if push else None
    name, _, image_tag = reference.rpartition(":")
    return BuiltImage(name, image_tag, str(image.id), image.attrs["Size"], seconds, layers, cached, digest)


def push_image(reference: str, on_line: Callable[[str], None] = lambda line: None) -> str | None:
    """Push `name:tag` with the credentials of `docker login`; returns the registry's digest, `sha256:…`.

    Raises:
        ImageError: the registry refused it or cannot be reached.
    """
    name, _, tag = reference.rpartition(":")
    digest = None
    with _engine() as engine:
        shown: dict[str, str] = {}
        for event in engine.images.push(name, tag=tag, stream=True, decode=True):
            if "error" in event:
                raise _push_error(reference, event["error"])
            digest = event.get("aux", {}).get("Digest", digest)
            layer, status = event.get("id", ""), event.get("status", "")
            if status and shown.get(layer) != status:
                shown[layer] = status
                on_line(f"{layer}: {status}" if layer else status)
    return digest


def _require_group(group: str, root: Path) -> None:
    if not (root / "Dockerfile").is_file():
        raise ImageError(
            Problem("build", str(root), "has no Dockerfile", "Run this from a clone of the repository (pip install -e .)")
        )
    if group not in (known := groups(root)):
        raise ImageError(Problem("group", group, "has no image", f"Give one of {', '.join(known)}"))


def _file_from_environment(*variables: str) -> Path | None:
    for variable in variables:
        if (value := os.environ.get(variable)) and value != os.devnull:
            return Path(value)
    return None


# --- the engine and the client ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _engine() -> Iterator[DockerClient]:
    """The running Docker engine, by the SDK."""
    try:
        import docker
    except ImportError:
        raise ImageError(
            Problem("docker", None, "the Python package is not installed", "pip install 'kfp-methods[kubeflow]'")
        ) from None
    host = os.environ.get("DOCKER_HOST")
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException as error:
        if "permission denied" in str(error).lower():
            problem, remedy = "this user may not use the Docker engine", "Add the user to the group docker, or use sudo"
        else:
            problem = "no Docker engine answers"
            remedy = "Start it (systemctl start docker, or Docker Desktop), or let DOCKER_HOST name one that runs"
        raise ImageError(Problem("docker", host, problem, remedy)) from error
    with contextlib.closing(client):
        yield client


def _buildkit_client() -> list[str]:
    """The first docker client on the PATH that can build with BuildKit: by its buildx plugin, or built in."""
    seen = []
    for folder in os.get_exec_path():
        program = shutil.which("docker", path=folder)
        if program is None or program in seen:
            continue
        seen.append(program)
        if _succeeds([program, "buildx", "version"]):
            return [program, "buildx", "build", "--load"]
        if 0 < _major_version(program) <= _LAST_CLIENT_WITH_BUILTIN_BUILDKIT:
            return [program, "build"]
    if not seen:
        problem, remedy = "there is no docker client on the PATH", "Install Docker (Debian: apt-get install docker.io)"
    else:
        problem = f"{', '.join(seen)} cannot build with BuildKit"
        remedy = "Install the buildx plugin (docker-buildx-plugin), or Debian's docker.io, which has BuildKit built in"
    raise ImageError(Problem("docker", None, problem, remedy))


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603  # no shell


def _major_version(program: str) -> int:
    shown = subprocess.run(  # noqa: S603  # no shell
        [program, "version", "--format", "{{.Client.Version}}"], capture_output=True, text=True, check=False
    )
    match = re.match(r"\d+", shown.stdout)
    return int(match[0]) if match else 0


# --- the build -------------------------------------------------------------------------------------------------------


def _build_options(
    reference: str, arguments: Mapping[str, str | None], secrets: Mapping[str, Path | None], network: str | None
) -> list[str]:
    options = ["--progress=plain", f"--tag={reference}"]
    options += [f"--build-arg={name}={value}" for name, value in arguments.items() if value]
    if network:
        options.append(f"--network={network}")
    for name, path in secrets.items():
        if path is None:
            continue
        if not path.is_file():
            raise ImageError(Problem(name, str(path), "is no file", "Give the path of a file that exists"))
        options.append(f"--secret=id={name},src={path.resolve()}")
    return options


def _run_build(command: Sequence[str], on_line: Callable[[str], None]) -> int:
    """Run the client, pass its lines on, and return how many steps came from the cache."""
    cached = 0
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(  # noqa: S603  # no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
    ) as process:
        assert process.stdout is not None  # noqa: S101  # asked for above
        try:
            for line in process.stdout:
                line = line.rstrip()
                cached += bool(re.fullmatch(r"#\d+ CACHED", line))
                tail.append(line)
                on_line(line)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise _build_error(tail)
    return cached


_BUILD_FAILURES = (
    (
        r"no space left on device",
        "the disk is full",
        "Free some with docker system prune and docker builder prune, or move Docker's data-root to a larger disk",
    ),
    (
        r"pull access denied|failed to (?:resolve|do request|load metadata|copy)|failed to create LLB|manifest unknown",
        "the base image cannot be pulled",
        "Check its name, log in to its registry (docker login), or give --base-image one that this machine has",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|Certificate verification failed",
        "a package index's certificate is not trusted",
        "Give --ca-bundle the PEM file of your certificate authority",
    ),
    (
        r"(?:Temporary failure|Could not|Failed to establish|Name or service|Unable to connect|Connection refused)"
        r".*|No matching distribution found",
        "packages cannot be fetched",
        "Give --pip-config and --apt-sources your mirror, or --network host where only this machine reaches it",
    ),
    (
        r"is not supported on this platform|requires a different Python|Unable to locate package python3",
        "the base image has no Python that will do",
        "Give --base-image a Debian or Ubuntu with Python 3.11 or newer",
    ),
)


def _build_error(tail: Sequence[str]) -> ImageError:
    text = "\n".join(tail)
    for pattern, problem, remedy in _BUILD_FAILURES:
        if match := re.search(pattern, text):
            line = next(line for line in tail if match[0].split("\n")[0] in line)
            return ImageError(Problem("build", _without_prefix(line), problem, remedy))
    last = next((line for line in reversed(tail) if line), "")
    return ImageError(Problem("build", _without_prefix(last), "a step failed", "The lines above say which, and why"))


def _without_prefix(line: str) -> str:
    return re.sub(r"^#\d+ (?:[\d.]+ )?", "", line)


def _push_error(reference: str, message: str) -> ImageError:
    if re.search(r"denied|unauthorized|no basic auth|authentication required", message):
        problem, remedy = "the registry refuses it", "Log in with docker login and an account that may write there"
    else:
        problem, remedy = "the registry cannot be reached", "Check --registry and the network of the Docker engine"
    return ImageError(Problem("push", reference, f"{problem} ({message})", remedy))


# --- labels ----------------------------------------------------------------------------------------------------------


def _revision(root: Path) -> str | None:
    """The commit, with `-dirty` when files differ from it; None outside git."""

    def git(*arguments: str) -> str | None:
        with contextlib.suppress(OSError):
            done = subprocess.run(  # noqa: S603  # no shell
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False  # noqa: S607
            )
            return done.stdout.strip() if done.returncode == 0 else None
        return None

    if not (commit := git("rev-parse", "HEAD")):
        return None
    return f"{commit}-dirty" if git("status", "--porcelain") else commit


def _source() -> str | None:
    """The project's address, from the installed package."""
    for entry in metadata.metadata("kfp-methods").get_all("Project-URL") or ():
        label, _, address = str(entry).partition(",")
        if label.strip().lower() in {"source", "repository", "homepage"}:
            return address.strip()
    return None
