"""What a method tells its user: a summary in words, figures, tables, texts; `page` shows them."""

from __future__ import annotations

import math
import numbers
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

# Okabe and Ito's colours stay apart for colour-blind readers; in this order neighbours also do in grey print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MAX_SVG_BYTES = 250_000
MAX_TABLE_COLUMNS = 40
MAX_CELL_CHARACTERS = 300
_PNG_DPI = 150
_SLUG = re.compile(r"[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*")
_ILLEGIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_HOUSE_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.7,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "svg.fonttype": "none",  # text stays text: smaller, searchable, and the reader's fonts know every script
    "svg.hashsalt": "kfp-methods",
}


@dataclass(frozen=True)
class Figure:
    """A picture: `image` is SVG text or PNG bytes, `alt` says in words what the picture shows.

    Raises ValueError for a name that is no file name, an empty `alt`, or an image of another kind.
    """

    name: str
    title: str
    alt: str
    image: str | bytes
    caption: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not self.alt.strip():
            raise ValueError(f"figure {self.name}: alt is empty; say in words what the picture shows")
        if isinstance(self.image, bytes):
            known = self.image.startswith(b"\x89PNG\r\n\x1a\n")
        else:
            known = self.image.lstrip().startswith(("<svg", "<?xml"))
        if not known:
            raise ValueError(f"figure {self.name}: image is neither SVG text nor PNG bytes")

    @property
    def filename(self) -> str:
        return f"{self.name}.{'png' if isinstance(self.image, bytes) else 'svg'}"

    @property
    def data(self) -> bytes:
        return self.image if isinstance(self.image, bytes) else legible(self.image).encode()

    @classmethod
    def from_matplotlib(
        cls, fig: matplotlib.figure.Figure, *, name: str, title: str, alt: str, caption: str = ""
    ) -> Figure:
        """Draw `fig` and release it: SVG, or PNG where the SVG would be above `MAX_SVG_BYTES` (many points).

        The same figure gives the same bytes. Wrap text that comes from data in `literal`.
        """
        image: str | bytes = _draw_svg(fig)
        if len(image) > MAX_SVG_BYTES:
            image = _draw(fig, format="png", dpi=_PNG_DPI, metadata={"Software": None})
        fig.clear()
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close(fig)
        return cls(name, title, alt, image, caption)


@dataclass(frozen=True)
class Table:
    """A data frame, shown up to `max_rows` rows and `MAX_TABLE_COLUMNS` columns; a named index is shown.

    highlight: it answers the user's question: also printed by the command line after the run.
    """

    name: str
    title: str
    frame: pd.DataFrame
    caption: str = ""
    max_rows: int = 200
    highlight: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)

    @property
    def columns(self) -> pd.DataFrame:
        """The frame with a named index as columns; an unnamed one only counts the rows."""
        named = any(name is not None for name in self.frame.index.names)
        return self.frame.reset_index(allow_duplicates=True) if named else self.frame

    def shown(self, max_rows: int | None = None) -> Shown:
        """What a reader sees of the frame: its first rows and columns."""
        most = self.max_rows if max_rows is None else max_rows
        first = Table(self.name, self.title, self.frame.head(most)).columns
        frame = first.iloc[:, :MAX_TABLE_COLUMNS]
        return Shown(frame, len(self.frame) - len(frame), first.shape[1] - frame.shape[1])

    def plain(self, max_rows: int = 30) -> dict[str, Any]:
        """Title, columns and the first rows as JSON values; what is missing is None, infinity the text "∞"."""
        shown = self.shown(max_rows)
        rows = [
            [None if gap else _json_value(value) for value, gap in zip(row, gaps, strict=True)]
            for row, gaps in shown.rows()
        ]
        return {"title": self.title, "columns": shown.names(), "rows": rows}


class Shown(NamedTuple):
    """The part of a table that is shown, and how many rows and columns are not."""

    frame: pd.DataFrame
    rows_left: int
    columns_left: int

    def names(self) -> list[str]:
        """Column names as text; a nested one with its parts between slashes."""
        parts = (name if isinstance(name, tuple) else (name,) for name in self.frame.columns)
        return [shorten(" / ".join(map(str, name)), MAX_CELL_CHARACTERS) for name in parts]

    def rows(self) -> Iterator[tuple[tuple[object, ...], list[bool]]]:
        """Each row's values, and which of them are missing."""
        missing = self.frame.isna().to_numpy().tolist()
        return zip(self.frame.itertuples(index=False, name=None), missing, strict=True)


