"""Repeats what may yet succeed: without bound while the method runs, until a deadline once it has ended."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kfp_methods.tracking.server import network_cause

T = TypeVar("T")

_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}
_PERMANENT_ERRNO = {errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_CLOUD_PACKAGES = ("botocore", "boto3", "google", "azure", "urllib3")
# Two pods that insert the same row at one moment: MLflow fails one of them, whose next try finds the row.
_INSERT_RACE = ("UNIQUE constraint failed", "duplicate key value", "Duplicate entry")
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_LEAST_SECONDS = 2.0


class GaveUpError(Exception):
    """What could not be done, and the last reason; its text is for a reader."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(f"{what} ({explain(cause)})")
        self.what, self.cause = what, cause


class Patience:
    """One server's patience: used by one thread, told of the method's end by another."""

    def __init__(self) -> None:
        self._deadline = math.inf
        self._wait = math.inf
        self._failing_since = math.inf
        self._method_ended = threading.Event()
        self._lost: BaseException | None = None

    def end_by(self, deadline: float, wait: float) -> None:
        """The method has ended: no repetition goes beyond `deadline` (of `time.monotonic`).

        A server that has not answered for `wait` seconds, those before the end included, is given up.
        """
        self._deadline, self._wait = deadline, wait
        self._method_ended.set()

    def extend(self, seconds: float) -> None:
        """Grants a last step time that the steps before it were not given."""
        self._deadline = max(time.monotonic(), self._limit) + seconds
        self._failing_since = math.inf
        self._lost = None

    def attempt(self, what: str, do: Callable[[], T]) -> T:
        """`do()`, repeated while its failure may pass.

        Raises:
            GaveUpError: it failed for good, or time ran out.
        """
        if self._lost is not None:
            raise GaveUpError(what, self._lost)
        delay = _FIRST_DELAY
        while True:
            began = time.monotonic()
            try:
                result = self._bounded(do)
            except Exception as error:
                self._wait_or_give_up(what, error, delay, began)
                delay = min(2 * delay, _LONGEST_DELAY)
            else:
                self._failing_since = math.inf
                return result

    @property
    def _limit(self) -> float:
        return min(self._deadline, self._failing_since + self._wait)

    def _wait_or_give_up(self, what: str, error: Exception, delay: float, began: float) -> None:
        if not is_transient(error):
            raise GaveUpError(what, error) from error
        self._failing_since = min(self._failing_since, began)
        if time.monotonic() + delay > self._limit:
            self._lost = error
            raise GaveUpError(what, error) from error
        if self._method_ended.is_set():
            time.sleep(delay)
        else:
            self._method_ended.wait(delay)

    def _bounded(self, do: Callable[[], T]) -> T:
        """Runs `do` in a thread of its own once there is a deadline: some clients hang for minutes."""
        if not self._method_ended.is_set():
            return do()
        result: Future[T] = Future()

        def work() -> None:
            try:
                result.set_result(do())
            except BaseException as error:  # handed to the waiting thread
                result.set_exception(error)

        threading.Thread(target=work, daemon=True, name="mlflow-request").start()
        return result.result(timeout=max(_LEAST_SECONDS, self._limit - time.monotonic()))


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if type(error).__name__.startswith(("Unsupported", "InvalidUrl")):  # MLflow gives them status 500
        return False
    if any(words in str(error) for words in _INSERT_RACE):
        return True
    if status := _http_status(error):
        return status in _TRANSIENT_STATUS and "out-of-date database schema" not in str(error)
    if isinstance(error, ValueError):  # includes requests' malformed URLs
        return False
    if isinstance(error, OSError):
        return error.errno not in _PERMANENT_ERRNO
    package = type(error).__module__.partition(".")[0]
    return package in _CLOUD_PACKAGES or (package == "sqlalchemy" and "Operational" in type(error).__name__)


def explain(error: BaseException, limit: int = 300) -> str:
    """An exception in one line: what in the network was the cause, else its own text."""
    if words := network_cause(error):
        return words
    text = " ".join(str(error).split()) or "no answer in time"
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return text if type(error).__name__ in ("MlflowException", "RestException") else f"{type(error).__name__}: {text}"


def remedy(error: BaseException) -> str:
    """What the reader can do about it."""
    status = _http_status(error)
    if status in (401, 403):
        return "Check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if status == 404:
        return "Check MLFLOW_TRACKING_URI, MLFLOW_RUN_ID and MLFLOW_WORKSPACE"
    if isinstance(error, OSError) and error.errno in _PERMANENT_ERRNO:
        return "Give MLFLOW_TRACKING_URI and the artifact folder a place that this process may write to"
    if "certificate" in network_cause(error):
        return "Name the file with its authority's certificate in MLFLOW_TRACKING_SERVER_CERT_PATH"
    if is_transient(error):
        return "Check that the MLflow server at MLFLOW_TRACKING_URI and its artifact store run and can be reached"
    return "See the MLflow server's log"


def _http_status(error: BaseException) -> int:
    """The HTTP status an exception of MLflow or requests stands for, or 0."""
    by_code = getattr(error, "get_http_status_code", None)
    if by_code is not None:
        return int(by_code())
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)
