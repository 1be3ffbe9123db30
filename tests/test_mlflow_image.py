"""The tracking server refuses unsafe settings, and serves authenticated clients from PostgreSQL."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import requests

ENTRYPOINT = Path(__file__).resolve().parents[1] / "images" / "mlflow" / "entrypoint.py"
HARD_TO_QUOTE = "a%s:b@c/d?e#f g%25h+i&j"
"""A database password of characters that mean something in a URI or in an INI file."""

GOOD = {
    "DATABASE_HOST": "127.0.0.1",
    "DATABASE_PORT": "5432",
    "DATABASE_NAME": "mlflow",
    "DATABASE_USER": "mlflow",
    "DATABASE_PASSWORD": HARD_TO_QUOTE,
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "c0a1f7b34d5e69281706",
    "MLFLOW_ADMIN_USERNAME": "admin",
    "MLFLOW_ADMIN_PASSWORD": "9f8e7d6c5b4a39281706",
    "MLFLOW_PIPELINE_USERNAME": "pipelines",
    "MLFLOW_PIPELINE_PASSWORD": "0a1b2c3d4e5f60718293",
    "MLFLOW_ARTIFACTS_DESTINATION": "/artifacts",
}
SECRETS = tuple(name for name in GOOD if name.endswith(("PASSWORD", "SECRET_KEY")))


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mlflow_entrypoint", ENTRYPOINT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# --- settings ---


@pytest.mark.parametrize("name", [name for name in GOOD if name != "DATABASE_PORT"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_setting_is_named(entrypoint: ModuleType, name: str, value: str | None) -> None:
    environment = {key: text for key, text in GOOD.items() if key != name}
    if value is not None:
        environment[name] = value
    with pytest.raises(entrypoint.ConfigurationError) as error:
        entrypoint.Settings.from_environment(environment)
    assert str(error.value).splitlines()[0].startswith(f"{name} is not set")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "value", ["password", "password1234", "Tr0ub4dor&3", "my-Password-is-long-enough", "aaaaaaaaaaaaaaaaaaaa"]
)
def test_a_weak_secret_is_refused_and_not_repeated(entrypoint: ModuleType, name: str, value: str) -> None:
    with pytest.raises(entrypoint.ConfigurationError) as error:
        entrypoint.Settings.from_environment(GOOD | {name: value})
    assert name in str(error.value)
    assert value not in str(error.value)


def test_every_problem_is_told_at_once(entrypoint: ModuleType) -> None:
    with pytest.raises(entrypoint.ConfigurationError) as error:
        entrypoint.Settings.from_environment({"DATABASE_PORT": "high", "DATABASE_PASSWORD": "short"})
    told = [line.split()[0] for line in str(error.value).splitlines()]
    assert sorted(told) == sorted(GOOD)


def test_pipelines_may_not_be_the_administrator(entrypoint: ModuleType) -> None:
    with pytest.raises(entrypoint.ConfigurationError, match="own user"):
        entrypoint.Settings.from_environment(GOOD | {"MLFLOW_PIPELINE_USERNAME": "admin"})


def test_the_process_refuses_with_exit_code_2_and_starts_nothing() -> None:
    refused = subprocess.run(
        [sys.executable, ENTRYPOINT],
        env={"PATH": os.environ["PATH"], **GOOD, "MLFLOW_ADMIN_PASSWORD": "password"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("Refusing to start:\nMLFLOW_ADMIN_PASSWORD ")
    assert "Traceback" not in refused.stderr


def test_the_database_address_survives_any_password(entrypoint: ModuleType, tmp_path: Path) -> None:
    import configparser

    from sqlalchemy.engine import make_url

    config = tmp_path / "run" / "basic_auth.ini"
    settings = entrypoint.Settings.from_environment(GOOD | {"MLFLOW_AUTH_CONFIG_PATH": str(config)})
    entrypoint.write_auth_config(settings)
    parser = configparser.ConfigParser()
    parser.read(config)
    url = make_url(parser["mlflow"]["database_uri"])
    assert (url.username, url.password, url.host, url.port, url.database) == (
        "mlflow",
        HARD_TO_QUOTE,
        "127.0.0.1",
        5432,
        "mlflow",
    )
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_the_server_does_not_inherit_the_users_passwords(entrypoint: ModuleType) -> None:
    settings = entrypoint.Settings.from_environment(GOOD)
    inherited = entrypoint.server_environment(settings, GOOD | {"HOME": "/tmp"})
    assert inherited["HOME"] == "/tmp"
    assert inherited["MLFLOW_BACKEND_STORE_URI"] == settings.database_uri
    assert GOOD["MLFLOW_ADMIN_PASSWORD"] not in inherited.values()
    assert GOOD["MLFLOW_PIPELINE_PASSWORD"] not in inherited.values()


# --- a real server on a real PostgreSQL ---


@dataclass(frozen=True)
class Server:
    url: str
    process: int
    environment: dict[str, str]
    artifacts: Path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def postgres_binaries() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    found = versions[-1] if versions else shutil.which("initdb")
    return Path(found).parent if found else None


@pytest.fixture(scope="module")
def database_port() -> Iterator[int]:
    """A PostgreSQL server of its own, with scram-sha-256 for every connection, as in the manifests."""
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    folder, port = Path(tempfile.mkdtemp(prefix="kfp-methods-postgres-")), free_port()
    password = folder / "password"
    password.write_text(HARD_TO_QUOTE)
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        account = pwd.getpwnam("postgres")
        for path in (folder, password):
            os.chown(path, account.pw_uid, account.pw_gid)
        as_user = ["runuser", "-u", "postgres", "--"]
    data = folder / "data"
    initdb: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "mlflow",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
    ]
    control: list[str | Path] = [*as_user, binaries / "pg_ctl", "-D", data, "-w"]
    try:
        subprocess.run([*as_user, *initdb, "--no-sync"], check=True, capture_output=True, cwd="/")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        subprocess.run(
            [*control, "-o", options, "-l", folder / "log", "start"],
            check=True,
            cwd="/",
            stdout=subprocess.DEVNULL,
        )
        subprocess.run(
            [binaries / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "mlflow", "mlflow"],
            check=True,
            env={"PGPASSWORD": HARD_TO_QUOTE},
        )
        yield port
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(database_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The entrypoint as the container runs it, with the manifests' server settings."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    environment = {
        **GOOD,
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "DATABASE_PORT": str(database_port),
        "MLFLOW_ARTIFACTS_DESTINATION": str(artifacts),
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "run" / "basic_auth.ini"),
        "MLFLOW_SERVER_ALLOWED_HOSTS": "mlflow.mlflow.svc.cluster.local:5000,localhost:*,127.0.0.1:*",
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": "http://localhost:5000",
        "MLFLOW_SERVER_X_FRAME_OPTIONS": "DENY",
        "MLFLOW_WORKERS": "1",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, ENTRYPOINT, "--host", "127.0.0.1", "--port", str(port)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
        )
        try:
            _wait(process, url, folder / "log")
            yield Server(url, process.pid, environment, artifacts)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(240):
        assert process.poll() is None, log.read_text()
        try:
            if requests.get(f"{url}/health", timeout=5).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.5)
    pytest.fail(f"no server at {url}:\n{log.read_text()}")


def search(server: Server, user: tuple[str, str] | None, **headers: str) -> requests.Response:
    return requests.post(
        f"{server.url}/api/2.0/mlflow/experiments/search",
        json={"max_results": 1},
        auth=user,
        headers=headers,
        timeout=30,
    )


PIPELINES = (GOOD["MLFLOW_PIPELINE_USERNAME"], GOOD["MLFLOW_PIPELINE_PASSWORD"])
ADMIN = (GOOD["MLFLOW_ADMIN_USERNAME"], GOOD["MLFLOW_ADMIN_PASSWORD"])


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("user", [None, ("admin", "password1234"), ("admin", "admin"), ("pipelines", "")])
def test_without_the_right_password_nothing_is_served(server: Server, user: tuple[str, str] | None) -> None:
    assert search(server, user).status_code == 401


@pytest.mark.slow
@pytest.mark.postgres
def test_a_client_logs_a_run_and_an_artifact_with_no_key_to_the_store(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", PIPELINES[0])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PIPELINES[1])
    client = mlflow.MlflowClient(tracking_uri=server.url)
    experiment = client.create_experiment("bmia")
    run = client.create_run(experiment).info
    client.log_metric(run.run_id, "auc", 0.75)
    report = tmp_path / "report.html"
    report.write_bytes(os.urandom(1 << 20))
    client.log_artifact(run.run_id, str(report))
    client.create_registered_model("bmia")

    assert run.artifact_uri.startswith("mlflow-artifacts:/")
    assert client.get_run(run.run_id).data.metrics == {"auc": 0.75}
    (stored,) = server.artifacts.rglob("report.html")
    assert stored.read_bytes() == report.read_bytes()
    fetched = client.download_artifacts(run.run_id, "report.html", str(tmp_path / "fetched"))
    assert Path(fetched).read_bytes() == report.read_bytes()


@pytest.mark.slow
@pytest.mark.postgres
def test_pipelines_cannot_administer(server: Server) -> None:
    new = {"username": "another", "password": "7f6e5d4c3b2a19081726"}
    address = f"{server.url}/api/2.0/mlflow/users/create"
    assert requests.post(address, json=new, auth=PIPELINES, timeout=30).status_code == 403
    assert requests.post(address, json=new, auth=ADMIN, timeout=30).status_code == 200


@pytest.mark.slow
@pytest.mark.postgres
def test_other_hosts_and_origins_are_refused(server: Server) -> None:
    assert search(server, PIPELINES, Host="mlflow.mlflow.svc.cluster.local:5000").status_code == 200
    assert search(server, PIPELINES, Host="elsewhere.example").status_code == 403
    assert search(server, PIPELINES, Origin="https://elsewhere.example").status_code == 403
    health = requests.get(f"{server.url}/health", headers={"Host": "10.1.2.3:5000"}, timeout=30)
    assert health.status_code == 200  # how the kubelet's probes ask


@pytest.mark.slow
@pytest.mark.postgres
def test_a_new_secret_replaces_the_password(server: Server, entrypoint: ModuleType) -> None:
    changed = "5e4d3c2b1a09f8e7d6c5"
    probe = (
        "import importlib.util, os, sys\n"
        f"spec = importlib.util.spec_from_file_location('entrypoint', {str(ENTRYPOINT)!r})\n"
        "module = sys.modules['entrypoint'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module.reconcile_users(module.Settings.from_environment(os.environ))\n"
    )
    for password, told in (
        (changed, "now the secret's."),
        (PIPELINES[1], "now the secret's."),
        (PIPELINES[1], ""),
    ):
        environment = server.environment | {"MLFLOW_PIPELINE_PASSWORD": password}
        reconciled = subprocess.run(
            [sys.executable, "-c", probe], env=environment, check=True, capture_output=True, text=True
        )
        assert reconciled.stdout.strip().endswith(told)
        assert bool(told) is bool(reconciled.stdout.strip())
        assert search(server, (PIPELINES[0], password)).status_code == 200


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_no_password_shows_in_the_process_list(server: Server) -> None:
    arguments = Path(f"/proc/{server.process}/cmdline").read_text()
    assert "basic-auth" in arguments
    assert not [name for name in SECRETS if GOOD[name] in arguments]
    environment = Path(f"/proc/{server.process}/environ").read_text()
    assert ADMIN[1] not in environment
    assert PIPELINES[1] not in environment
