"""What `--json` prints: one document, which begins alike for every command and however it ends."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from kfp_methods.errors import Problem

_ALWAYS = "exit_code, error (a text), problems ([{field, value, problem, remedy}])"


def json_option(*fields: str) -> click.Option:
    """The flag `--json`, which says in one line what the document holds besides what every one does."""
    help_text = f"One JSON document on standard output: {_ALWAYS}, {', '.join(fields)}."
    return click.Option(["--json", "as_json"], is_flag=True, help=help_text)


def document(exit_code: int = 0, error: str = "", problems: Iterable[Problem] = (), **fields: Any) -> str:
    """The JSON text; `method` comes first where there is one."""
    method = fields.pop("method", "")
    named = {"method": method} if method else {}
    head = {"exit_code": int(exit_code), "error": error, "problems": [as_json(problem) for problem in problems]}
    return json.dumps({**named, **head, **fields}, indent=1, allow_nan=False)


def as_json(problem: Problem) -> dict[str, Any]:
    """A problem's four parts; a value that JSON has no word for becomes text."""
    try:
        value = json.loads(json.dumps(problem.value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        value = str(problem.value)
    return {"field": problem.field, "value": value, "problem": problem.problem, "remedy": problem.remedy}
