"""fsspec's drivers for web servers and object stores, with bounds set and failures in plain words."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import fsspec

_PACKAGES = {
    "s3": "s3fs",
    "minio": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "http": "aiohttp",
    "https": "aiohttp",
}

# In order: the first whose names meet the classes of the error or of its causes.
_REASONS: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"NonHttpUrlClientError", "NonHttpUrlRedirectClientError", "InvalidUrlRedirectClientError"}),
        "redirects to something that is not http(s)",
        "Give the file's own address",
    ),
    (frozenset({"TooManyRedirects"}), "redirects without end", "Give the file's own address"),
    (
        frozenset({"ClientConnectorDNSError", "gaierror", "EndpointConnectionError"}),
        "its host is not found or does not answer",
        "Check the host's name, and that this machine or pod may reach it",
    ),
    (
        frozenset({"ClientSSLError", "SSLError", "SSLCertVerificationError"}),
        "its host's certificate is not trusted",
        "Add the host's CA to this machine's certificates (SSL_CERT_FILE)",
    ),
    (
        frozenset({"TimeoutError", "ConnectTimeoutError", "ReadTimeoutError"}),
        "does not answer in time",
        "Try again, or copy the file nearer",
    ),
    (
        frozenset({"NoCredentialsError", "PartialCredentialsError", "RefreshError", "DefaultCredentialsError"}),
        "needs credentials, and there are none",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS",
    ),
    (
        frozenset({"ClientPayloadError", "IncompleteRead", "ServerDisconnectedError", "ConnectionResetError"}),
        "broke off while it was read",
        "Try again",
    ),
    (
        frozenset({"ClientConnectorError", "ConnectionRefusedError", "ConnectionError"}),
        "its host does not answer",
        "Check the host and port, and that this machine or pod may reach it",
    ),
    (
        frozenset({"InvalidURL", "InvalidUrlClientError", "ParamValidationError"}),
        "is not a well-formed URI",
        "Check its spelling",
    ),
    (
        frozenset({"PermissionError"}),
        "may not be read with these credentials (403)",
        "Check the credentials, or that a signed address has not expired",
    ),
    (
        frozenset({"FileNotFoundError", "NoSuchBucket"}),
        "does not exist (404)",
        "Check the address and its case",
    ),
)


class NoDriverError(Exception):
    """The optional package that reads a scheme is not installed; the text is its name."""


def open_filesystem(scheme: str, timeout: float, *, encoded: bool) -> Any:
    """fsspec's filesystem for a scheme, waiting `timeout` seconds for a connection or for bytes.

    `encoded`: is a web address sent as it is written (a signature is made over its very characters)?

    Raises:
        NoDriverError: when the driver's package is not installed.
    """
    try:
        import_module(_PACKAGES[scheme])
        if scheme in ("http", "https"):
            import aiohttp

            limit = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
            # trust_env: a cluster's proxy. identity: the announced length is then the file's.
            return fsspec.filesystem(
                scheme,
                skip_instance_cache=True,
                encoded=encoded,
                client_kwargs={"timeout": limit, "trust_env": True},
                headers={"Accept-Encoding": "identity"},
            )
        if scheme in ("s3", "minio"):
            import botocore.session

            return fsspec.filesystem(
                "s3",
                skip_instance_cache=True,
                anon=botocore.session.Session().get_credentials() is None,
                endpoint_url=os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("MLFLOW_S3_ENDPOINT_URL"),
                config_kwargs={
                    "connect_timeout": timeout,
                    "read_timeout": timeout,
                    "retries": {"max_attempts": 2},
                },
            )
        return fsspec.filesystem("gs", skip_instance_cache=True, requests_timeout=timeout)
    except ImportError:
        raise NoDriverError(_PACKAGES[scheme]) from None


def bounded_callback(max_bytes: int, error: Callable[[int], Exception]) -> Any:
    """An fsspec callback that raises `error(bytes so far)` as soon as more than `max_bytes` have come."""

    class Bound(fsspec.Callback):
        received = 0

        def relative_update(self, inc: int = 1) -> None:
            self.received += inc
            if self.received > max_bytes:
                raise error(self.received)

    return Bound()


def explain(error: BaseException) -> tuple[str, str]:
    """What went wrong and what to do, from the classes and status codes of an error and its causes.

    Never from their texts: these may hold a signed address or a key.
    """
    chain = list(_causes(error))
    status = next((code for code in map(_status, chain) if code is not None), None)
    if status is not None:
        return _by_status(status)
    names = {kind.__name__ for cause in chain for kind in type(cause).__mro__}
    if any(isinstance(cause, ssl.SSLError) for cause in chain):
        names.add("SSLError")
    for known, problem, remedy in _REASONS:
        if known & names:
            return problem, remedy
    return f"cannot be read ({type(error).__name__})", "Check the address and the credentials"


def _by_status(status: int) -> tuple[str, str]:
    if status in (404, 410):
        return f"does not exist ({status})", "Check the address and its case"
    if status in (401, 403):
        return (
            f"may not be read with these credentials ({status})",
            "Check the credentials, or that a signed address has not expired",
        )
    if status == 429 or status >= 500:
        return f"its server answers {status}", "Try again later"
    return f"its server answers {status}", "Check the address"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    """The HTTP status in an error of aiohttp, botocore or gcsfs, if it has one."""
    names = {kind.__name__ for kind in type(error).__mro__}
    response = getattr(error, "response", None)
    code: object = None
    if "ClientResponseError" in names:
        code = getattr(error, "status", None)
    elif "HttpError" in names:
        code = getattr(error, "code", None)
    elif isinstance(response, dict):
        code = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return code if isinstance(code, int) and 400 <= code < 600 else None
