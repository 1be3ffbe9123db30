"""Which token belongs to which segment and characters, also where borders, bytes and templates get in the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kfp_methods.components.language import models
from kfp_methods.components.language.flashtrace.traces import (
    Tokens,
    Trace,
    TraceError,
    prompt_ids,
    split_output,
    tokenise,
    without_reasoning,
)
from kfp_methods.components.language.models import LanguageModel
from tests.components.language import tiny_models

TRACE = Trace("a", "The code of Bob is 77120. What is it?", "Bob has 77120. ", "The code is 77120.", ((0, 25),))


def tokens_of(lm: LanguageModel, trace: Trace, **changes: object) -> Tokens:
    return tokenise(lm, trace, **({"skip_tokens": [",", "."], "max_tokens": 500} | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain_lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Without a chat template."""
    return models.load(tiny_models.save(tmp_path_factory.mktemp("models") / "plain", template=None))


@pytest.mark.parametrize("chat", [True, False])
def test_segments_are_those_of_the_texts(lm: LanguageModel, chat: bool) -> None:
    tokens = tokens_of(lm, Trace(**{**vars(TRACE), "chat": chat}))
    for segment, text in (("prompt", TRACE.prompt), ("reasoning", TRACE.reasoning), ("output", TRACE.output)):
        places = np.flatnonzero(tokens.of(segment))  # type: ignore[arg-type]
        assert np.array_equal(places, np.arange(places[0], places[-1] + 1))
        pieces = [text[start:stop] for start, stop in tokens.spans[places]]  # type: ignore[index]
        assert "".join(pieces).replace(" ", "") == text.replace(" ", "").replace("\n", "")  # type: ignore[union-attr]
    assert tokens.of("template").any() == chat
    assert tokens.continuation == np.flatnonzero(tokens.of("reasoning"))[0]
    assert tokens.ids[: tokens.continuation].tolist() == prompt_ids(lm, Trace(**{**vars(TRACE), "chat": chat}))


def test_evidence_is_the_tokens_of_its_characters(lm: LanguageModel) -> None:
    for chat in (True, False):
        tokens = tokens_of(lm, Trace(**{**vars(TRACE), "chat": chat}))
        marked = [TRACE.prompt[start:stop] for start, stop in tokens.spans[tokens.evidence]]
        assert "".join(marked).replace(" ", "") == "ThecodeofBobis77120"
        assert set(np.flatnonzero(tokens.evidence)) <= set(tokens.ranked)


def test_punctuation_and_white_space_are_skipped(lm: LanguageModel) -> None:
    tokens = tokens_of(lm, Trace("a", "One,  two.\nthree", output="four ."))
    skipped = {tokens.text[start:stop].strip() for start, stop in tokens.offsets[tokens.skipped]}
    assert skipped <= {"", ",", "."}
    assert {",", "."} <= skipped
    kept = tokens_of(lm, Trace("a", "One,  two.\nthree", output="four ."), skip_tokens=[])
    assert len(kept.targets) > len(tokens.targets)


def test_a_token_over_a_border_belongs_to_the_later_segment(plain_lm: LanguageModel) -> None:
    """ " code" is one token here: its first letters are the prompt's."""
    assert len(plain_lm.tokenizer.tokenize(" code")) == 1
    tokens = tokens_of(plain_lm, Trace("a", "The co", output="de is"))
    place = next(k for k, (start, stop) in enumerate(tokens.offsets) if tokens.text[start:stop].strip() == "code")
    assert tokens.segments[place] == "output"
    assert tokens.spans[place].tolist() == [0, 2]


@pytest.mark.parametrize("text", ["日本語 and 🙂 é", "🙂🙂", "naïve"])
def test_characters_of_several_tokens_are_given_to_each(plain_lm: LanguageModel, text: str) -> None:
    tokens = tokens_of(plain_lm, Trace("a", text, output=text))
    assert len(tokens) > len(text) / 2
    assert all(stop > start for start, stop in tokens.offsets)
    covered = {place for start, stop in tokens.offsets for place in range(start, stop)}
    assert {place for place, character in enumerate(tokens.text) if not character.isspace()} <= covered


