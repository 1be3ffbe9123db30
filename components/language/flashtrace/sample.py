"""Embedded traces with known evidence: access codes and chains of variables, hidden among real sentences.

The sentences are those of the descriptions of data sets that come with scikit-learn (BSD licence). Reasoning and
answer are given, so that every model is asked about the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np

from kfp_methods.components.language.flashtrace.traces import Trace

LICENCE = "sentences of scikit-learn's data set descriptions: BSD 3-clause"
NEEDLES = 4
CHAIN = 3
_NAMES = ("Alice", "Bruno", "Clara", "David", "Elena", "Felix", "Grace", "Henry", "Irene", "James", "Karen", "Louis")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PLAIN = re.compile(r"[A-Z][A-Za-z0-9 ,;()'/%-]+\.")


def sentences() -> list[str]:
    """Distinct plain sentences of 40 to 110 characters, in the order of the files."""
    origin = find_spec("sklearn")
    assert origin is not None and origin.origin is not None  # noqa: S101 (the group's image has it)
    found: dict[str, None] = {}
    for file in sorted(Path(origin.origin).parent.glob("datasets/descr/*.rst")):
        text = " ".join(file.read_text(encoding="utf-8").split())
        found |= dict.fromkeys(s for s in _SENTENCE.split(text) if 40 <= len(s) <= 110 and _PLAIN.fullmatch(s))
    return list(found)


def traces(n: int, n_sentences: int, seed: int) -> list[Trace]:
    """`n` traces with `n_sentences` of haystack each: of three, two ask for an access code, one for a chain.

    Where the evidence lies tells nothing: of four traces with codes, one asks for the first, one for the second, …,
    and the steps of the two chains are mixed.
    """
    rng = np.random.default_rng(seed)
    haystack, ranks = sentences(), _ranks(rng)
    made = []
    for number in range(1, n + 1):
        hay = _hay(haystack, n_sentences, rng)
        if number % 3 == 2:
            made.append(_chain(f"chain-{number:02d}", hay, rng))
        else:
            made.append(_needles(f"code-{number:02d}", hay, next(ranks), rng))
    return made


def long_text(n_sentences: int, seed: int) -> str:
    """Haystack only: what the timings are taken on."""
    return " ".join(_hay(sentences(), n_sentences, np.random.default_rng(seed)))


def _hay(haystack: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    """`n` sentences, none twice while there are enough."""
    rounds = [rng.permutation(len(haystack)) for _ in range(-(-n // len(haystack)))]
    return [haystack[row] for row in np.concatenate(rounds)[:n]] if n else []


def _ranks(rng: np.random.Generator) -> Iterator[int]:
    """Numbers 0 … NEEDLES - 1, each as often as any other."""
    while True:
        yield from map(int, rng.permutation(NEEDLES))


def _needles(id: str, hay: list[str], asked: int, rng: np.random.Generator) -> Trace:
    """Asks for the code that stands `asked` codes after the first."""
    names = rng.choice(_NAMES, NEEDLES, replace=False)
    codes = [_number(rng) for _ in names]
    needles = [f"The access code of {name} is {code}." for name, code in zip(names, codes, strict=True)]
    name, code = names[asked], codes[asked]
    prompt, evidence = _hidden(hay, needles, [needles[asked]], f"What is the access code of {name}?", rng)
    reasoning = f"The question is about {name}. The text says that the access code of {name} is {code}.\n"
    return Trace(id, prompt, reasoning, f"The code is {code}.", evidence)


def _chain(id: str, hay: list[str], rng: np.random.Generator) -> Trace:
    letters = rng.choice(list(_LETTERS), 4 * CHAIN, replace=False)
    variables = ["".join(pair) for pair in letters.reshape(-1, 2)]
    chains, values = (variables[:CHAIN], variables[CHAIN:]), [_number(rng) for _ in range(2)]
    steps = [
        [f"VAR {first} = {value}.", *(f"VAR {b} = VAR {a}." for a, b in pairwise(chain))]
        for chain, value in zip(chains, values, strict=True)
        for first in chain[:1]
    ]
    mixed = [iter(chain) for chain in steps]
    needles = [next(mixed[which]) for which in rng.permutation(np.repeat([0, 1], CHAIN))]
    prompt, evidence = _hidden(hay, needles, steps[0], f"Which variables have the value {values[0]}?", rng)
    a, b, c = chains[0]
    reasoning = f"{a} is set to {values[0]}. {b} copies {a}. {c} copies {b}.\n"
    return Trace(id, prompt, reasoning, f"The variables are {a}, {b} and {c}.", evidence)


def _hidden(
    hay: list[str], needles: list[str], wanted: list[str], question: str, rng: np.random.Generator
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A prompt in which the needles, in their order, lie at random places, and where the wanted ones are."""
    places = np.sort(rng.integers(0, len(hay) + 1, len(needles)))
    mixed: list[str] = []
    for place in range(len(hay) + 1):
        mixed += [needle for needle, where in zip(needles, places, strict=True) if where == place]
        mixed += hay[place : place + 1]
    prompt = f"{' '.join(mixed)}\n\n{question}"
    return prompt, tuple((start := prompt.index(needle), start + len(needle)) for needle in wanted)


def _number(rng: np.random.Generator) -> str:
    return str(rng.integers(10_000, 100_000))
