"""A trace (prompt, reasoning, output) becomes tokens that know which segment and which characters they stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from kfp_methods.components.language.models import LanguageModel

Segment = Literal["template", "prompt", "reasoning", "output", "end"]
_PLACEHOLDER = "\N{OBJECT REPLACEMENT CHARACTER}prompt\N{OBJECT REPLACEMENT CHARACTER}"


class TraceError(ValueError):
    """A trace that cannot be used; its text says why and what would do."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")


@dataclass(frozen=True)
class Trace:
    """What a model was given and what it wrote.

    Attributes:
        reasoning: written before the output; may be empty.
        output: what is to be explained; None when the model is still to write it.
        evidence: ranges of characters of the prompt that the answer is known to rest on.
        chat: put the prompt into the model's chat template; None where it has one.
    """

    id: str
    prompt: str
    reasoning: str = ""
    output: str | None = None
    evidence: tuple[tuple[int, int], ...] = ()
    chat: bool | None = None


@dataclass(frozen=True)
class Tokens:
    """A trace as the model reads it, N tokens.

    Attributes:
        text: all that the model reads.
        ids: [N].
        offsets: characters of `text` [N, 2]; tokens that share a character of several bytes all have it.
        segments: "template" is the chat template around the prompt, "end" an end token after the output.
        spans: characters in the segment's own text [N, 2]; (0, 0) outside prompt, reasoning and output.
        skipped: white space and other tokens that are neither targets nor sources, bool [N].
        evidence: tokens of the known evidence, bool [N].
    """

    trace: Trace
    text: str
    ids: np.ndarray
    offsets: np.ndarray
    segments: tuple[Segment, ...]
    spans: np.ndarray
    skipped: np.ndarray
    evidence: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, *segments: Segment) -> np.ndarray:
        """Which tokens are in these segments, bool [N]."""
        return np.isin(np.array(self.segments), segments)

    @property
    def ranked(self) -> np.ndarray:
        """Positions of the user's prompt that are ranked, deleted and recovered: template and skipped ones are not."""
        return np.flatnonzero(self.of("prompt") & ~self.skipped)

    @property
    def targets(self) -> np.ndarray:
        """Positions of the output that are explained."""
        return np.flatnonzero(self.of("output") & ~self.skipped)

    @property
    def continuation(self) -> int:
        """The first position after the prompt and its template."""
        return int(np.flatnonzero(self.of("reasoning", "output"))[0])


class _Part(NamedTuple):
    """Characters start..stop of the text that the model reads; `shift` leads back to the segment's own characters."""

    segment: Segment
    start: int
    stop: int
    shift: int = 0


def without_reasoning(trace: Trace) -> Trace:
    """The same prompt and output with nothing between."""
    return replace(trace, reasoning="")


def prompt_ids(lm: LanguageModel, trace: Trace) -> list[int]:
    """What the model is to continue.

    Raises:
        TraceError: the chat template cannot take the prompt.
    """
    text, chat = _prompt_text(lm, trace)[0], _uses_template(lm, trace)
    return list(lm.tokenizer(text, add_special_tokens=not chat).input_ids)


def tokenise(lm: LanguageModel, trace: Trace, skip_tokens: Sequence[str], max_tokens: int) -> Tokens:
    """The trace as one text, tokenised once, its tokens mapped to segments by their characters.

    A token that straddles a border belongs to the later segment.

    Raises:
        TraceError: nothing to attribute, too long, evidence that covers no token, or a prompt the template changes.
    """
    text, parts = _render(lm, trace)
    chat = _uses_template(lm, trace)
    encoded = lm.tokenizer(
        text, add_special_tokens=not chat, return_offsets_mapping=True, return_special_tokens_mask=True
    )
    ids = np.array(encoded.input_ids)
    limit = min(max_tokens, lm.max_positions)
    if len(ids) > limit:
        which = "max_tokens" if limit == max_tokens else "the model's context"
        raise TraceError(f"it has {len(ids)} tokens, more than {limit} ({which})", "Shorten it or raise max_tokens")
    added = _added(encoded.offset_mapping, ids, encoded.special_tokens_mask)
    offsets = _filled(np.array(encoded.offset_mapping), added)
    segments, spans = _placed(offsets, added, parts)
    segments = _without_end(segments, ids, lm.end_ids)
    words = [text[start:stop].strip() for start, stop in offsets]
    skipped = np.array([not word or word in skip_tokens for word in words]) & ~added
    evidence = _evidence(trace, segments, spans, skipped)
    tokens = Tokens(trace, text, ids, offsets, tuple(segments), spans, skipped, evidence)
    _check(tokens)
    return tokens


def split_output(text: str, pattern: str) -> tuple[str, str]:
    """(reasoning, output) of a generated text: reasoning ends with the last match of the pattern."""
    ends = [match.end() for match in re.finditer(pattern, text)]
    cut = ends[-1] if ends else 0
    return text[:cut], text[cut:]


