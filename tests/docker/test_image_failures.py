"""What a real engine refuses comes back as one line with the remedy."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kfp_methods.images import BuiltImage, ImageError, push_image

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]


def test_a_base_image_that_cannot_be_pulled(build: Callable[..., BuiltImage]) -> None:
    with pytest.raises(ImageError, match=r"base image cannot be pulled\. .*--base-image"):
        build("tabular", base_image="127.0.0.1:9/no-such-base:1", tag="never-built")


def test_a_package_mirror_that_does_not_answer(
    engine: Any, base_image: str, build: Callable[..., BuiltImage], tmp_path: Path
) -> None:
    sources = tmp_path / "sources.list"
    sources.write_text("deb [trusted=yes] http://127.0.0.1:9/debian bookworm main\n")
    refused = pytest.raises(ImageError, match=r"127\.0\.0\.1:9.*packages cannot be fetched\. .*--apt-sources")
    with _unseen(engine, base_image) as base, refused:
        build("tabular", base_image=base, apt_sources=sources, tag="never-built")


def test_pushes_to_a_registry_that_wants_a_login(engine: Any, base_image: str) -> None:
    refused = pytest.raises(ImageError, match=r"push=.*the registry refuses it .*docker login")
    with _registry(status=401) as address, _tagged(engine, base_image, address) as reference, refused:
        push_image(reference)


def test_pushes_to_a_registry_that_does_not_answer(engine: Any, base_image: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    failed = pytest.raises(ImageError, match=r"push=.*the push failed .*connection refused.*--registry")
    with _tagged(engine, base_image, address) as reference, failed:
        push_image(reference)


@contextlib.contextmanager
def _unseen(engine: Any, image: str) -> Iterator[str]:
    """A base image that no earlier build has seen, so that no step on it is cached."""
    name, tag = "kfp-methods-test-unseen", uuid4().hex
    container = engine.containers.run(image, ["sh", "-c", f"echo {tag} > /unseen"], detach=True)
    try:
        container.wait()
        container.commit(name, tag)
        yield f"{name}:{tag}"
    finally:
        container.remove()
        engine.images.remove(f"{name}:{tag}")


@contextlib.contextmanager
def _tagged(engine: Any, image: str, registry: str) -> Iterator[str]:
    reference = f"{registry}/kfp-methods/tabular:push-test"
    engine.images.get(image).tag(reference)
    try:
        yield reference
    finally:
        engine.images.remove(reference)


@contextlib.contextmanager
def _registry(status: int) -> Iterator[str]:
    """A registry on the loopback that answers everything with `status`."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_HEAD = do_PUT = do_GET  # noqa: N815  # the names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
