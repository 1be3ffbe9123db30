"""What a running method may ask of the platform: files, a device, progress, curves, keeping partial results."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.checkpoints import Checkpoints
    from kfp_methods.contract import Artifact
    from kfp_methods.report import Figure, Table, Text

T = TypeVar("T")
log = logging.getLogger("kfp_methods")


@dataclass(frozen=True)
class CurvePoint:
    """One value of a metric that is followed over steps."""

    name: str
    value: float
    step: int
    timestamp_ms: int


@dataclass
class Context:
    """Given to a method's `load` and `run`; everything kept here survives an interruption."""

    scratch: Path
    wanted_device: Literal["auto", "cpu", "cuda"] = "auto"
    on_point: Callable[[CurvePoint], None] = lambda point: None
    _stages: set[str] = field(default_factory=set, init=False, repr=False)
    fetched: dict[str, Path] = field(default_factory=dict)
    parts: list[Figure | Table | Text] = field(default_factory=list)
    points: list[CurvePoint] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    find_checkpoints: Callable[[], Checkpoints | None] = lambda: None

    def fetch(self, artifact: Artifact) -> Path:
        """The local file or folder of an input artifact, downloaded when its URI is remote.

        Raises:
            InputError: it does not exist, cannot be reached or is too large.
        """
        from kfp_methods import artifacts

        if artifact.path:
            self.fetched.setdefault(artifact.field, artifact.path)
            return artifact.path
        if artifact.field not in self.fetched:
            self.fetched[artifact.field] = artifacts.fetch(artifact.uri, field=artifact.field, cache=self.scratch)
        return self.fetched[artifact.field]

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """The torch device to compute on.

        Raises:
            InputError: CUDA was asked for and there is none.
        """
        import torch

        available = torch.cuda.is_available()
        if self.wanted_device == "cuda" and not available:
            problem = "this machine has no CUDA device that torch can use"
            raise InputError(Problem("device", "cuda", problem, "Give device=cpu or auto, or run on a GPU node"))
        return "cuda" if available and self.wanted_device != "cpu" else "cpu"

    def progress(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
        """Yields the items; a bar on a terminal, a line now and then in a pod's log."""
        total = len(items) if total is None and isinstance(items, Sized) else total
        with self.bar(label, total) as advance:
            for item in items:
                yield item
                advance()

    def resumable(self, items: Sequence[T], label: str, **states: Any) -> Iterator[T]:
        """Yields the items that are still to do, with a bar; a run that was killed goes on where it last saved.

        states: everything that the loop changes and reads, by name: modules, optimisers and schedulers of torch,
            random generators of torch or numpy, lists and dictionaries of numbers, texts and tensors. Then the
            retried run ends with the same bits as one that was never interrupted.
        label: the bar's; no other resumable loop of the run has it.

        Raises InputError when checkpoints are wanted and cannot be written.
        """
        if label in self._stages:
            raise ValueError(f"there already is a resumable loop {label!r} in this run")
        self._stages.add(label)
        if (found := self.checkpoints) is None:
            yield from self.progress(items, label)
            return
        stage = found.stage(label, states, lambda: self.device)
        with self.bar(label, len(items), stage.done) as advance:
            for item in items[stage.done :]:
                yield item
                stage.step()
                advance()
        stage.end()

    @cached_property
    def checkpoints(self) -> Checkpoints | None:
        """Those of this run; None where no folder was named for them."""
        return self.find_checkpoints()

    @property
    def used_checkpoints(self) -> Checkpoints | None:
        """The same, if the run asked for them."""
        return self.__dict__.get("checkpoints")

    @contextlib.contextmanager
    def bar(self, label: str, total: int | None = None, done: int = 0) -> Iterator[Callable[[], None]]:
        """The same for work that is no loop: call what it gives after each step; `done` were made earlier."""
        if sys.stderr.isatty():
            from tqdm import tqdm

            with tqdm(desc=label, total=total, initial=done, dynamic_ncols=True, file=sys.stderr) as shown:
                yield lambda: (shown.update(), None)[1]
            return
        steps = _LoggedSteps(label, total, done)
        yield steps.advance
        steps.done()

    def metric(self, name: str, value: float, step: int) -> None:
        """Records a point of a curve; it reaches MLflow while the method runs."""
        point = CurvePoint(name, float(value), step, time.time_ns() // 1_000_000)
        self.points.append(point)
        self.on_point(point)

    def keep(self, part: Figure | Table | Text) -> None:
        """Keeps a finished part, so that it is written even if the run is interrupted later."""
        self.parts.append(part)

    def warn(self, text: str) -> None:
        """A warning for the log, the report and MLflow."""
        log.warning(text)
        self.warnings.append(text)


class _LoggedSteps:
    """A line at the start, every ten seconds, and at the end."""

    def __init__(self, label: str, total: int | None, done: int = 0, every_seconds: float = 10.0) -> None:
        self.label, self.total, self.every_seconds = label, total, every_seconds
        self.count = self.before = done
        self.started = self.last = time.monotonic()
        log.info("%s: started%s", label, f" ({total} steps)" if total else "")

    def advance(self) -> None:
        self.count += 1
        now = time.monotonic()
        if now - self.last < self.every_seconds:
            return
        self.last = now
        share = left = ""
        if self.total:
            share = f"/{self.total} ({100 * self.count // self.total}%)"
            left = f", about {(now - self.started) / (self.count - self.before) * (self.total - self.count):.0f} s left"
        log.info("%s: %d%s%s", self.label, self.count, share, left)

    def done(self) -> None:
        log.info("%s: done, %d steps in %.1f s", self.label, self.count, time.monotonic() - self.started)
