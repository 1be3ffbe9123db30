"""Real servers for tests: MLflow on SQLite or PostgreSQL, and a proxy that makes them fail."""

from __future__ import annotations

import contextlib
import http.client
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

POSTGRES_BINARIES = Path("/usr/lib/postgresql/15/bin")
_START_SECONDS = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def mlflow_server(folder: Path, store: str = "", environ: dict[str, str] | None = None) -> Iterator[str]:
    """`mlflow server` with its files in `folder`, on SQLite unless `store` says otherwise; yields its URL."""
    port = free_port()
    store = store or f"sqlite:///{folder}/server.db"
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1",
         "--artifacts-destination", str(folder / "store"), "--host", "127.0.0.1", "--port", str(port)],
        stdout=log, stderr=log, cwd=folder, start_new_session=True,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
             "OMP_NUM_THREADS": "1", **(environ or {})},
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(url, process, folder / "server.log")
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2) as answer:  # noqa: S310
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"mlflow server did not start:\n{log.read_text()}")


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A new PostgreSQL cluster in a temporary folder; yields the URI of its database."""
    folder, port = Path(tempfile.mkdtemp(prefix="pg-")), free_port()
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        as_user = ["runuser", "-u", "postgres", "--"]

    def command(name: str, *arguments: str) -> None:
        subprocess.run([*as_user, str(POSTGRES_BINARIES / name), *arguments], check=True, cwd=folder,
                       stdout=subprocess.DEVNULL, timeout=60)  # fmt: skip

    data = str(folder / "data")
    try:
        command("initdb", "-D", data, "-U", "mlflow", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        command("pg_ctl", "start", "-w", "-D", data, "-l", str(folder / "log"), "-o", options)
        yield f"postgresql+psycopg2://mlflow@127.0.0.1:{port}/postgres"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            command("pg_ctl", "stop", "-D", data, "-m", "immediate")
        shutil.rmtree(folder, ignore_errors=True)


class FaultyProxy:
    """Forwards to a server, unless `fault` says that requests whose path contains `only` shall fail.

    fault: "" forwards, "503" answers so, "hang" never answers.
    """

    def __init__(self, target: str) -> None:
        self.fault, self.only, self.failed = "", "", 0
        self._released = threading.Event()
        proxy, host = self, target.removeprefix("http://")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def _handle(self) -> None:
                body = self._body()
                if proxy.fault and proxy.only in self.path:
                    proxy.failed += 1
                    proxy._fail(self)
                    return
                upstream = http.client.HTTPConnection(host, timeout=60)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                upstream.close()

            def _body(self) -> bytes:
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the test's output is the test's."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that gave up is what the tests provoke."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _fail(self, handler: BaseHTTPRequestHandler) -> None:
        if self.fault == "hang":
            self._released.wait()
            return
        handler.send_error(503)

    def stop(self) -> None:
        """Gone: connections are refused from now on."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


_HOP_BY_HOP = {"transfer-encoding", "connection", "content-length"}
