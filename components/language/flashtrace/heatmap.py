"""A trace's text with each token shaded by its score, as a picture."""

from __future__ import annotations

import hashlib
import re
import textwrap
import unicodedata
from collections.abc import Iterator
from html import escape
from itertools import groupby
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
    """Characters of one token that stand on one line, from `column` on."""

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
    """The user's prompt, then, after an empty line, what the model wrote; each token's characters line by line."""
    tokens, scores = one.tokens, one.scores["flashtrace"]
    largest = scores[tokens.ranked].max()
    text, owners = _shown_text(one)
    placed = zip(text, owners, _places(text), strict=True)
    for (owner, line), group in groupby(placed, key=lambda entry: (entry[1], entry[2][0])):
        characters = [(character, column) for character, _, (_, column) in group if character != "\n"]
        if owner < 0 or not characters:
            continue
        in_prompt = tokens.segments[owner] == "prompt"
        weight = float(scores[owner] / largest) if in_prompt and largest > 0 else 0.0
        words = "".join(character for character, _ in characters)
        yield Piece(words, characters[0][1], line, weight, not in_prompt, bool(tokens.evidence[owner]))


def _shown_text(one: Explained) -> tuple[str, list[int]]:
    """What is shown, and the token that each character belongs to (−1 for the empty line between)."""
    tokens = one.tokens
    text, owners = "", list[int]()
    before, written = int(tokens.offsets[tokens.of("prompt")][0, 0]), False
    for position in np.flatnonzero(tokens.of("prompt", "reasoning", "output")):
        if not written and tokens.segments[position] != "prompt":
            written, before = True, int(tokens.offsets[position, 0])
            text, owners = f"{text}\n\n", [*owners, -1, -1]
        stop = max(int(tokens.offsets[position, 1]), before)
        text += tokens.text[before:stop]
        owners += [int(position)] * (stop - before)
        before = stop
    return text, owners


def _places(text: str) -> Iterator[tuple[int, int]]:
    """(line, column) of each character, lines broken between words."""
    line = column = 0
    for match in re.finditer(r"\n|[^\S\n]+|\S+", text):
        word = match.group()
        if word.strip() and column and column + _width(word) > _COLUMNS:
            line, column = line + 1, 0
        for character in word:
            if column + _width(character) > _COLUMNS:
                line, column = line + 1, 0
            yield line, column
            column += _width(character)
        if word == "\n":
            line, column = line + 1, 0


def _width(text: str) -> int:
    """Columns: two for a wide character such as a Chinese one."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _drawn(piece: Piece) -> str:
    x, y = _MARGIN + piece.column * _CHARACTER, _MARGIN + piece.line * _LINE
    width = _width(piece.text) * _CHARACTER
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
    plain = "-".join(re.findall(r"[A-Za-z0-9]+", text))[:40]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".strip("-")
