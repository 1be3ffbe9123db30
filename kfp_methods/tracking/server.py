"""Whether MLflow can be where MLFLOW_TRACKING_URI says: the URI's form, and whether anybody listens there."""

from __future__ import annotations

import difflib
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

from kfp_methods.errors import InputError, Problem
from kfp_methods.tracking.secrets import Scrubber

VARIABLE = "MLFLOW_TRACKING_URI"
_WEB = ("http", "https")
_DATABASES = ("postgresql", "mysql", "sqlite", "mssql")
_DATABRICKS = ("databricks", "databricks-uc", "uc")
_GIVE = "Give http(s)://HOST:PORT of a server, or sqlite:////PATH/mlflow.db"
_CONNECT_SECONDS = 2.0

# What a failing request comes down to, the more particular first.
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "the connection is refused"),
    (socket.gaierror, "its host is not found"),
    (ssl.SSLCertVerificationError, "its certificate is not trusted"),
    (ssl.SSLError, "it does not speak TLS as expected"),
    (ConnectionError, "the connection broke off"),
    (TimeoutError, "no answer in time"),
)


def check_uri(uri: str, environ: Mapping[str, str]) -> None:
    """Nothing is asked of the network.

    Raises:
        InputError: MLflow cannot use such a URI; its credentials are left out of the text.
    """
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise _bad(uri, "is not a well-formed URI", _GIVE) from None
    scheme = parts.scheme.partition("+")[0]
    if scheme in _WEB and (not parts.hostname or re.search(r"\s", uri)):
        raise _bad(uri, "names no host", f"Write {scheme}://HOST:PORT")
    if scheme == "sqlite" and not uri.partition(":")[2].startswith("///"):
        raise _bad(uri, "names no database file", "Write sqlite:////PATH/mlflow.db")
    if uri in _DATABRICKS or scheme in (*_WEB, *_DATABASES, *_DATABRICKS):
        return
    if scheme in ("", "file"):
        _check_folder(uri, environ)
    elif scheme not in _plugins():
        raise _bad(uri, f"MLflow knows no {scheme}:", _correction(uri, parts))


def connect(uri: str) -> None:
    """Opens a connection to a server and closes it, so that one that is away is known before MLflow is asked.

    What is behind a proxy, and what is no server, is not tried. Raises OSError: nobody answers there.
    """
    parts = urlsplit(uri)
    host = parts.hostname
    if parts.scheme not in _WEB or not host or _by_proxy(parts.scheme, host):
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()


def network_cause(error: BaseException) -> str:
    """In plain words what in the network made a request fail, or "" when it was something else."""
    for cause in _chain(error):
        if "Timeout" in type(cause).__name__:  # those of requests, urllib3 and botocore are no TimeoutError
            return "no answer in time"
        if words := next((words for kind, words in _CAUSES if isinstance(cause, kind)), ""):
            return words
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was made from, innermost first: libraries wrap, chain and keep in `args` and `reason`."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if any(current is known for known in found):
            continue
        found.append(current)
        inner = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
        waiting += [each for each in inner if isinstance(each, BaseException)]
    return reversed(found)


def _plugins() -> set[str]:
    """The schemes that installed packages add to MLflow."""
    from importlib import metadata

    return {found.name for found in metadata.entry_points(group="mlflow.tracking_store")}


def _check_folder(uri: str, environ: Mapping[str, str]) -> None:
    """MLflow 3 refuses to keep runs in plain files unless it is told to."""
    if re.fullmatch(r"[\w.-]+:\d+", uri):
        raise _bad(uri, "has no scheme", f"Write http://{uri}")
    if environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in ("true", "1"):
        raise _bad(uri, "is a folder, and MLflow keeps runs in plain files no longer", _GIVE)


def _correction(uri: str, parts: SplitResult) -> str:
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", uri):
        return f"Write http://{uri}"
    close = difflib.get_close_matches(parts.scheme, (*_WEB, *_DATABASES), n=1)
    return f"Did you mean {close[0]}:{_shown(uri).partition(':')[2]}?" if close else _GIVE


def _by_proxy(scheme: str, host: str) -> bool:
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    return bool(scheme in proxies or "all" in proxies) and not proxy_bypass(host)


def _bad(uri: str, problem: str, remedy: str) -> InputError:
    return InputError(Problem(VARIABLE, _shown(uri), problem, remedy))


def _shown(uri: str) -> str:
    return Scrubber({VARIABLE: uri})(uri)
