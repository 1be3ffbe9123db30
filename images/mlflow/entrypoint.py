"""Starts the MLflow tracking server with authentication, or refuses to start.

The environment is the whole configuration (`Settings`). Passwords come from a Kubernetes secret and are
the only source of truth: each start makes the two users' passwords what the secret says, so rotating one
is a new secret and a restart. There is no default for any of them.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

MINIMUM_LENGTH = 16
"""Characters; MLflow itself demands 12."""

COMMON_PASSWORDS = ("password", "changeme", "secret", "mlflow", "qwerty")
"""A password that contains one of these was typed by somebody, not generated."""


class ConfigurationError(ValueError):
    """The environment does not describe a server that is safe to start; the text has one line a problem."""


@dataclass(frozen=True)
class User:
    name: str
    password: str
    is_admin: bool


@dataclass(frozen=True)
class Settings:
    """What the container is told through its environment.

    `database_uri` holds both the tracking store and the users: MLflow keeps the migrations of the two apart
    (`alembic_version` and `alembic_version_auth`), so that one database is enough.
    """

    database_uri: str
    flask_secret_key: str
    users: tuple[User, ...]
    config_path: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read and check every variable.

        Raises:
            ConfigurationError: naming every variable that is missing or too weak, never its value.
        """
        problems: list[str] = []

        def required(name: str, remedy: str = "Set it in the Deployment.") -> str:
            value = environment.get(name, "").strip()
            if not value:
                problems.append(f"{name} is not set. {remedy}")
            return value

        def secret(name: str) -> str:
            value = required(name, "Set it from the secret that make-secrets.sh generates.")
            if value and (fault := weakness(value)):
                problems.append(f"{name} {fault}. Generate one: openssl rand -hex 24")
            return value

        database_password = secret("DATABASE_PASSWORD")
        users = (
            User(required("MLFLOW_ADMIN_USERNAME"), secret("MLFLOW_ADMIN_PASSWORD"), is_admin=True),
            User(required("MLFLOW_PIPELINE_USERNAME"), secret("MLFLOW_PIPELINE_PASSWORD"), is_admin=False),
        )
        if users[0].name and users[0].name == users[1].name:
            problems.append("MLFLOW_PIPELINE_USERNAME is the administrator's. Give pipelines their own user.")
        required("MLFLOW_ARTIFACTS_DESTINATION", "Set a directory or s3://BUCKET/PREFIX.")
        port = environment.get("DATABASE_PORT", "5432")
        if not port.isdecimal():
            problems.append("DATABASE_PORT is not a number. PostgreSQL listens on 5432.")
        database = (required("DATABASE_HOST"), port, required("DATABASE_NAME"), required("DATABASE_USER"))
        flask_secret_key = secret("MLFLOW_FLASK_SERVER_SECRET_KEY")
        if problems:
            raise ConfigurationError("\n".join(problems))
        return cls(
            database_uri=_database_uri(*database, password=database_password),
            flask_secret_key=flask_secret_key,
            users=users,
            config_path=Path(environment.get("MLFLOW_AUTH_CONFIG_PATH", "/run/mlflow/basic_auth.ini")),
        )


def weakness(secret: str) -> str | None:
    """Why `secret` is no secret, or None."""
    if len(secret) < MINIMUM_LENGTH:
        return f"is shorter than {MINIMUM_LENGTH} characters"
    if any(word in secret.lower() for word in COMMON_PASSWORDS):
        return "contains a word that everybody tries first"
    if len(set(secret)) < MINIMUM_LENGTH // 2:
        return "repeats a few characters"
    return None


def _database_uri(host: str, port: str, name: str, user: str, *, password: str) -> str:
    """The SQLAlchemy URI, every part escaped."""
    from sqlalchemy.engine import URL

    url = URL.create("postgresql+psycopg2", user, password, host, int(port), name)
    return url.render_as_string(hide_password=False)


def write_auth_config(settings: Settings) -> None:
    """Write MLflow's basic_auth.ini, readable by this user only; it holds the database's password.

    Users may read each other's experiments (`default_permission`) and change only their own. Verified
    passwords are remembered for a minute, because hashing one takes longer than most requests.
    """
    parser = configparser.ConfigParser()
    parser["mlflow"] = {
        "default_permission": "READ",
        "database_uri": settings.database_uri.replace("%", "%%"),
        "admin_username": settings.users[0].name,
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
        "auth_cache_ttl_seconds": "60",
    }
    settings.config_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(settings.config_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        parser.write(file)


def reconcile_users(settings: Settings) -> None:
    """Make each user exist with the secret's password and the right role."""
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore()
    store.init_db(settings.database_uri)
    for user in settings.users:
        _reconcile(store, user)


def _reconcile(store: SqlAlchemyStore, user: User) -> None:
    from mlflow.exceptions import MlflowException

    if not store.has_user(user.name):
        try:
            store.create_user(user.name, user.password, is_admin=user.is_admin)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another replica, starting now, was first
                raise
    if not store.authenticate_user(user.name, user.password):
        store.update_user(user.name, password=user.password)
        print(f"The password of {user.name} is now the secret's.", flush=True)
    if store.get_user(user.name).is_admin != user.is_admin:
        store.update_user(user.name, is_admin=user.is_admin)


def server_environment(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """The server's own environment: the database by variable, because arguments show in process lists."""
    ours = ("DATABASE_", "MLFLOW_ADMIN_", "MLFLOW_PIPELINE_")
    kept = {name: value for name, value in environment.items() if not name.startswith(ours)}
    return kept | {
        "MLFLOW_AUTH_CONFIG_PATH": str(settings.config_path),
        "MLFLOW_BACKEND_STORE_URI": settings.database_uri,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": settings.flask_secret_key,
        "MLFLOW_SERVE_ARTIFACTS": "true",
    }


def main() -> NoReturn:
    """Check, prepare, and become `mlflow server`; exit code 2 when the configuration will not do."""
    try:
        settings = Settings.from_environment(os.environ)
    except ConfigurationError as error:
        print(f"Refusing to start:\n{error}", file=sys.stderr, flush=True)
        sys.exit(2)
    write_auth_config(settings)
    # MLflow reads both while it is imported.
    os.environ["MLFLOW_AUTH_CONFIG_PATH"] = str(settings.config_path)
    os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = settings.flask_secret_key
    reconcile_users(settings)
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", *sys.argv[1:]]
    os.execve(sys.executable, command, server_environment(settings, os.environ))  # noqa: S606 (no shell is the point)


if __name__ == "__main__":
    main()
