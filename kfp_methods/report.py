"""One self-contained HTML page: verdicts first, then figures, tables, inputs; everything escaped."""

from __future__ import annotations

import base64
import hashlib
import math
import numbers
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from kfp_methods.claims import ClaimResult, Verdict

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
        return self.image if isinstance(self.image, bytes) else self.image.encode()

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
    """A data frame, shown up to `max_rows` rows and `MAX_TABLE_COLUMNS` columns; a named index is shown."""

    name: str
    title: str
    frame: pd.DataFrame
    caption: str = ""
    max_rows: int = 200

    def __post_init__(self) -> None:
        _check_name(self.name)


@dataclass(frozen=True)
class Text:
    """Plain words under a title: blank lines part paragraphs, lines that begin with "- " make a list."""

    title: str
    body: str


@dataclass(frozen=True)
class Report:
    """What a method tells its user: `summary` is the answer in words, `parts` follow in the order given.

    Raises ValueError when two figures or tables share a name, which is also their file's.
    """

    summary: str
    parts: tuple[Figure | Table | Text, ...] = ()

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts if not isinstance(part, Text)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"report: two parts are named {repeated}")


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
    return str(text).replace("$", r"\$")


def format_number(value: float | None) -> str:
    """Four significant digits, thousands grouped from 10,000 on, "—" for None and NaN, "∞" for infinity."""
    if value is None or value != value:
        return "—"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
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


def render(
    report: Report,
    *,
    method: str,
    title: str,
    paper: Mapping[str, str],
    data: Literal["sample", "user"],
    data_note: str,
    claims: Sequence[ClaimResult],
    metrics: Mapping[str, float | None],
    metric_help: Mapping[str, str],
    inputs: Mapping[str, object],
    versions: Mapping[str, str],
    status: Literal["complete", "interrupted"] = "complete",
    warnings: Sequence[str] = (),
) -> str:
    """The report as one HTML document that asks nothing of the network.

    paper: "title", and "authors", "url" where known. All text is plain and escaped. The same arguments give
    the same bytes: there is no date in it but what the arguments say.
    """
    folder = Path(__file__).parent
    script = (folder / "report.js").read_text(encoding="utf-8")
    return _template(folder).render(
        report=report,
        method=method,
        title=title,
        paper={key: paper.get(key, "") for key in ("title", "authors", "url")},
        paper_url=_web_link(paper.get("url", "")),
        data=data,
        data_note=data_note,
        verdicts=[_Verdict.of(result) for result in claims],
        tally=_tally(claims),
        metrics=[(name, format_number(value), metric_help.get(name, "")) for name, value in metrics.items()],
        inputs=[(name, _shorten(_plain(value), 2_000)) for name, value in inputs.items()],
        versions=versions,
        interrupted=status == "interrupted",
        warnings=warnings,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=(folder / "report.css").read_text(encoding="utf-8"),
    )


def _template(folder: Path) -> Any:
    import jinja2
    from markupsafe import Markup, escape

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"paragraphs": _paragraphs, "data_uri": _data_uri, "cells": _Cells.of}
    environment.filters["trusted"] = Markup  # for the style and the script that lie beside this module
    # A long identifier may break after an underscore, nowhere else.
    environment.filters["breakable"] = lambda text: escape(text).replace("_", Markup("_<wbr>"))
    environment.tests |= {
        "figure": lambda part: isinstance(part, Figure),
        "table": lambda part: isinstance(part, Table),
    }
    return environment.get_template("report.html.j2")


class _Verdict(NamedTuple):
    """One claim as the page shows it."""

    result: ClaimResult
    css: str
    sign: str
    measured: str
    interval: str
    line: _NumberLine | None

    @classmethod
    def of(cls, result: ClaimResult) -> _Verdict:
        css, sign = {
            Verdict.SUPPORTED: ("yes", "✓"),
            Verdict.NOT_SUPPORTED: ("no", "✗"),
            Verdict.INCONCLUSIVE: ("open", "?"),
            Verdict.NOT_MEASURED: ("none", "–"),
        }[result.verdict]
        interval = ""
        if result.low is not None and result.high is not None:
            interval = format_interval(result.low, result.high)
        line = None if result.value is None else _NumberLine.of(result)
        return cls(result, css, sign, format_number(result.value), interval, line)

    @property
    def wanted(self) -> str:
        claim = self.result.claim
        words = {"greater": "above {}", "less": "below {}", "within": "between -{0} and {0}"}[claim.direction]
        return " ".join((words.format(format_number(claim.threshold)), claim.unit)).strip()

    @property
    def interval_name(self) -> str:
        claim = self.result.claim
        return "range" if claim.interval == "exact" else f"{claim.level * 100:.4g}% interval"

    @property
    def spoken(self) -> str:
        """The number line in words, for those who do not see it."""
        interval = f", {self.interval_name} {self.interval}" if self.interval else ""
        return f"Measured {self.measured}{interval}; the claim is {self.wanted}."


