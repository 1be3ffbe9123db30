"""A thread that follows a running method into MLflow and never holds it up."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kfp_methods.tracking import system
from kfp_methods.tracking.outcome import Outcome, Tracked
from kfp_methods.tracking.patience import GaveUpError, Patience, explain, remedy
from kfp_methods.tracking.secrets import Scrubber
from kfp_methods.tracking.settings import Settings

if TYPE_CHECKING:
    from kfp_methods.context import CurvePoint
    from kfp_methods.tracking.session import Session

_FLUSH_SECONDS = 2.0
_BACKOFF_SECONDS = 10.0
_FIRST_ANSWER_SECONDS = 5.0  # for a server that has not answered yet, where nobody asked for patience
_CLOSING_SHARE = 0.2  # of the timeout, kept for ending the run whatever the uploads did


class Tracker:
    """Follows one execution of a method; every method of it returns without raising, whatever MLflow does.

    experiment: the one that the user asked for, or ""; see `Settings.read`.
    timeout: the most seconds that `finish` takes; it may be lowered until then.

    Raises InputError when MLflow cannot use MLFLOW_TRACKING_URI.
    """

    def __init__(
        self,
        *,
        method: str,
        experiment: str,
        version: str,
        environ: Mapping[str, str] = os.environ,
        on_note: Callable[[str], None],
        timeout: float = 60,
        subject: str = "",
    ) -> None:
        self.timeout = timeout
        self._settings = Settings.read(
            method=method, version=version, experiment=experiment, environ=environ, subject=subject
        )
        self._scrub = Scrubber(environ)
        self._on_note = on_note
        self._inbox: queue.SimpleQueue[CurvePoint | Outcome] = queue.SimpleQueue()
        self._patience = Patience()
        self._session: Session | None = None
        self._problems: list[GaveUpError] = []
        self._started_ms = self._ended_ms = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._tracked: Tracked | None = None

    def start(self) -> None:
        """Begins: MLflow is imported and the run opened while the method runs."""
        if self._thread is None:
            self._started_ms = time.time_ns() // 1_000_000
            self._thread = threading.Thread(target=self._follow, daemon=True, name="mlflow-tracker")
            self._thread.start()

    def point(self, point: CurvePoint) -> None:
        """Takes a point of a curve."""
        self._inbox.put(point)

    def finish(self, outcome: Outcome) -> Tracked:
        """Writes the outcome and says where it is; what could not be written is in `error` and in one note."""
        if self._tracked is not None:
            return self._tracked
        self.start()
        now = time.monotonic()
        self._ended_ms = time.time_ns() // 1_000_000
        answered = self._session is not None or self._settings.patient
        wait = self.timeout if answered else min(self.timeout, _FIRST_ANSWER_SECONDS)
        self._patience.end_by(now + (1 - _CLOSING_SHARE) * self.timeout, wait)
        self._inbox.put(outcome)
        in_time = self._done.wait(self.timeout)
        self._tracked = self._result(in_time)
        return self._tracked

    def _follow(self) -> None:
        from kfp_methods.tracking.session import Session

        system.prime()
        try:
            self._session = Session.open(self._settings, self._patience, self._scrub, self._started_ms)
            outcome = self._stream(self._session)
            self._session.record(outcome)
            self._patience.extend(_CLOSING_SHARE * self.timeout)
            self._session.close(outcome, self._ended_ms)
        except GaveUpError as given_up:
            self._problems.append(given_up)
        except Exception as error:  # a fault of ours must not become the method's
            self._problems.append(GaveUpError("record the run", error))
        finally:
            self._done.set()

    def _stream(self, session: Session) -> Outcome:
        """Sends points as they come, in batches, until the outcome comes."""
        next_flush = time.monotonic()
        points: list[CurvePoint] = []
        flushes = 0
        while True:
            try:
                item = self._inbox.get(timeout=max(0.0, next_flush - time.monotonic()))
            except queue.Empty:
                session.add(points)
                points = []
                wait = _FLUSH_SECONDS if session.flush() else _BACKOFF_SECONDS
                next_flush = time.monotonic() + wait
                if flushes == 1:  # the method is no very short one, and there is a moment
                    session.warm_up()
                flushes += 1
                continue
            if isinstance(item, Outcome):
                session.add(points)
                return item
            points.append(item)

    def _result(self, in_time: bool) -> Tracked:
        session = self._session
        problems = self._problems + (session.failures if session else [])
        if not in_time and not problems:
            problems = [GaveUpError("write all of the run", TimeoutError(f"no answer within {self.timeout:g} s"))]
        place = session.place if session else None
        for note in session.notes if session else []:
            self._say(f"MLflow: {note}")
        error = self._describe(problems) if problems else ""
        if error:
            self._say(error)
        run, experiment = (place.run_id, place.experiment_id) if place else ("", "")
        url = self._settings.run_url(experiment, run) if place else ""
        return Tracked(run, experiment, self._scrub(url), error)

    def _describe(self, problems: list[GaveUpError]) -> str:
        """One line: what is missing, why, and what to do."""
        cause = problems[0].cause
        if self._session is None:
            missing = "cannot be used, so this run is not tracked"
        else:
            what = ", ".join(dict.fromkeys(problem.what for problem in problems))
            missing = f"did not take everything; could not {what}"
        line = f"MLflow at {self._settings.tracking_uri} {missing}: {explain(cause)}"
        return self._scrub(f"{line.rstrip('.')}. {remedy(cause)}; the run's own outputs are not affected.")

    def _say(self, text: str) -> None:
        with contextlib.suppress(Exception):  # the caller's log is the caller's; `Tracked.error` has the text
            self._on_note(self._scrub(text))
