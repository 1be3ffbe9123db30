"""A trace's text with each token shaded by its score, as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import numpy as np

from kfp_methods.components.language.flashtrace.running import Explained
from kfp_methods.report import Figure

_COLUMNS = 62  # characters in a line; a phone still shows them legibly
_CHARACTER, _LINE, _MARGIN = 9.0, 24.0, 12.0
_MOST_LINES = 400
_PAPER, _INK, _FAINT, _UNDERLINE = "#ffffff", "#1a1a1a", "#767676", "#D55E00"
_SHADE = (230, 159, 0)


class Piece(NamedTuple):
    """Characters of one token that stand on one line, at `column`, or none where a line begins."""

    text: str
    column: int
    line: int
    weight: float
    faint: bool
    underlined: bool


def heatmap(one: Explained) -> Figure:
    """The trace's text; the darker a token's background the larger its score, evidence underlined, the rest grey."""
    tokens = one.tokens
    pieces = list(_laid_out(one))
    n_lines = min(max(piece.line for piece in pieces) + 1, _MOST_LINES)
    width, height = 2 * _MARGIN + _COLUMNS * _CHARACTER, 2 * _MARGIN + n_lines * _LINE
    drawn = "".join(_drawn(piece) for piece in pieces if piece.line < n_lines)
    image = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="15">'
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>{drawn}</svg>'
    )
    ranked = tokens.ranked
    best = ranked[np.argsort(-one.scores["flashtrace"][ranked], kind="stable")[:8]]
    words = ", ".join(repr(tokens.text[start:stop].strip()) for start, stop in tokens.offsets[best])
    answer = textwrap.shorten(tokens.trace.output or "", 200)
    return Figure(
        name=f"trace-{_slug(tokens.trace.id)}",
        title=f"Trace {tokens.trace.id}",
        alt=f"The text of the trace, its prompt's tokens shaded by score. The highest: {words}.",
        image=image,
        caption=f"Answer: {answer} Darker: larger score. Grey: reasoning and answer, which are no part of the prompt."
        + (" Underlined: the known evidence." if one.recovery else ""),
    )


def _laid_out(one: Explained) -> Iterator[Piece]:
    """The user's prompt, then what the model wrote, broken into lines of `_COLUMNS` characters."""
    tokens, scores = one.tokens, one.scores["flashtrace"]
    shown = np.flatnonzero(tokens.of("prompt", "reasoning", "output"))
    largest = scores[tokens.ranked].max()
    column = line = 0
    before = int(tokens.offsets[shown[0], 0])
    for position in shown:
        stop = int(tokens.offsets[position, 1])
        text = tokens.text[before : max(stop, before)]
        before = max(stop, before)
        ranked = tokens.segments[position] == "prompt"
        weight = float(scores[position] / largest) if ranked and largest > 0 else 0.0
        for number, row in enumerate(text.split("\n")):
            if number:
                column, line = 0, line + 1
            if column and column + len(row) > _COLUMNS:
                column, line, row = 0, line + 1, row.lstrip(" ")
            for part in textwrap.wrap(row, _COLUMNS, drop_whitespace=False) or [""]:
                if column + len(part) > _COLUMNS:
                    column, line = 0, line + 1
                if part:
                    yield Piece(part, column, line, weight, not ranked, bool(tokens.evidence[position]))
                column += len(part)


def _drawn(piece: Piece) -> str:
    x, y = _MARGIN + piece.column * _CHARACTER, _MARGIN + piece.line * _LINE
    width = len(piece.text) * _CHARACTER
    box = line = ""
    if piece.weight > 0.01:
        red, green, blue = (round(255 - (255 - channel) * piece.weight) for channel in _SHADE)
        box = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{_LINE - 4:g}" fill="rgb({red},{green},{blue})"/>'
    if piece.underlined:
        line = f'<rect x="{x:g}" y="{y + _LINE - 5:g}" width="{width:g}" height="2" fill="{_UNDERLINE}"/>'
    colour = _FAINT if piece.faint else _INK
    # A fixed length holds the columns whatever font the reader's machine has.
    text = (
        f'<text xml:space="preserve" x="{x:g}" y="{y + 15:g}" textLength="{width:g}" lengthAdjust="spacingAndGlyphs" '
        f'fill="{colour}">{escape(_printable(piece.text))}</text>'
    )
    return box + line + (text if piece.text.strip() else "")


def _printable(text: str) -> str:
    """XML allows no control characters."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _slug(text: str) -> str:
    """A file name of an id: its letters and digits, and a number that tells like ones apart."""
    import hashlib
    import re

    plain = "-".join(re.findall(r"[A-Za-z0-9]+", text))[:40]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".strip("-")
