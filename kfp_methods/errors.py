"""What can be wrong with what a user gave, and the exit codes that tell a caller so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes shared by the command line and the container."""

    OK = 0
    FAULT = 1
    BAD_INPUT = 2
    TERMINATED = 143


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one input field: what was given, why it will not do, what would."""

    field: str
    value: object
    problem: str
    remedy: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f"={_one_line(self.value)}"
        field, problem, remedy = (_one_line(part, 1_000) for part in (self.field, self.problem, self.remedy))
        end = "" if remedy.endswith("?") else "."
        return f"{field}{shown}: {problem.rstrip('.')}. {remedy.rstrip('.')}{end}"


class InputError(ValueError):
    """The user's inputs cannot be used; `problems` has one entry for each wrong field.

    Its text is one line for each problem, the same on the command line, in `submit` and in a pod's log.
    """

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def number_from(environ: Mapping[str, str], variable: str, default: float) -> float:
    """A number of seconds that an environment variable may set.

    Raises:
        InputError: it is set to something else.
    """
    given = environ.get(variable, "")
    try:
        number = float(given) if given else default
    except ValueError:
        number = math.nan
    if not number >= 0:
        raise InputError(Problem(variable, given, "is not a number of seconds", f"Give one such as {default:g}"))
    return number


class Terminated(BaseException):
    """SIGTERM reached a running method (a pod's eviction): stop, and keep what is finished.

    Derives from BaseException so that a method's own `except Exception` cannot swallow it.
    """


def _one_line(value: object, limit: int = 120) -> str:
    """Printable and short, both ends kept, for a path's end names the file.

    A value may hold line breaks, a terminal's escape codes, or bytes of a file name that are no text.
    """
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    end = limit // 2 - 1
    return text if len(text) <= limit else f"{text[: limit - end - 1]}…{text[-end:]}"
