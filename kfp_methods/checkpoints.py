"""Long work survives its pod: named states are saved now and then, and a retried run goes on from them.

A checkpoint belongs to one run: the same code, the same inputs and the same data. Any other run finds nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kfp_methods.errors import InputError, Problem, number_from

log = logging.getLogger("kfp_methods")

FOLDER_VARIABLE = "KFP_METHODS_CHECKPOINTS"
SECONDS_VARIABLE = "KFP_METHODS_CHECKPOINT_SECONDS"
_SECONDS = 30.0
_COST_SHARE = 0.05  # at most this share of the time goes into saving


class Resumable(Protocol):
    """A loop that a killed run goes on with: `Context.resumable`, or `uninterrupted` for library use."""

    def __call__(self, items: Sequence[int], label: str, **states: Any) -> Iterator[int]: ...


def uninterrupted(items: Sequence[int], label: str, **states: Any) -> Iterator[int]:
    """The plain loop."""
    return iter(items)


class Checkpoints:
    """The checkpoints of one run, in a folder of their own below `root`.

    identity: what makes the run this run; JSON values.

    Raises InputError when the folder cannot be written.
    """

    def __init__(self, root: Path, method: str, identity: Mapping[str, Any], every_seconds: float = _SECONDS) -> None:
        text = json.dumps(identity, sort_keys=True, default=str)
        self.root = root
        self.folder = root / method / hashlib.sha256(text.encode()).hexdigest()[:32]
        self.every_seconds = every_seconds
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(root, error) from None

    def stage(self, label: str, states: Mapping[str, Any], device: Callable[[], str] = lambda: "cpu") -> Stage:
        """One resumable loop; its states are restored at once when there is a checkpoint of it."""
        name = hashlib.sha256(label.encode()).hexdigest()[:16]
        return Stage(self.folder / f"{name}.pt", label, states, self.every_seconds, device)

    def remove(self) -> None:
        """Deletes them, once the run's results are written."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Stage:
    """Saves and restores the states of one loop; `done` counts its finished steps.

    device: says where the run computes, and so where tensors in lists and dictionaries come back to; modules and
        optimisers keep theirs. A checkpoint of another device is not gone on from. Asked only when there is something
        to save or restore, because torch must be imported to know it.
    """

    def __init__(
        self,
        path: Path,
        label: str,
        states: Mapping[str, Any],
        every_seconds: float,
        device: Callable[[], str],
    ) -> None:
        self.path, self.label, self.states, self.every_seconds = path, label, states, every_seconds
        self.device = device
        self.done = self._restore()
        self.saved = time.monotonic()

    def step(self) -> None:
        """Counts a finished step and saves when it is time to."""
        self.done += 1
        if time.monotonic() - self.saved >= self.every_seconds:
            self.save()

    def end(self) -> None:
        """Keeps the finished loop's states when the loop was long, so that a later crash does not repeat it."""
        if self.path.exists() or self.every_seconds == 0:
            self.save()

    def save(self) -> None:
        """Writes the states; a crash leaves the checkpoint before or this one, never a half.

        Raises InputError when the folder is full or has become unwritable.
        """
        import torch

        started = time.monotonic()
        states = {f"state:{name}": _captured(value) for name, value in self.states.items()}
        content = {"done": self.done, "device": self.device(), **states}
        unfinished = self.path.with_suffix(f".{os.getpid()}.new")
        try:
            with unfinished.open("wb") as stream:
                torch.save(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(self.path)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            unfinished.unlink(missing_ok=True)
            raise _unusable(self.path.parent, error) from None
        self.saved = time.monotonic()
        if self.every_seconds > 0:
            self.every_seconds = max(self.every_seconds, (self.saved - started) / _COST_SHARE)

    def _restore(self) -> int:
        """The number of finished steps of the checkpoint that was loaded; 0 without one."""
        if not self.path.exists():
            return 0
        import torch

        device = self.device()
        try:
            content = torch.load(self.path, map_location=device, weights_only=True)
            names = {f"state:{name}" for name in self.states}
            if set(content) != {"done", "device", *names}:
                raise ValueError("it holds other states")
            if content["device"] != device:
                raise ValueError(f"the run was on {content['device']}, and is on {device} now")
        except Exception as error:  # whatever is wrong with it, the work can be done again
            log.warning("%s: a checkpoint cannot be read (%s); starting anew", self.label, error)
            return 0
        for name, value in self.states.items():
            _put_back(name, value, content[f"state:{name}"])
        log.info("%s: going on after %d steps, from a checkpoint", self.label, content["done"])
        return int(content["done"])


def _captured(value: Any) -> Any:
    import numpy as np
    import torch

    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    return value if isinstance(value, list | dict) else value.state_dict()


def _put_back(name: str, value: Any, saved: Any) -> None:
    import numpy as np
    import torch

    if isinstance(value, torch.Generator):
        value.set_state(saved.cpu())
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = saved
    elif isinstance(value, list):
        value[:] = saved
    elif isinstance(value, dict):
        value.clear()
        value.update(saved)
    elif isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: put the tensor into a dict or a module")
    else:
        value.load_state_dict(saved)


def checkpoints_for(
    method: str,
    folder: str,
    inputs: Mapping[str, Any],
    digests: Mapping[str, str],
    sources: Iterable[Path],
    environ: Mapping[str, str],
) -> Checkpoints:
    """The run's checkpoints below `folder`.

    inputs: the parameters that the computation depends on.
    digests: of the files that the run reads, by field.
    sources: the files whose code the run executes; a change in one of them makes it another run.

    Raises InputError when the folder cannot be written or the environment's number of seconds is none.
    """
    seconds = number_from(environ, SECONDS_VARIABLE, _SECONDS)
    code = hashlib.sha256()
    for path in sorted(sources):
        code.update(path.name.encode() + b"\0" + path.read_bytes())
    identity = {"inputs": dict(inputs), "data": dict(digests), "code": code.hexdigest()}
    return Checkpoints(Path(folder), method, identity, seconds)


def _unusable(folder: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    remedy = "Name a folder that can be written and has room, or none"
    return InputError(Problem("checkpoints", str(folder), f"cannot be written ({reason})", remedy))
