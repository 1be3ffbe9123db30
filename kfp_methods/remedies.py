"""A pydantic error in the words of a user: what was given, why it will not do, what would."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_BOUNDS = {
    "greater_than_equal": ("is too small", "at least {ge}"),
    "greater_than": ("is too small", "more than {gt}"),
    "less_than_equal": ("is too large", "at most {le}"),
    "less_than": ("is too large", "less than {lt}"),
    "multiple_of": ("is not a multiple of {multiple_of}", "a multiple of {multiple_of}"),
    "too_short": ("has {actual_length} entries", "at least {min_length}"),
    "too_long": ("has {actual_length} entries", "at most {max_length}"),
    "string_too_short": ("is too short", "at least {min_length} characters"),
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "literal_error": ("is not one of the choices", "one of {expected}"),
    "string_pattern_mismatch": ("does not have the right form", "a text that matches {pattern}"),
    "finite_number": ("is not finite", "a finite number"),
}
_UNION_TAGS = {"int", "float", "bool", "str", "dict", "list"}
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list, such as 0.01,0.1 or [0.01, 0.1]",
    "dict": 'a mapping, such as {"name": 1}',
}


def problems_from_pydantic(error: ValidationError, known: Sequence[str]) -> list[Problem]:
    """Every wrong field once, in order; `known` are the parameter names that exist."""
    found: dict[str, Problem] = {}
    for entry in error.errors(include_url=False):
        if isinstance(cause := entry.get("ctx", {}).get("error"), InputError):
            found.update({problem.field: problem for problem in cause.problems})
            continue
        problem = _problem(entry, known)
        earlier = found.get(problem.field)
        found[problem.field] = _either(earlier, problem) if earlier else problem
    return list(found.values())


def _problem(entry: ErrorDetails, known: Sequence[str]) -> Problem:
    location = ".".join(str(part) for part in entry["loc"] if part not in _UNION_TAGS and "[" not in str(part))
    location = location.replace(".uri", "_uri")
    kind, context, value = entry["type"], entry.get("ctx", {}), entry["input"]
    if kind == "extra_forbidden":
        return Problem(location, value, "there is no such input", _suggest(location, known))
    if kind in _BOUNDS:
        problem, remedy = _BOUNDS[kind]
        return Problem(location, value, problem.format(**context), f"Give {remedy.format(**context)}")
    if (wanted := _TYPES.get(kind.split("_")[0])) is not None:
        return Problem(location, value, f"is not {wanted.split(',')[0]}", f"Give {wanted}")
    if kind == "value_error":
        problem, _, remedy = str(context["error"]).partition(". ")
        return Problem(location or "inputs", value if location else None, problem, remedy or "Change one of them")
    return Problem(location, value, entry["msg"], "See its description")


def _either(first: Problem, second: Problem) -> Problem:
    """A union's members each complain about the same value: join what would be right."""
    wanted = second.remedy.removeprefix("Give ")
    return Problem(first.field, first.value, "is not of a type that this input takes", f"{first.remedy} or {wanted}")


def _suggest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"Give one of {', '.join(known)}"
