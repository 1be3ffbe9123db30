"""The report as one HTML document that asks nothing of the network; every text in it is plain and escaped."""

from __future__ import annotations

import base64
import hashlib
import numbers
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from kfp_methods.claims import ClaimResult, Verdict
from kfp_methods.report import (
    MAX_CELL_CHARACTERS,
    Figure,
    Part,
    Report,
    Table,
    format_interval,
    format_number,
    legible,
    shorten,
)


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

    On the method's sample the paper's claims come first; on the user's own data their results do: highlighted
    tables, metrics, the other parts. paper: "title", and "authors", "url" where known. All text is plain and
    escaped. The same arguments give the same bytes: there is no date in it but what the arguments say.
    """
    folder = Path(__file__).parent
    script = (folder / "report.js").read_text(encoding="utf-8")
    html: str = _template(folder).render(
        report=report,
        sections=_sections(report.parts),
        method=method,
        title=title,
        paper={key: paper.get(key, "") for key in ("title", "authors", "url")},
        paper_url=_web_link(paper.get("url", "")),
        data=data,
        data_note=data_note,
        verdicts=[_Verdict.of(result) for result in claims],
        tally=_tally(claims),
        metrics=[(name, format_number(value), metric_help.get(name, "")) for name, value in metrics.items()],
        inputs=[(name, shorten(_plain(value), 2_000)) for name, value in inputs.items()],
        versions=versions,
        interrupted=status == "interrupted",
        warnings=warnings,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=(folder / "report.css").read_text(encoding="utf-8"),
    )
    return legible(html)


class _Sections(NamedTuple):
    """Parts with their numbers in the report's order: those that answer the user's question, and the others."""

    first: list[tuple[int, Part]]
    others: list[tuple[int, Part]]


def _sections(parts: Sequence[Part]) -> _Sections:
    found = _Sections([], [])
    for number, part in enumerate(parts, 1):
        answers = isinstance(part, Table) and part.highlight
        (found.first if answers else found.others).append((number, part))
    return found


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
    def quantity(self) -> str:
        """What of the samples was measured, where it is not their mean."""
        words = {"sign": "median", "binomial": "share"}.get(self.result.claim.interval, "")
        return f" ({words})" if words else ""

    @property
    def spoken(self) -> str:
        """The number line in words, for those who do not see it."""
        interval = f", {self.interval_name} {self.interval}" if self.interval else ""
        return f"Measured {self.measured}{interval}; the claim is {self.wanted}."


_LABEL_WIDTH = 30.0  # of a long number, in hundredths of the narrowest number line


class _NumberLine(NamedTuple):
    """Horizontal positions, 0 to 100, of a claim's picture: its claimed side, interval, mean and samples."""

    claimed: tuple[float, float]
    thresholds: list[float]
    labels: list[tuple[float, str]]
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
        marks = [place(edge) for edge in edges]
        labels = [(mark, format_number(edge)) for mark, edge in zip(marks, edges, strict=True)]
        if marks[-1] - marks[0] < _LABEL_WIDTH and len(marks) > 1:
            labels = [(round((marks[0] + marks[-1]) / 2, 2), f"±{format_number(claim.threshold)}")]
        return cls(claimed, marks, labels, interval, place(value), [place(sample) for sample in samples])


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

        shown = table.shown()
        numeric = [is_numeric_dtype(kind) and not is_bool_dtype(kind) for kind in shown.frame.dtypes]
        header = [_Cell(name, right) for name, right in zip(shown.names(), numeric, strict=True)]
        rows = [
            [_cell(value, right, gap) for value, right, gap in zip(row, numeric, gaps, strict=True)]
            for row, gaps in shown.rows()
        ]
        counts = ((shown.rows_left, "row"), (shown.columns_left, "column"))
        left_out = " and ".join(f"{n:,} more {noun}{'s' * (n > 1)}" for n, noun in counts if n > 0)
        return cls(header, rows, left_out)


def _cell(value: object, right: bool, missing: bool) -> _Cell:
    if missing:
        return _Cell("—", right)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        exact = int(value) if isinstance(value, numbers.Integral) else float(value)
        text = shorten(format_number(exact), MAX_CELL_CHARACTERS)
        return _Cell(text, right, "" if _reads_as(text, exact) else str(exact).replace("inf", "Infinity"))
    return _Cell(shorten(_plain(value), MAX_CELL_CHARACTERS), right)


def _reads_as(text: str, value: float) -> bool:
    """Whether the page's script, which reads a cell's text as a number, gets the exact value from it."""
    try:
        return float(text) == value
    except ValueError:
        return False


def _plain(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return repr(value)
    return str(value)


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
    return "data:image/svg+xml;charset=utf-8," + quote(legible(figure.image).replace("\n", " "), safe=" =:/;,()!*+?@$")
