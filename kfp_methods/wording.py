"""Counts, names and lists as error texts show them: in the right number, printable, and never more than a token."""

from __future__ import annotations

from collections.abc import Sequence

TOKEN = 40  # characters of a file's content that an error may repeat in one piece


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 row`, `3 rows`, `2 entries` (with plural="entries")."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def token(value: object) -> str:
    """A name or cell of a user's file in quotes (numbers without), cut to `TOKEN` characters.

    Files may hold secrets and what is given by mistake is logged, so nothing longer is ever repeated.
    """
    text = str(value)
    text = text if len(text) <= TOKEN else text[: TOKEN - 1] + "…"
    return repr(text) if isinstance(value, str) else text


def listed(values: Sequence[object], limit: int = 10) -> str:
    """The first `limit` values as tokens, and how many more there are; "none" when there are none."""
    shown = ", ".join(token(value) for value in values[:limit])
    return (shown + f" and {len(values) - limit} more" * (len(values) > limit)) or "none"
