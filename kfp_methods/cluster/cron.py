"""KFP's cron expressions, checked before a server misreads one.

Kubeflow Pipelines reads six fields, seconds first (`0 0 3 * * *`: every day at 03:00, in UTC unless the
server is set otherwise). Its parser also takes five fields and then reads the first as *seconds*, so that
crontab's `0 3 * * *` would run every hour; here five fields mean what crontab means and get a `0` in front.
"""

from __future__ import annotations

from kfp_methods.errors import InputError, Problem

EXAMPLE = "0 0 3 * * * (second minute hour day month weekday: every day at 03:00)"

_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_FIELDS = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 6),
)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES = {
    "month": {name: number for number, name in enumerate(_MONTHS, start=1)},
    "day of the week": {name: number for number, name in enumerate(_DAYS)},
}


def kfp_cron(expression: str) -> str:
    """The expression as KFP reads it: six fields, or one of @hourly, @daily, @weekly, @monthly, @yearly.

    Raises InputError that names the wrong field, or dates that the calendar does not have.
    """
    if expression.strip() in _DESCRIPTORS:
        return expression.strip()
    fields = expression.split()
    if len(fields) == 5:
        fields.insert(0, "0")
    if len(fields) != 6:
        raise _wrong(expression, f"has {len(fields)} fields instead of 6")
    for text, (name, lowest, highest) in zip(fields, _FIELDS, strict=True):
        for entry in text.split(","):
            if problem := _entry_problem(entry, name, lowest, highest):
                raise _wrong(expression, f"the {name} {text} {problem}")
    if _never(days=fields[3], months=fields[4], weekdays=fields[5]):
        raise _wrong(expression, f"never comes: no month of {fields[4]} has a day {fields[3]}")
    return " ".join(fields)


def _entry_problem(entry: str, name: str, lowest: int, highest: int) -> str | None:
    """Why one entry of a field's list (`*`, `5`, `1-5`, `*/15`, `mon-fri`) will not do, or None."""
    span, slash, step = entry.partition("/")
    if slash and not (_is_number(step) and int(step) > 0):
        return "has a step that is not a whole number above 0"
    if span in ("*", "?"):
        return None
    numbers = [_number(end, name) for end in span.split("-")]
    if len(numbers) > 2 or None in numbers:
        return "is not a number, a range such as 1-5, * or ?"
    if not all(number is not None and lowest <= number <= highest for number in numbers):
        return f"is not within {lowest}-{highest}"
    first, last = numbers[0], numbers[-1]
    return "runs backwards" if first is not None and last is not None and first > last else None


def _never(days: str, months: str, weekdays: str) -> bool:
    """Whether no date fits. Where days and weekdays are both restricted, either is enough, so that some date does."""
    if not any(entry.startswith(("*", "?")) for entry in weekdays.split(",")):
        return False
    first = min(_values(days, *_FIELDS[3]))
    return all(first > _LONGEST[month - 1] for month in _values(months, *_FIELDS[4]))


def _values(text: str, name: str, lowest: int, highest: int) -> set[int]:
    """The numbers that a checked field stands for; `5/2` goes on to the field's end."""
    found: set[int] = set()
    for entry in text.split(","):
        span, slash, step = entry.partition("/")
        ends = [lowest, highest] if span in ("*", "?") else [_number(end, name) or 0 for end in span.split("-")]
        last = highest if slash and len(ends) == 1 else ends[-1]
        found.update(range(ends[0], last + 1, int(step or 1)))
    return found


def _number(text: str, name: str) -> int | None:
    return int(text) if _is_number(text) else _NAMES.get(name, {}).get(text.lower())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _wrong(expression: str, problem: str) -> InputError:
    return InputError(Problem("cron", expression, problem, f"Give six fields, such as {EXAMPLE}"))
