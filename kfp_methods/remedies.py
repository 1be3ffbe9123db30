"""A pydantic error in the words of a user: what was given, why it will not do, what would."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import counted, token

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from kfp_methods.fields import InputKind

_BOUNDS = {
    "greater_than_equal": ("is too small", "at least {ge}"),
    "greater_than": ("is too small", "more than {gt}"),
    "less_than_equal": ("is too large", "at most {le}"),
    "less_than": ("is too large", "less than {lt}"),
    "multiple_of": ("is not a multiple of {multiple_of}", "a multiple of {multiple_of}"),
    "too_short": ("has too few entries", "at least {min_length}"),
    "too_long": ("has too many entries", "at most {max_length}"),
    "string_too_short": ("is too short", "at least {min_length} characters"),
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "literal_error": ("is not one of the choices", "one of {expected}"),
    "string_pattern_mismatch": ("does not have the right form", "what the description says"),
    "string_unicode": ("holds bytes that are not UTF-8", "text in UTF-8"),
    "int_parsing_size": ("has too many digits", "a number of fewer digits"),
    "finite_number": ("is not finite", "a finite number"),
}
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text, in a YAML file in quotes",
    "list": "a list, its entries between commas (in a YAML file in brackets)",
    "dict": 'a mapping, such as {"name": 1}',
}
_ARTIFACT = ("is not the path or URI of a file", "Give a local path, s3://, gs://, https://, runs:/ or models:/")


def problems_from_pydantic(error: ValidationError, kinds: Mapping[str, InputKind]) -> list[Problem]:
    """One problem for each wrong field, in order; `kinds` are the fields that exist.

    A wrong entry of a list is counted from 1, and its value is the entry; of several in one field the first is
    told, and how many more there are.
    """
    found: dict[str, Problem] = {}
    wrong: dict[str, dict[str, Problem]] = {}
    for entry in error.errors(include_url=False):
        if isinstance(cause := entry.get("ctx", {}).get("error"), InputError):
            found.update({problem.field: problem for problem in cause.problems})
            continue
        place, problem = _problem(entry, kinds)
        places = wrong.setdefault(problem.field, {})
        places[place] = _either(places[place], problem) if place in places else problem
    return list((found | {field: _joined(places) for field, places in wrong.items()}).values())


def _problem(entry: ErrorDetails, kinds: Mapping[str, InputKind]) -> tuple[str, Problem]:
    """Which entry of the field is wrong ("" for the field itself), and what is wrong with it."""
    name, *inner = entry["loc"] or ("",)
    kind = kinds.get(str(name))
    if entry["type"] == "extra_forbidden" and not inner:
        return "", _no_such_input(str(name), entry["input"], kinds)
    if kind is not None and kind.is_artifact:
        return "", Problem(kind.parameter_name, entry["input"], *_ARTIFACT)
    place = _place(kind, inner)
    problem, remedy = _words(entry, kind, in_entry=bool(place))
    value = entry["input"] if name else None
    return place, Problem(str(name) or "inputs", value, f"{place} {problem}".strip(), remedy)


def _place(kind: InputKind | None, inner: Sequence[int | str]) -> str:
    if kind is not None and kind.kfp_type == "dict" and inner:
        return f"{'the name of ' if '[key]' in inner[1:] else ''}entry {token(inner[0])}"
    return next((f"entry {part + 1}" for part in inner if isinstance(part, int)), "")


def _words(entry: ErrorDetails, kind: InputKind | None, *, in_entry: bool) -> tuple[str, str]:
    """The problem, and a remedy with all that the field asks of a value, not only what this value misses."""
    error, context = entry["type"], entry.get("ctx", {})
    accepts = "" if kind is None else kind.entry_accepts if in_entry else kind.accepts
    if error in _BOUNDS:
        problem, needed = _BOUNDS[error]
        if error == "string_pattern_mismatch" and kind is not None:
            needed = f"what its description says: {kind.description}"
        bounded = accepts and error not in ("literal_error", "multiple_of", "string_unicode")
        return problem.format(**context), f"Give {accepts if bounded else needed.format(**context)}"
    if (wanted := _TYPES.get(error.split("_")[0])) is not None:
        limits = f", {accepts}" if accepts and not error.startswith(("list", "dict", "string")) else ""
        return f"is not {wanted.split(',')[0]}", f"Give {wanted}{limits}"
    if error == "value_error":
        problem, _, remedy = str(context["error"]).partition(". ")
        return problem, remedy or "Change one of them"
    return entry["msg"], f"Give what its description says: {kind.description}" if kind else "See its description"


def _no_such_input(name: str, value: object, kinds: Mapping[str, InputKind]) -> Problem:
    parameters = {kind.parameter_name: kind for kind in kinds.values()}
    if name in parameters:  # an artifact's: it would have been taken for the field if that were not given too
        other = parameters[name].name
        return Problem(name, value, f"{other} is given too, and both name the same input", "Leave one of the two out")
    close = difflib.get_close_matches(name, list(parameters), n=1)
    remedy = f"Did you mean {close[0]}?" if close else f"Give one of {', '.join(parameters)}"
    return Problem(name, value, "there is no such input", remedy)


def _either(first: Problem, second: Problem) -> Problem:
    """A union's members each complain about the same value: join what would be right."""
    wanted = second.remedy.removeprefix("Give ")
    if wanted in first.remedy:
        return first
    return Problem(first.field, first.value, "is not of a type that this input takes", f"{first.remedy} or {wanted}")


def _joined(places: Mapping[str, Problem]) -> Problem:
    first, *others = places.values()
    if not others:
        return first
    return replace(first, problem=f"{first.problem}, and so {_are(len(others))}")


def _are(count: int) -> str:
    return f"{'is' if count == 1 else 'are'} {counted(count, 'more entry', 'more entries')}"
