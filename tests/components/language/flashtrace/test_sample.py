"""The embedded traces hold what they ask for, and repeat with their seed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kfp_methods.components.language.flashtrace.sample import CHAIN, NEEDLES, long_text, sentences, traces


def test_sentences_are_plain_and_distinct() -> None:
    found = sentences()
    assert len(found) == len(set(found)) > 20
    assert all(40 <= len(sentence) <= 110 and sentence.isascii() and sentence.endswith(".") for sentence in found)


def test_every_trace_holds_its_evidence_and_its_answer() -> None:
    for trace in traces(12, 6, seed=0):
        held = [trace.prompt[start:stop] for start, stop in trace.evidence]
        if trace.id.startswith("code"):
            (needle,) = held
            code = needle.removesuffix(".").split()[-1]
            assert trace.prompt.count("The access code of") == NEEDLES
            assert trace.prompt.endswith(f"What is the access code of {needle.split()[4]}?")
            assert trace.output == f"The code is {code}."
            assert code in trace.reasoning
        else:
            assert len(held) == CHAIN
            assert all(step.split()[1] in str(trace.output) for step in held)
            assert all(step.startswith("VAR") for step in held)
        assert sum(sentence in trace.prompt for sentence in sentences()) == 6


def test_of_twelve_traces_four_are_chains_with_distinct_names() -> None:
    found = traces(12, 0, seed=3)
    assert len({trace.id for trace in found}) == 12
    assert sum(trace.id.startswith("chain") for trace in found) == 4


def ranks(prompt: str, evidence: tuple[tuple[int, int], ...], start: str) -> list[int]:
    """The places of the evidence among the prompt's sentences that begin with `start`, a regular expression."""
    found = [match.start() for match in re.finditer(start, prompt)]
    return [found.index(first) for first, _ in evidence]


@pytest.mark.parametrize("seed", range(4))
def test_the_asked_for_code_is_at_each_place_equally_often(seed: int) -> None:
    asked = [
        ranks(one.prompt, one.evidence, "The access code of")[0]
        for one in traces(12, 6, seed)
        if one.id.startswith("code")
    ]
    assert sorted(asked) == sorted(2 * list(range(NEEDLES)))


def test_the_asked_for_chain_lies_anywhere_among_the_other() -> None:
    found = [
        ranks(one.prompt, one.evidence, r"(?<!= )VAR ") for one in traces(600, 0, seed=0) if one.id.startswith("chain")
    ]
    assert all(places == sorted(places) for places in found)
    assert np.mean(found) == pytest.approx((2 * CHAIN - 1) / 2, abs=0.2)
    first = np.mean([places == list(range(CHAIN)) for places in found])
    assert 0 < first < 0.15, "one of the 20 ways to mix two chains puts it wholly first"


def test_the_first_two_traces_are_of_both_kinds() -> None:
    assert [one.id for one in traces(4, 0, seed=0)] == ["code-01", "chain-02", "code-03", "code-04"]


def test_seeds_repeat() -> None:
    assert traces(3, 5, seed=1) == traces(3, 5, seed=1) != traces(3, 5, seed=2)
    assert long_text(4, 1) == long_text(4, 1) != long_text(4, 2)


def test_a_long_text_uses_every_sentence_before_any_again() -> None:
    n = len(sentences())
    assert all(long_text(n, 0).count(sentence) == 1 for sentence in sentences())
    assert all(long_text(2 * n, 0).count(sentence) == 2 for sentence in sentences())