class _NumberLine(NamedTuple):
    """Horizontal positions, 0 to 100, of a claim's picture: its claimed side, interval, mean and samples."""

    claimed: tuple[float, float]
    thresholds: list[tuple[float, str]]
    interval: tuple[float, float] | None
    value: float
    samples: list[float]

    @classmethod
    def of(cls, result: ClaimResult, most_samples: int = 50) -> _NumberLine:
        claim, value = result.claim, result.value or 0.0
        edges = [-claim.threshold, claim.threshold] if claim.direction == "within" else [claim.threshold]
        samples = [*result.samples] if 1 < len(result.samples) <= most_samples else []
        shown = [*edges, value, *samples, *(x for x in (result.low, result.high) if x is not None)]
        start, stop = min(shown), max(shown)
        half = (stop / 2 - start / 2) or abs(start) / 2 or 0.5  # stop - start may be too large for a float
        middle = start / 2 + stop / 2

        def place(x: float) -> float:
            return round(50 + 42 * ((x - middle) / half), 2)

        claimed = {
            "greater": (place(edges[-1]), 100.0),
            "less": (0.0, place(edges[0])),
            "within": (place(edges[0]), place(edges[-1])),
        }[claim.direction]
        interval = None
        if result.low is not None and result.high is not None:
            interval = place(result.low), place(result.high)
        marks = [(place(edge), format_number(edge)) for edge in edges]
        return cls(claimed, marks, interval, place(value), [place(sample) for sample in samples])


class _Cell(NamedTuple):
    text: str
    numeric: bool = False
    sort: str = ""


class _Cells(NamedTuple):
    """A table's text: header cells, rows of cells, and what was left out of the frame, in words."""

    header: list[_Cell]
    rows: list[list[_Cell]]
    left_out: str

    @classmethod
    def of(cls, table: Table) -> _Cells:
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        frame = table.frame.head(table.max_rows)
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index(allow_duplicates=True)
        shown = frame.iloc[:, :MAX_TABLE_COLUMNS]
        numeric = [is_numeric_dtype(kind) and not is_bool_dtype(kind) for kind in shown.dtypes]
        header = [_Cell(_column_name(name), right) for name, right in zip(shown.columns, numeric, strict=True)]
        missing = shown.isna().to_numpy()
        rows = [
            [_cell(value, right, bool(gap)) for value, right, gap in zip(row, numeric, gaps, strict=True)]
            for row, gaps in zip(shown.itertuples(index=False, name=None), missing, strict=True)
        ]
        counts = ((len(table.frame) - len(shown), "row"), (frame.shape[1] - shown.shape[1], "column"))
        left_out = " and ".join(f"{n:,} more {noun}{'s' * (n > 1)}" for n, noun in counts if n > 0)
        return cls(header, rows, left_out)


def _cell(value: object, right: bool, missing: bool) -> _Cell:
    if missing:
        return _Cell("—", right)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        exact = int(value) if isinstance(value, numbers.Integral) else float(value)
        text = _shorten(format_number(exact), MAX_CELL_CHARACTERS)
        return _Cell(text, right, "" if _reads_as(text, exact) else str(exact).replace("inf", "Infinity"))
    return _Cell(_shorten(_plain(value), MAX_CELL_CHARACTERS), right)


def _reads_as(text: str, value: float) -> bool:
    """Whether the page's script, which reads a cell's text as a number, gets the exact value from it."""
    try:
        return float(text) == value
    except ValueError:
        return False


def _column_name(name: object) -> str:
    return _shorten(" / ".join(map(str, name)) if isinstance(name, tuple) else str(name), MAX_CELL_CHARACTERS)


def _plain(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return repr(value)
    return str(value)


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def _tally(claims: Sequence[ClaimResult]) -> str:
    counts = ((sum(c.verdict is verdict for c in claims), verdict.value) for verdict in Verdict)
    return " · ".join(f"{n} {words}" for n, words in counts if n)


def _paragraphs(text: str) -> list[str | list[str]]:
    """Paragraphs as strings, lists as lists of their items."""
    found: list[str | list[str]] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        if lines and all(line.startswith("- ") for line in lines):
            found.append([line[2:] for line in lines])
        elif lines:
            found.append(" ".join(lines))
    return found


def _web_link(url: str) -> str:
    """The address if it is an http(s) one, else "": a javascript: link would run in the reader's page."""
    return url if re.match(r"https?://\S+$", url) else ""


def _data_uri(figure: Figure) -> str:
    if isinstance(figure.image, bytes):
        return "data:image/png;base64," + base64.b64encode(figure.image).decode()
    # Smaller than base64, and it compresses; what HTML or a URI gives a meaning is percent-encoded.
    return "data:image/svg+xml;charset=utf-8," + quote(figure.image.replace("\n", " "), safe=" =:/;,()!*+?@$")


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
