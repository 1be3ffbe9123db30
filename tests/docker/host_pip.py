"""This machine's pip settings in a form that a container on the host's network can use.

Folders on this machine that pip looks in (wheel folders, index folders) are served over the loopback, and the
settings name those addresses instead.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from ast import literal_eval
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

# In every secret file of these tests; must be found in no layer of an image.
MARKER = "build-secret-of-the-tests-that-no-layer-may-hold"
# Not "constraint": what is installed is the lock's business.
_CARRIED = (
    "index-url",
    "extra-index-url",
    "find-links",
    "trusted-host",
    "timeout",
    "default-timeout",
    "no-index",
)
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def pip_settings() -> dict[str, str]:
    """pip's settings without their section; the environment's win over the files'."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line.partition("=") for line in listed.splitlines()]
    ordered = sorted(lines, key=lambda parts: parts[0].startswith(":env:"))
    return {name.rpartition(".")[2]: literal_eval(value) for name, _, value in ordered}


@contextlib.contextmanager
def pip_config_for_containers() -> Iterator[tuple[str, str]]:
    """The text of a pip.conf and the PEM certificates to trust, valid while the context lasts."""
    settings = pip_settings()
    certificates = Path(settings.get("cert", _SYSTEM_CERTIFICATES))
    with contextlib.ExitStack() as stack:
        lines = ["[global]"]
        for name in _CARRIED:
            if name in settings:
                values = [_reachable(value, name, stack) for value in settings[name].split()]
                lines.append(f"{name} = {' '.join(values)}")
        yield "\n".join(lines) + "\n", certificates.read_text() if certificates.is_file() else ""


def _reachable(location: str, setting: str, stack: contextlib.ExitStack) -> str:
    """A folder of this machine becomes the address that serves it; anything else stays."""
    folder = Path(unquote(urlsplit(location).path) if location.startswith("file:") else location)
    if not (folder.is_absolute() and folder.is_dir()):
        return location
    if setting == "find-links":
        return stack.enter_context(_served(folder)) + "/"
    # An index links to files beside it, so the folder that holds both is served.
    return f"{stack.enter_context(_served(folder.parent))}/{folder.name}/"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
