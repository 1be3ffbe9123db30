"""A group's image is built from the repository's one Dockerfile, looked at and pushed.

The build calls a docker client and not the Docker SDK: the SDK speaks only to Docker's classic builder, which
knows neither secrets nor cache mounts, and a private certificate or index that came as a build argument would
stay readable in the image's history. Looking at images and pushing them goes through the SDK.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kfp_methods.engine import buildkit_command, docker_engine
from kfp_methods.errors import InputError, Problem
from kfp_methods.version import __version__
from kfp_methods.version import image_name as default_image_name

ROOT = Path(__file__).resolve().parents[1]
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_TAIL_LINES = 60


class ImageError(InputError):
    """An image cannot be built or pushed; the text says what to do about it."""


@dataclass(frozen=True)
class Layer:
    """A step of an image's history that takes space."""

    command: str
    size_bytes: int


@dataclass(frozen=True)
class BuiltImage:
    """What a build made: `name:tag`, the image's id, its size unpacked, and where time and space went.

    `layers` has the newest first. `cached_steps` counts the Dockerfile's steps that an earlier build had
    already done. `digest` is the registry's name for the image after a push, for pinning it.
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
    folders = [file.parent for file in root.glob("images/*/requirements.in")]
    return sorted(folder.name for folder in folders if not (folder / "Dockerfile").exists())


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
        group: one of `groups()`.
        base_image: a Debian or Ubuntu with Python 3.11 or newer; None is the Dockerfile's own, with CUDA.
        registry: put in front of the name, as in `registry.example/team`; None takes KFP_METHODS_REGISTRY.
        tag: None takes KFP_METHODS_TAG, or the version.
        push: send the image to its registry, with the credentials of `docker login`.
        ca_bundle: PEM certificates to trust during the build; None takes the file that PIP_CERT,
            SSL_CERT_FILE or REQUESTS_CA_BUNDLE names. Like the next two a build secret, in no layer.
        pip_config: a pip.conf for the build; None takes the file that PIP_CONFIG_FILE names.
        apt_sources: a sources.list for the build in place of the base image's.
        network: the network of the build's steps; "host" reaches what only this machine can.
        on_line: called with every line of progress.
        root: the repository.

    Raises:
        EngineError: Docker is missing, stopped or without BuildKit.
        ImageError: the group has no image, a file is missing, or the build or the push failed.
    """
    _require_group(group, root)
    reference = image_name(group, registry, tag)
    arguments = {
        "BASE_IMAGE": base_image,
        "GROUP": group,
        "IMAGE": reference,
        "VERSION": __version__,
        "REVISION": _revision(root),
        "SOURCE": _source(),
    }
    secrets = {
        "ca_bundle": ca_bundle or _file_from_environment(*_CA_VARIABLES),
        "pip_config": pip_config or _file_from_environment("PIP_CONFIG_FILE"),
        "apt_sources": apt_sources,
    }
    options = _build_options(reference, arguments, secrets, network)
    with docker_engine() as engine:
        started = time.monotonic()
        cached = _run_build([*buildkit_command(), *options, str(root)], on_line)
        seconds = time.monotonic() - started
        image = engine.images.get(reference)
        history = image.history()
    layers = tuple(Layer(step["CreatedBy"], step["Size"]) for step in history if step["Size"])
    digest = push_image(reference, on_line) if push else None
    name, _, tag = reference.rpartition(":")
    return BuiltImage(name, tag, str(image.id), image.attrs["Size"], seconds, layers, cached, digest)


def push_image(reference: str, on_line: Callable[[str], None] = lambda line: None) -> str | None:
    """Push `name:tag` with the credentials of `docker login`; returns the registry's digest, `sha256:…`.

    Raises:
        EngineError: Docker is missing or stopped.
        ImageError: the registry refuses the image or cannot be reached.
    """
    name, _, tag = reference.rpartition(":")
    digest = None
    shown: dict[str, str] = {}
    with docker_engine() as engine:
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
        remedy = "Build from a clone of the repository, installed with pip install -e ."
        raise ImageError(Problem("build", str(root), "has no Dockerfile", remedy))
    if group not in (known := groups(root)):
        raise ImageError(Problem("group", group, "has no image", f"Give one of {', '.join(known)}"))


def _file_from_environment(*variables: str) -> Path | None:
    given = (os.environ.get(variable) for variable in variables)
    return next((Path(value) for value in given if value and value != os.devnull), None)


def _build_options(
    reference: str,
    arguments: Mapping[str, str | None],
    secrets: Mapping[str, Path | None],
    network: str | None,
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
        try:
            for line in process.stdout or ():
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


# What a failed build's lines say, what that means, and what to do; the first that matches is the cause.
_FAILURES = (
    (
        r"no space left on device",
        "the disk is full",
        "Free some with docker system prune and docker builder prune, or give Docker a larger disk",
    ),
    (
        r"pull access denied|failed to (?:resolve|load metadata|do request|create LLB)|manifest unknown",
        "the base image cannot be pulled",
        "Check its name, log in (docker login), or give --base-image one that this machine has",
    ),
    (
        r"(?i:certificate.verif\w* failed)",
        "the certificate of a package index is not trusted",
        "Give --ca-bundle the PEM file of your certificate authority",
    ),
    (
        r"Unable to locate package python3|requires a different Python|Requires-Python",
        "the base image has no Python that will do",
        "Give --base-image a Debian or Ubuntu with Python 3.11 or newer",
    ),
    (
        r"Temporary failure|Failed to fetch|Failed to establish|Connection refused|No matching distribution",
        "packages cannot be fetched",
        "Give --pip-config and --apt-sources your mirror, or --network host if only this machine reaches it",
    ),
)


def _build_error(tail: Sequence[str]) -> ImageError:
    for pattern, problem, remedy in _FAILURES:
        for line in tail:
            if re.search(pattern, line):
                return ImageError(Problem("build", _without_prefix(line), problem, remedy))
    last = next((line for line in reversed(tail) if line), "")
    return ImageError(Problem("build", _without_prefix(last), "a step failed", "The lines above it say which, and why"))


def _without_prefix(line: str) -> str:
    """The line without BuildKit's step number and seconds."""
    return re.sub(r"^#\d+ (?:[\d.]+ )?", "", line)


def _push_error(reference: str, message: str) -> ImageError:
    if re.search(r"denied|unauthorized|no basic auth|authentication required", message):
        remedy = "Log in with docker login, as somebody who may write there"
        return ImageError(Problem("push", reference, f"the registry refuses it ({message})", remedy))
    remedy = "Check --registry, and that the Docker engine's network reaches it"
    return ImageError(Problem("push", reference, f"the push failed ({message})", remedy))


def _revision(root: Path) -> str | None:
    """The commit, with `-dirty` when files differ from it; None outside git."""
    commit = _git(root, "rev-parse", "HEAD")
    return f"{commit}-dirty" if commit and _git(root, "status", "--porcelain") else commit


def _git(root: Path, *arguments: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    return None


def _source() -> str | None:
    """The project's address, from the installed package."""
    for entry in metadata.metadata("kfp-methods").get_all("Project-URL") or ():
        label, _, address = str(entry).partition(",")
        if label.strip().lower() in {"source", "repository", "homepage"}:
            return address.strip()
    return None
