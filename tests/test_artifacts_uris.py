"""A URI of any kind becomes a local file, bounded in size, and its credentials are never told."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from kfp_methods.artifacts import digest, fetch, redacted
from kfp_methods.artifacts.remote import explain
from kfp_methods.errors import InputError

CONTENT = b"a,b\n1,2\n"


def refusal(uri: str, cache: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        fetch(uri, field="data", cache=cache, **options)  # type: ignore[arg-type]
    assert caught.value.__cause__ is None  # a driver's own text may hold keys
    message = str(caught.value)
    assert message.startswith("data")
    return message


# Local paths


def test_local_paths_are_returned_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my dätä 表%20.csv"
    path.write_bytes(CONTENT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "cache"
    for uri in (
        str(path),
        path.name,
        f"~/{path.name}",
        path.as_uri(),
        path.as_uri().replace("//", "//localhost"),
    ):
        assert fetch(uri, field="data", cache=cache).read_bytes() == CONTENT
    assert not cache.exists()


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("", "is no URI"),
        ("a\x00b", "is no URI"),
        ("no/such/file.csv", "does not exist"),
        ("x" * 5000, "cannot be opened"),
        ("~nobody-of-this-name/x", "home folder that does not exist"),
        ("file://elsewhere/x", "names another machine, 'elsewhere'"),
        ("ftp://host/x", "ftp:// is not supported"),
        ("simplecache::file:///etc/passwd", "does not exist"),
        ("zip://a::file:///etc/passwd", "zip:// is not supported"),
        ("http:/host/x", "names no host"),
        ("https://", "names no host"),
        ("https://[::1/x", "not a well-formed URI"),
        ("https://host:port/x", "not a well-formed URI"),
        ("s3://bucket", "names a whole bucket"),
        ("s3://KEY:SECRET@bucket/x", "holds credentials"),
        ("runs:/", "is incomplete"),
        ("runs:/abc", "is incomplete"),
        ("runs:/abc/../../x", "is incomplete"),
        ("/dev/zero", "device, pipe or socket"),
    ],
)
def test_unusable_uri_is_refused(uri: str, part: str, tmp_path: Path) -> None:
    message = refusal(uri, tmp_path)
    assert part in message
    assert "SECRET" not in message


def test_folder_is_bounded_and_keeps_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"12345")
    (folder / "sub" / "b").write_bytes(b"12345")
    (folder / "inside").symlink_to(folder / "a")
    cache = tmp_path / "cache"
    assert fetch(str(folder), field="data", cache=cache, max_bytes=15) == folder
    assert "holds at least 15 B, more than the 14 B" in refusal(str(folder), cache, max_bytes=14)
    (folder / "sub" / "out").symlink_to("/etc")
    assert "its link 'sub/out' leads outside it" in refusal(str(folder), cache)
    (folder / "sub" / "out").unlink()
    (folder / "out").symlink_to("/etc/passwd")
    assert "its link 'out' leads outside it" in refusal(str(folder), cache)
    (folder / "out").unlink()
    (folder / "out").symlink_to("nowhere")
    assert "its link 'out' leads nowhere" in refusal(str(folder), cache)


def test_link_outside_is_refused_in_a_digest_too(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "out").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="leads outside"):
        digest(tmp_path / "m")


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    assert "is a folder without files" in refusal(str(tmp_path / "m"), tmp_path)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://user:p%40ss@host:8/a.csv", "https://host:8/a.csv"),
        ("https://host/a.csv?X-Amz-Signature=abc#token=x", "https://host/a.csv?…"),
        ("https://host/a.csv#token=x", "https://host/a.csv?…"),
        ("s3://KEY:SEC/RET@bucket/a", "s3://bucket/a"),
        ("s3://bucket/a@b.csv", "s3://bucket/a@b.csv"),
        ("https://user:s3cr3t/x@y:9/z", "https://y:9/z"),
        ("https://tok@en@host/a", "https://host/a"),
        ("/home/me@here/a?b", "/home/me@here/a?b"),
    ],
)
def test_redacted_uri_keeps_place_and_drops_credentials(uri: str, shown: str) -> None:
    assert redacted(uri) == shown


# Web servers


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, str]]

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.seen.append((self.command, self.path, self.headers.get("Authorization", "")))  # type: ignore[attr-defined]
        status = re.fullmatch(r"/status/(\d+)", path)
        if status:
            self.send_response(int(status[1]))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/to-file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path in ("/to-good", "/loop"):
            self.send_response(302)
            self.send_header("Location", "/data.csv" if path == "/to-good" else "/loop")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/slow":
            time.sleep(3)
            self.close_connection = True
        elif path in ("/endless", "/cut"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if body:
                self._chunks(3 if path == "/cut" else 10_000)
        elif path == "/presigned" and self.command == "HEAD":
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.server.content)))  # type: ignore[attr-defined]
            if path != "/untagged":
                self.send_header("ETag", self.server.tag)  # type: ignore[attr-defined]
            self.end_headers()
            if body:
                self.wfile.write(self.server.content)  # type: ignore[attr-defined]

    def _chunks(self, count: int) -> None:
        try:
            for _ in range(count):
                self.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        except OSError:
            pass  # the reader has had enough
        self.close_connection = True

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    content = CONTENT
    tag = '"one"'
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def test_web_file_is_read_into_the_cache_once_a_version(server: Server, tmp_path: Path) -> None:
    uri = f"{server.url}/my%20data.csv"
    first = fetch(uri, field="data", cache=tmp_path)
    assert first.read_bytes() == CONTENT
    assert first.name == "my_data.csv"
    assert first.is_relative_to(tmp_path)
    again = fetch(uri, field="data", cache=tmp_path)
    assert again == first
    assert [method for method, *_ in server.seen] == ["HEAD", "GET", "HEAD"]
    server.content, server.tag = b"a,b\n3,4\n", '"two"'
    assert fetch(uri, field="data", cache=tmp_path).read_bytes() == server.content
    assert not list(tmp_path.glob("partial-*"))


def test_web_file_without_a_version_is_never_taken_from_the_cache(server: Server, tmp_path: Path) -> None:
    fetch(f"{server.url}/untagged", field="data", cache=tmp_path)
    server.content = b"a,b\n9,9\n"
    assert fetch(f"{server.url}/untagged", field="data", cache=tmp_path).read_bytes() == server.content


def test_redirects_and_signed_addresses_are_followed(server: Server, tmp_path: Path) -> None:
    for path in ("/to-good", "/presigned?X-Amz-Signature=a%2Fb"):
        assert fetch(server.url + path, field="data", cache=tmp_path).read_bytes() == CONTENT
    assert server.seen[-1][1] == "/presigned?X-Amz-Signature=a%2Fb"  # the signature as it was signed


def test_user_and_password_reach_the_server_and_no_message(server: Server, tmp_path: Path) -> None:
    place = server.url.removeprefix("http://")
    fetch(f"http://me:hunter2@{place}/data.csv", field="data", cache=tmp_path)
    assert server.seen[-1][2].startswith("Basic ")
    message = refusal(f"http://me:hunter2@{place}/status/404?key=hunter2", tmp_path)
    assert "hunter2" not in message
    assert f"data=http://{place}/status/404?…: does not exist (404)" in message


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/status/404", "does not exist (404)"),
        ("/status/403", "may not be read with these credentials (403)"),
        ("/status/401", "may not be read with these credentials (401)"),
        ("/status/503", "its server answers 503. Try again later"),
        ("/status/418", "its server answers 418"),
        ("/to-file", "redirects to something that is not http(s)"),
        ("/loop", "redirects without end"),
        ("/slow", "does not answer in time"),
        ("/cut", "broke off while it was read"),
        ("/endless", "allowed here"),
    ],
)
def test_web_failure_is_told_plainly(path: str, part: str, server: Server, tmp_path: Path) -> None:
    message = refusal(server.url + path, tmp_path, timeout=0.3, max_bytes=200_000)
    assert part in message
    assert not [found for found in tmp_path.rglob("*") if found.is_file()]


def test_announced_size_is_checked_before_reading(server: Server, tmp_path: Path) -> None:
    assert "is 8 B or more, over the 7 B allowed" in refusal(f"{server.url}/data.csv", tmp_path, max_bytes=7)
    assert [method for method, *_ in server.seen] == ["HEAD"]


def test_silent_port_and_unknown_host_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "its host does not answer" in refusal(f"http://127.0.0.1:{port}/x", tmp_path, timeout=2)
    assert "its host is not found" in refusal("http://no-such-host.invalid/x", tmp_path, timeout=5)


@pytest.mark.parametrize(("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs"), ("https", "aiohttp")])
def test_missing_driver_names_the_extra(
    scheme: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = refusal(f"{scheme}://place/x", tmp_path)
    assert f"needs the package {package}" in message
    assert "pip install 'kfp-methods[cloud]'" in message


# Object stores


@pytest.fixture(scope="module")
def bucket() -> Iterator[object]:
    moto_server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    kept = {name: os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")}
    store = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    store.start()
    host, port = store.get_host_and_port()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="lake")
    yield client
    store.stop()
    for name, value in kept.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_object_store_gives_files_and_folders(scheme: str, bucket: object, tmp_path: Path) -> None:
    for key in ("d/data.csv", "model/config.json", "model/sub/w"):
        bucket.put_object(Bucket="lake", Key=key, Body=CONTENT)  # type: ignore[attr-defined]
    bucket.put_object(Bucket="lake", Key="model/", Body=b"")  # type: ignore[attr-defined]
    bucket.put_object(Bucket="lake", Key="model-2/other", Body=b"x")  # type: ignore[attr-defined]
    assert fetch(f"{scheme}://lake/d/data.csv", field="data", cache=tmp_path).read_bytes() == CONTENT
    for uri in (f"{scheme}://lake/model", f"{scheme}://lake/model/"):
        folder = fetch(uri, field="data", cache=tmp_path)
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == {"config.json", "sub/w"}
    assert "is 16 B or more, over the 15 B" in refusal(f"{scheme}://lake/model", tmp_path, max_bytes=15)


@pytest.mark.slow
def test_object_store_failures_are_told_plainly(bucket: object, tmp_path: Path) -> None:
    assert "does not exist" in refusal("s3://lake/nothing.csv", tmp_path)
    assert "does not exist" in refusal("s3://no-such-bucket-here/nothing.csv", tmp_path)


def test_google_storage_is_read_through_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fsspec.filesystem("memory", skip_instance_cache=True)
    store.pipe("lake/model/w", CONTENT)
    monkeypatch.setattr("kfp_methods.artifacts.uris.open_filesystem", lambda *_, **__: store)
    found = fetch("gs://lake/model/w", field="data", cache=tmp_path)
    assert found.read_bytes() == CONTENT
    store.rm("lake", recursive=True)


@pytest.mark.parametrize(("code", "part"), [(404, "does not exist"), (403, "may not be read"), (503, "Try again")])
def test_google_storage_failures_are_told_plainly(code: int, part: str) -> None:
    retry = pytest.importorskip("gcsfs.retry")
    error = OSError("https://host/?token=secret")
    error.__cause__ = retry.HttpError({"code": code, "message": "token=secret"})
    told = ". ".join(explain(error))
    assert part in told
    assert "secret" not in told


@pytest.mark.slow
def test_object_name_that_would_leave_the_cache_is_refused(bucket: object, tmp_path: Path) -> None:
    bucket.put_object(Bucket="lake", Key="evil/../../../escaped", Body=b"x")  # type: ignore[attr-defined]
    bucket.put_object(Bucket="lake", Key="evil/a", Body=b"x")  # type: ignore[attr-defined]
    cache = tmp_path / "a" / "b" / "cache"
    assert "unsafe name, '../../../escaped'" in refusal("s3://lake/evil", cache)
    assert not list(tmp_path.rglob("escaped"))


# MLflow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import mlflow

    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    experiment = mlflow.create_experiment("uris", artifact_location=str(folder / "artifacts"))
    (folder / "data.csv").write_bytes(CONTENT)
    with mlflow.start_run(experiment_id=experiment) as active:
        mlflow.log_artifact(str(folder / "data.csv"))
        mlflow.log_artifact(str(folder / "data.csv"), "model")
        mlflow.log_artifact(str(folder / "data.csv"), "model/deep")
    client = mlflow.MlflowClient()
    client.create_registered_model("net")
    client.create_model_version("net", f"{active.info.artifact_uri}/model", run_id=active.info.run_id)
    client.set_registered_model_alias("net", "best", "1")
    yield active.info.run_id
    mlflow.set_tracking_uri(before)


@pytest.mark.slow
def test_mlflow_uris_give_files_and_folders(run: str, tmp_path: Path) -> None:
    for uri in (f"runs:/{run}/data.csv", f"runs:/{run}/model/data.csv", "models:/net/1/data.csv"):
        found = fetch(uri, field="data", cache=tmp_path, max_bytes=8)
        assert found.read_bytes() == CONTENT
        assert found.is_relative_to(tmp_path)
    for uri in (f"runs:/{run}/model", "models:/net/1", "models:/net@best"):
        folder = fetch(uri, field="data", cache=tmp_path, max_bytes=16 + 400)
        assert (folder / "deep" / "data.csv").read_bytes() == CONTENT


@pytest.mark.slow
def test_mlflow_sizes_are_checked_before_reading(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlflow.artifacts.download_artifacts", lambda **_: pytest.fail("was read"))
    for uri in (f"runs:/{run}/data.csv", f"runs:/{run}/model", "models:/net/1"):
        assert "over the 7 B allowed" in refusal(uri, tmp_path, max_bytes=7)


@pytest.mark.slow
def test_mlflow_failures_are_told_plainly(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    for uri in (
        f"runs:/{run}/no.csv",
        "runs:/0123/x",
        "models:/net/7",
        "models:/none/1",
        "models:/net@worst",
    ):
        assert "does not exist in MLflow" in refusal(uri, tmp_path)
    assert "MLflow refuses it" in refusal("models:/net/Staging", tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri("http://me:hunter2@127.0.0.1:9")
    try:
        message = refusal("runs:/0123/x", tmp_path)
    finally:
        mlflow.set_tracking_uri(before)
    assert "the MLflow server does not answer" in message
    assert "hunter2" not in message