@dataclass(frozen=True)
class Text:
    """Plain words under a title: blank lines part paragraphs, lines that begin with "- " make a list."""

    title: str
    body: str


Part = Figure | Table | Text


@dataclass(frozen=True)
class Report:
    """What a method tells its user: `summary` is the answer in words, `parts` follow in the order given.

    Raises ValueError when two figures or tables share a name, which is also their file's.
    """

    summary: str
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts if not isinstance(part, Text)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"report: two parts are named {repeated}")

    @property
    def highlights(self) -> tuple[Table, ...]:
        """The tables that answer the user's question."""
        return tuple(part for part in self.parts if isinstance(part, Table) and part.highlight)


def new_figure(
    width: float = 6.0, height: float = 3.8, *, rows: int = 1, columns: int = 1, **subplots: Any
) -> matplotlib.figure.Figure:
    """A matplotlib figure of `width` x `height` inches in the house style, its axes in `fig.axes`.

    `subplots` goes to `Figure.subplots` (sharex, width_ratios, …). No pyplot, so no global state, no display.
    A phone shows the default width legibly: panels one above the other (`rows`) read better than `columns`.
    """
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure as MatplotlibFigure

    with mpl.rc_context(_HOUSE_STYLE | {"axes.prop_cycle": cycler(color=PALETTE)}):
        fig = MatplotlibFigure(figsize=(width, height), layout="constrained")
        fig.subplots(rows, columns, **subplots)
    return fig


def literal(text: object) -> str:
    """Text from a user's data for a matplotlib label: its dollar signs are dollars, not formulas."""
    return legible(str(text)).replace("$", r"\$")


def legible(text: str) -> str:
    """The text with "\N{REPLACEMENT CHARACTER}" for what neither UTF-8, HTML nor XML can hold.

    Control characters come from users' data, lone surrogates from file names that are not UTF-8.
    """
    return _ILLEGIBLE.sub("\N{REPLACEMENT CHARACTER}", text)


def format_number(value: float | None) -> str:
    """Four significant digits, thousands grouped from 10,000 on, "—" for None and NaN, "∞" for infinity."""
    if value is None or value != value:
        return "—"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    value = value or 0.0  # no minus before a zero
    if 9_999.5 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}".replace("e+", "e").replace("e-0", "e-")


def format_interval(low: float, high: float) -> str:
    """Both ends to as many decimals as give three digits of the width: "0.0101 to 0.0145"."""
    width = high - low
    decimals = 2 - math.floor(math.log10(width)) if width > 0 and math.isfinite(width) else 99
    if decimals > 8 or max(abs(low), abs(high)) >= 1e15:
        return f"{format_number(low)} to {format_number(high)}"
    return f"{low:,.{max(decimals, 0)}f} to {high:,.{max(decimals, 0)}f}"


def _json_value(value: object) -> bool | int | float | str:
    """A cell that is not missing: numbers as they are, infinity and anything else as text."""
    plain = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if isinstance(plain, bool | int):
        return plain
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else format_number(plain)
    return shorten(legible(str(plain)), MAX_CELL_CHARACTERS)


def shorten(text: str, limit: int) -> str:
    """The text, or its beginning and how much more there is."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def _draw_svg(fig: matplotlib.figure.Figure) -> str:
    drawn = _draw(fig, format="svg", metadata={"Date": None, "Creator": None}).decode()
    # The prolog names a DTD on the web; the picture needs neither.
    return drawn[drawn.index("<svg") :].strip()


def _draw(fig: matplotlib.figure.Figure, **options: Any) -> bytes:
    from io import BytesIO

    import matplotlib as mpl

    with mpl.rc_context(_HOUSE_STYLE), BytesIO() as buffer:
        fig.savefig(buffer, facecolor="white", **options)
        return buffer.getvalue()


def _check_name(name: str) -> None:
    if not _SLUG.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a figure or table: use letters, digits, '-', '_' and '.'")