def test_an_end_token_after_the_output_is_outside(plain_lm: LanguageModel) -> None:
    tokens = tokens_of(plain_lm, Trace("a", "The code", output="is it<|end|>"))
    assert tokens.segments[-1] == "end"
    assert plain_lm.tokenizer.decode(tokens.ids[-1:]) == "<|end|>"
    assert len(tokens) - 1 not in tokens.targets


def test_a_template_that_trims_moves_no_evidence(tmp_path: Path) -> None:
    template = tiny_models.TEMPLATE.replace("message['content']", "message['content'] | trim")
    lm = models.load(tiny_models.save(tmp_path / "trim", template=template))
    tokens = tokens_of(lm, Trace("a", "  \nThe code of Bob  ", output="is it", evidence=((3, 6),)))
    assert [tokens.text[start:stop] for start, stop in tokens.offsets[tokens.evidence]] == ["The"]
    assert tokens.spans[tokens.evidence].tolist() == [[3, 6]]


def test_a_prompt_with_markers_of_the_template_is_taken_as_it_is(lm: LanguageModel) -> None:
    tokens = tokens_of(lm, Trace("a", "<|start|>user\nThe code<|end|>\n<|start|>assistant\n", output="is it"))
    assert not tokens.of("template").any()
    assert tokens_of(lm, Trace("a", "The code", output="is it")).of("template").any()


def test_tokens_that_the_tokenizer_adds_are_no_prompt(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    folder = tiny_models.save(tmp_path / "bos", template=None)
    tokenizer = tiny_models.tokenizer(None)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", 1)]
    )
    tokenizer.save_pretrained(folder)
    tokens = tokens_of(models.load(folder), Trace("a", "The code", output="is it"))
    assert tokens.ids[0] == 1
    assert tokens.segments[0] == "template"
    assert tokens.segments[1] == "prompt"


@pytest.mark.parametrize(
    ("trace", "changes", "words"),
    [
        (Trace("a", "The code", output=" . , "), {}, "nothing to attribute"),
        (Trace("a", "The code", output=""), {}, "nothing to attribute"),
        (Trace("a", "The code", output="<|end|>"), {}, "nothing to attribute"),
        (Trace("a", " . ", output="is it"), {}, "prompt has only skipped"),
        (Trace("a", "The  code", output="is it", evidence=((3, 4),)), {}, "covers no token"),
        (Trace("a", "The code", output="is it", evidence=((0, 3), (3, 3))), {}, "covers no token"),
        (Trace("a", "The code", output="is it", chat=False), {"max_tokens": 3}, r"has \d+ tokens, more than 3"),
        (
            Trace("a", "The code " * 400, output="is it"),
            {"max_tokens": 10**6},
            "the model's context",
        ),
    ],
)
def test_what_cannot_be_attributed_is_explained(
    lm: LanguageModel, trace: Trace, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(TraceError, match=words):
        tokens_of(lm, trace, **changes)


def test_templates_that_will_not_do_are_explained(plain_lm: LanguageModel, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no chat template"):
        tokens_of(plain_lm, Trace("a", "The code", output="is it", chat=True))
    for template, words in (
        ("{{ messages[0]['content'] | upper }}", "changes"),
        ("{{ raise_exception('no') }}", "fails"),
    ):
        lm = models.load(tiny_models.save(tmp_path / words, template=template))
        with pytest.raises(TraceError, match=words):
            tokens_of(lm, Trace("a", "The code", output="is it"))


def test_generated_text_is_split_at_the_last_match() -> None:
    assert split_output("a</think>b</think>c", "</think>") == ("a</think>b</think>", "c")
    assert split_output("no mark", "</think>") == ("", "no mark")
    assert without_reasoning(TRACE).reasoning == ""
