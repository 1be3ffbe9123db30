"""Text for a terminal of any width and encoding, in which nothing that comes from data has an effect."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NARROW = 60  # columns; below it a table is unreadable


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever reads has gone: told as for everything else that is printed."""
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def printable(text: str) -> str:
    """The text with every character that a terminal would obey replaced; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def cell(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def print_table(
    target: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[Text]],
    title: str = "",
    numbers: Set[int] = frozenset(),
) -> None:
    """A table; on a narrow terminal a line for each cell.

    numbers: the places of the columns that are aligned right.
    """
    if title:
        target.print(cell(f"\n{title}", "bold"))
    if target.width < _NARROW:
        _print_stacked(target, columns, rows)
        return
    table = Table()
    for place, name in enumerate(columns):
        table.add_column(cell(name), justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    target.print(table)


def _print_stacked(target: Console, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """`column: cell` for each cell; a table of two columns is names and their values."""
    for row in rows:
        if len(columns) == 2:
            target.print(Text.assemble(row[0], ": ", row[1]))
            continue
        for name, entry in zip(columns, row, strict=True):
            target.print(Text.assemble((f"{printable(name)}: ", "dim"), entry))
        target.print()