def _uses_template(lm: LanguageModel, trace: Trace) -> bool:
    """As the trace says; by default where there is a template and the prompt has no markers of it already."""
    if trace.chat is not None:
        return trace.chat
    return bool(lm.tokenizer.chat_template) and not any(
        mark in trace.prompt for mark in lm.tokenizer.all_special_tokens
    )


def _prompt_text(lm: LanguageModel, trace: Trace) -> tuple[str, int, int]:
    """The prompt as the model reads it, and the range of the user's own text in it."""
    if not _uses_template(lm, trace):
        return trace.prompt, 0, len(trace.prompt)
    if not lm.tokenizer.chat_template:
        raise TraceError("it has chat=true, and the tokenizer has no chat template", "Leave chat out")
    try:
        around, whole = (
            str(
                lm.tokenizer.apply_chat_template(
                    [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
                )
            )
            for content in (_PLACEHOLDER, trace.prompt)
        )
    except Exception as error:  # a template may raise anything
        raise TraceError(f"the chat template fails ({str(error)[:80]})", "Give chat=false") from None
    before, _, after = around.partition(_PLACEHOLDER)
    kept = whole[len(before) : len(whole) - len(after)]
    if not (whole.startswith(before) and whole.endswith(after) and kept in (trace.prompt, trace.prompt.strip())):
        raise TraceError("the chat template changes the prompt's text", "Give chat=false and the whole text as prompt")
    return whole, len(before), len(before) + len(kept)


def _render(lm: LanguageModel, trace: Trace) -> tuple[str, list[_Part]]:
    """The text that the model reads, and its parts."""
    text, start, stop = _prompt_text(lm, trace)
    stripped = len(trace.prompt) - len(trace.prompt.lstrip()) if stop - start < len(trace.prompt) else 0
    written = (trace.reasoning, trace.output or "")
    edges = [len(text), len(text) + len(written[0]), len(text) + len(written[0]) + len(written[1])]
    parts = [
        _Part("template", 0, start),
        _Part("prompt", start, stop, start - stripped),
        _Part("template", stop, edges[0]),
        _Part("reasoning", edges[0], edges[1], edges[0]),
        _Part("output", edges[1], edges[2], edges[1]),
    ]
    return text + "".join(written), parts


def _added(offsets: Sequence[tuple[int, int]], ids: np.ndarray, special: Sequence[int]) -> np.ndarray:
    """Tokens that the tokenizer put there itself: special, and standing for no characters."""
    return np.array([bool(mark) and start == stop for (start, stop), mark in zip(offsets, special, strict=True)])


def _filled(offsets: np.ndarray, added: np.ndarray) -> np.ndarray:
    """Character spans in which an empty one, part of a character of several bytes, takes its neighbour's."""
    filled = offsets.copy()
    known = [place for place in range(len(filled)) if filled[place, 1] > filled[place, 0]]
    for place in np.flatnonzero((filled[:, 1] == filled[:, 0]) & ~added):
        if known:
            filled[place] = offsets[min(known, key=lambda other: (abs(other - place), other > place))]
    return filled


def _placed(offsets: np.ndarray, added: np.ndarray, parts: Sequence[_Part]) -> tuple[list[Segment], np.ndarray]:
    """Each token's segment, by its last character, and its characters in that segment's own text."""
    segments: list[Segment] = []
    spans = np.zeros_like(offsets)
    for place, (start, stop) in enumerate(offsets):
        part = next((part for part in parts if part.start < stop <= part.stop), None)
        if added[place] or part is None:
            segments.append("template")
            continue
        segments.append(part.segment)
        if part.segment != "template":
            spans[place] = max(start, part.start) - part.shift, stop - part.shift
    return segments, spans


def _without_end(segments: list[Segment], ids: np.ndarray, end_ids: Sequence[int]) -> list[Segment]:
    """An end token after the output belongs to no segment that is explained."""
    last = len(segments)
    while last and (segments[last - 1] == "template" or ids[last - 1] in end_ids):
        last -= 1
    return [*segments[:last], *(["end"] * (len(segments) - last))]  # type: ignore[list-item]


def _evidence(trace: Trace, segments: Sequence[Segment], spans: np.ndarray, skipped: np.ndarray) -> np.ndarray:
    """Tokens of the prompt, skipped ones apart, that overlap a range of evidence."""
    countable = np.array([segment == "prompt" for segment in segments]) & ~skipped
    found = np.zeros(len(segments), bool)
    for start, stop in trace.evidence:
        covered = countable & (spans[:, 0] < stop) & (spans[:, 1] > start)
        if not covered.any():
            problem = f"its evidence [{start}, {stop}) covers no token of the prompt"
            raise TraceError(problem, "Give a range of characters that holds words")
        found |= covered
    return found


def _check(tokens: Tokens) -> None:
    if not len(tokens.targets):
        raise TraceError("nothing to attribute: its output has only skipped tokens", "Give an output with words")
    if not len(tokens.ranked):
        raise TraceError("its prompt has only skipped tokens", "Give a prompt with words")
