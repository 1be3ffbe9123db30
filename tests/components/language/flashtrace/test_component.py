"""The whole method on a user's tiny model and traces, and on embedded traces with the embedded model."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from kfp_methods.claims import Verdict
from kfp_methods.components.language.flashtrace import claims, running, tables
from kfp_methods.components.language.flashtrace.choices import BASELINES
from kfp_methods.components.language.flashtrace.component import METHOD, FlashTraceInputs, FlashTraceOutputs
from kfp_methods.components.language.flashtrace.faithfulness import Faithfulness
from kfp_methods.components.language.flashtrace.heatmap import heatmap
from kfp_methods.components.language.flashtrace.outputs import metrics, outputs
from kfp_methods.components.language.flashtrace.timing import Round, Timing
from kfp_methods.context import Context
from kfp_methods.errors import InputError
from kfp_methods.report import Figure
from tests.components.language.flashtrace import own_data

SETTINGS = {"preset": "smoke", "baselines": list(BASELINES), "faithfulness_methods": ["flashtrace", "random"]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return own_data.make(tmp_path_factory.mktemp("own"))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, wanted_device="cpu")


@pytest.fixture(scope="module")
def result(files: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> running.Result:
    here = Context(tmp_path_factory.mktemp("run"), wanted_device="cpu")
    inputs = FlashTraceInputs.parse(SETTINGS | files)
    return running.explain_all(inputs, METHOD.load(inputs, here), here)


@pytest.fixture(scope="module")
def found(result: running.Result, files: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> FlashTraceOutputs:
    here = Context(tmp_path_factory.mktemp("outputs"), wanted_device="cpu")
    return outputs(FlashTraceInputs.parse(SETTINGS | files), result, here)


@pytest.fixture
def run(files: dict[str, Any], context: Context) -> Callable[..., FlashTraceOutputs]:
    def work(**changes: Any) -> FlashTraceOutputs:
        inputs = FlashTraceInputs.parse(SETTINGS | files | changes)
        return METHOD.run(inputs, METHOD.load(inputs, context), context)

    return work


def test_every_token_is_in_the_table(found: FlashTraceOutputs, result: running.Result) -> None:
    frame = found.token_scores.frame
    assert list(frame["trace"].unique()) == ["rag-1", "ünï-2", "3"]
    assert {"score", "pass_0", "pass_1"} <= set(frame.columns)
    for one in result.traces:
        rows = frame[frame["trace"] == one.tokens.trace.id]
        assert len(rows) == len(one.tokens)
        assert rows["score"].sum() + one.attribution.leftover() == pytest.approx(1, abs=1e-6)
        assert not rows.loc[rows["segment"].isin(["reasoning", "output", "end"]), "score"].any()
        texts = {"prompt": one.tokens.trace.prompt, "output": one.tokens.trace.output}
        for segment, text in texts.items():
            part = rows[rows["segment"] == segment]
            for start, stop, token in zip(part["char_start"], part["char_end"], part["token"], strict=True):
                assert str(text)[start:stop] in token
        assert rows.loc[rows["segment"] == "template", "char_start"].isna().all()


def test_spans_are_the_prompts_characters(found: FlashTraceOutputs) -> None:
    prompts = {row["id"]: row["prompt"] for row in own_data.TRACES}
    frame = found.spans.frame
    assert set(frame["trace"]) == set(prompts)
    for row in frame.itertuples():
        assert prompts[row.trace][row.char_start : row.char_end] == row.text
    for _, rows in frame.groupby("trace"):
        assert rows["share"].is_monotonic_decreasing
        assert 0 < rows["share"].sum() <= 1 + 1e-9


def test_spans_are_whole_words_where_there_are_words(found: FlashTraceOutputs) -> None:
    rows = found.spans.frame
    words = set(own_data.TRACES[0]["prompt"].split())
    assert all(set(text.split()) <= words for text in rows.loc[rows["trace"] == "rag-1", "text"])
    assert tables._words("One 日本語 " + "x" * 30 + " two", np.array([3, 5, 6, 7, 20, 38, 42])).tolist() == [
        *(0, 4, 4, 4, -20, -38, 39)
    ]


def test_every_scorer_is_summarised(found: FlashTraceOutputs, result: running.Result) -> None:
    assert len(found.summary.frame) == 2 + len(BASELINES)
    one = result.traces[0]
    assert list(one.recovery) == ["flashtrace", "ifr_span", *BASELINES]
    assert all(0 <= value <= (one.ceiling or 0) for value in one.recovery.values())
    assert result.traces[1].recovery == {}
    assert set(one.faithfulness) == {"flashtrace", "random"}
    assert result.traces[1].faithfulness == {}
    table = found.summary.frame.set_index("score")
    assert table.loc["FlashTrace", "RISE"] == found.metrics.rise == one.faithfulness["flashtrace"].rise
    assert table.loc["random order", "recovery"] == one.recovery["random"]


def test_metrics_are_means_over_traces(found: FlashTraceOutputs, result: running.Result) -> None:
    means = found.metrics
    assert means.absorbed_mass == pytest.approx(np.mean([one.attribution.remaining[0] for one in result.traces]))
    assert means.leftover_mass == pytest.approx(np.mean([one.attribution.leftover() for one in result.traces]))
    assert means.leftover_mass < means.absorbed_mass
    assert means.recovery_mean == result.traces[0].recovery["flashtrace"]
    gain = result.traces[0].recovery_at(1, 0.1) - result.traces[0].recovery_at(0, 0.1)
    assert means.recovery_gain_vs_k0 == gain
    assert means.absorbed_mass_without_reasoning == result.traces[0].absorbed_alone


def test_a_missing_output_is_written_by_the_model(result: running.Result) -> None:
    trace = result.traces[2].tokens.trace
    assert trace.output
    assert (trace.id, trace.reasoning, trace.chat) == ("3", "", False)


def test_claims_are_judged_where_they_can_be(found: FlashTraceOutputs, result: running.Result) -> None:
    judged = {one.claim.id: one for one in found.claims}
    assert [one.claim for one in found.claims] == list(METHOD.claims)
    assert judged["one-hop-recovers-more"].verdict is Verdict.INCONCLUSIVE
    assert "Not decidable at this scale" in judged["one-hop-recovers-more"].note
    assert judged["span-agrees-with-tokenwise"].n == 3
    assert judged["faster-than-tokenwise-at-32-time_ratio"].verdict is Verdict.NOT_MEASURED
    assert judged["rise-below-rollout"].verdict is Verdict.NOT_MEASURED
    large = replace(result, lm=replace(result.lm, n_parameters=2_000_000_000))
    (again,) = (one for one in claims.results(large, 1, 0.1) if one.claim is claims.HOP_GAIN)
    assert not again.undecidable
    assert again.samples == judged["one-hop-recovers-more"].samples


def test_the_sign_test_is_the_binomial_one() -> None:
    for better, worse in ((0, 0), (0, 4), (5, 0), (7, 3), (10, 40)):
        gains = [0.1] * better + [-0.2] * worse + [0.0] * 3
        expected = binomtest(better, better + worse, alternative="greater").pvalue if better + worse else 1.0
        assert claims.sign_test(gains) == (better, worse, pytest.approx(expected))


def test_pictures_hold_the_text_and_no_markup_of_it(found: FlashTraceOutputs, result: running.Result) -> None:
    figures = {part.name: part for part in found.report.parts if isinstance(part, Figure)}
    assert len([name for name in figures if name.startswith("trace-")]) == 3
    picture = heatmap(result.traces[1])
    assert picture.name != heatmap(result.traces[0]).name
    image = str(picture.image)
    assert "<b>" not in image and "<i>" not in image  # noqa: PT018
    words = "".join(html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", image))
    for part in ("heißt", "日本", "$x$", "<b>&amp;", "Japan", "<i>Japan</i>"):
        assert part.replace(" ", "") in words.replace(" ", "")
    assert "<|start|>" not in words
    assert "<|end|>" not in words


def test_a_picture_never_leaves_its_width(result: running.Result) -> None:
    for one in result.traces:
        image = str(heatmap(one).image)
        width = float(re.search(r'width="([\d.]+)" height', image).group(1))  # type: ignore[union-attr]
        for x, length in re.findall(r' x="([\d.]+)" y="[\d.]+" textLength="([\d.]+)"', image):
            assert float(x) + float(length) <= width


def test_recomputed_attention_gives_the_same_scores(
    run: Callable[..., FlashTraceOutputs], found: FlashTraceOutputs
) -> None:
    again = run(recompute_attention=True, chunk_tokens=5, faithfulness_steps=0, baselines=[], timing_targets=[])
    np.testing.assert_allclose(again.token_scores.frame["score"], found.token_scores.frame["score"], atol=1e-5)
    assert again.metrics.rise is again.metrics.span_correlation is again.metrics.speedup_vs_tokenwise_time_ratio is None
    assert again.timings.frame.empty


def test_hops_through_the_reasoning_alone(run: Callable[..., FlashTraceOutputs]) -> None:
    through = run(recursion_span="reasoning", faithfulness_steps=0, baselines=[], timing_targets=[])
    frame = through.token_scores.frame
    rows = frame[frame["trace"] == "rag-1"]
    absorbed = rows.loc[rows["segment"] == "reasoning", "pass_0"].sum()
    expected = rows["pass_0"] + absorbed * rows["pass_1"]
    where = rows["segment"].isin(["prompt", "template"])
    np.testing.assert_allclose(rows.loc[where, "score"], expected[where], atol=1e-6)
    alone = frame[frame["trace"] == "ünï-2"]
    assert alone["pass_1"].isna().all()


def test_mass_is_counted_wherever_it_lies(run: Callable[..., FlashTraceOutputs], found: FlashTraceOutputs) -> None:
    """Where hops go through the reasoning alone, the output's share is absorbed too, and never reaches the prompt."""
    through = run(recursion_span="reasoning", faithfulness_steps=0, baselines=[], timing_targets=[])
    frame = through.token_scores.frame
    generated = frame[frame["segment"].isin(["reasoning", "output"])]
    assert (generated.loc[generated["segment"] == "output", "pass_0"] > 0).any()
    absorbed = generated.groupby("trace", sort=False)["pass_0"].sum()
    reached = frame.groupby("trace", sort=False)["score"].sum()
    means = through.metrics
    assert means.absorbed_mass == pytest.approx(absorbed.mean())
    assert means.absorbed_mass == pytest.approx(found.metrics.absorbed_mass)
    assert means.leftover_mass == pytest.approx(1 - reached.mean())
    assert means.leftover_mass > found.metrics.leftover_mass
    assert means.absorbed_mass_without_reasoning == found.metrics.absorbed_mass_without_reasoning
    assert f"{reached.mean():.0%} of the attribution reached the prompt" in through.report.summary
    assert f"({1 - absorbed.mean():.0%} without hops)" in through.report.summary
    judged = {one.claim: one for one in through.claims}
    assert judged[claims.MOST_ABSORBED].value == pytest.approx(absorbed["rag-1"])
    assert judged[claims.ABSORBED].n == 1


def test_no_hop_at_all(run: Callable[..., FlashTraceOutputs]) -> None:
    none = run(hops=0, faithfulness_steps=0, baselines=[], timing_targets=[])
    assert none.metrics.recovery_gain_vs_k0 is None
    assert none.metrics.leftover_mass == pytest.approx(none.metrics.absorbed_mass)
    assert "pass_1" not in none.token_scores.frame.columns


def test_more_hops_show_the_recovery_of_fewer(run: Callable[..., FlashTraceOutputs], found: FlashTraceOutputs) -> None:
    """The claim is about one hop, whatever the number of hops."""
    two = run(hops=2, faithfulness_steps=0, baselines=[], timing_targets=[])
    table = two.summary.frame.set_index("score")["recovery"]
    assert list(table.index) == ["FlashTrace", "FlashTrace, 1 hop", "IFR, span (no hop)"]
    assert table["FlashTrace, 1 hop"] == found.metrics.recovery_mean
    assert "FlashTrace, 1 hop" in next(
        part.alt for part in two.report.parts if isinstance(part, Figure) and part.name == "recovery"
    )
    gain = next(one for one in two.claims if one.claim is claims.HOP_GAIN)
    assert gain.samples == (table["FlashTrace, 1 hop"] - table["IFR, span (no hop)"],)
    assert FlashTraceInputs.parse({"preset": "gpu"}).hops == 2


def recovering(result: running.Result, gains: list[float], monkeypatch: pytest.MonkeyPatch) -> running.Result:
    """A run with a large model, in which one hop gains so much recovery on each trace and two hops lose all."""
    made = [replace(result.traces[0]) for _ in gains]
    of = {id(one): [0.5, 0.5 + gain, 0.0] for one, gain in zip(made, gains, strict=True)}
    monkeypatch.setattr(running.Explained, "recovery_at", lambda self, hops, top_fraction: of[id(self)][hops])
    return replace(result, traces=tuple(made), lm=replace(result.lm, n_parameters=claims.LARGE_MODEL))


@pytest.mark.parametrize(
    ("gains", "verdict", "words"),
    [
        ([0.1, 0.2, 0.1, 0.2, 0.15, 0.1], Verdict.SUPPORTED, "p = 0.016"),
        ([0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2], Verdict.INCONCLUSIVE, "does not tell the traces from chance"),
        ([0.01, -0.01, 0.0, 0.01, 0.0, -0.01], Verdict.NOT_SUPPORTED, "Better on 2"),
        ([0.2] * 8, Verdict.INCONCLUSIVE, "no trace differs"),
    ],
)
def test_a_hop_must_pass_both_tests(
    result: running.Result, gains: list[float], verdict: Verdict, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recovering(result, gains, monkeypatch)
    for hops in (1, 2):
        judged = {one.claim: one for one in claims.results(made, hops, 0.1)}
        assert judged[claims.HOP_GAIN].samples == pytest.approx(gains)
        assert judged[claims.HOP_GAIN].verdict is verdict
        assert words in judged[claims.HOP_GAIN].note
    assert judged[claims.HOP_KEEPS].samples == pytest.approx([-0.5] * len(gains))
    assert judged[claims.HOP_KEEPS].verdict is Verdict.INCONCLUSIVE
    assert "no trace differs" in judged[claims.HOP_KEEPS].note


def test_absorption_is_about_the_share_of_traces(result: running.Result) -> None:
    one = result.traces[0]
    more, less = replace(one, absorbed_alone=0.0), replace(one, absorbed_alone=1.0)
    for n_more, n_less, verdict in (
        (30, 0, Verdict.SUPPORTED),
        (12, 0, Verdict.INCONCLUSIVE),
        (10, 20, "not supported"),
    ):
        made = replace(result, traces=(more,) * n_more + (less,) * n_less)
        judged = next(found for found in claims.results(made, 1, 0.1) if found.claim is claims.ABSORBED)
        assert judged.verdict == verdict
        assert judged.value == pytest.approx(n_more / (n_more + n_less))
        assert f"More with reasoning on {n_more} of {n_more + n_less} traces" in judged.note


def test_few_deletion_curves_settle_nothing(result: running.Result) -> None:
    one = result.traces[0]

    def verdict(n: int, mas: float = 0.3) -> set[Verdict]:
        curves = [
            {"flashtrace": Faithfulness(0.2 + number / 100, mas), "random": Faithfulness(0.7, 0.8 + number / 100)}
            for number in range(n)
        ]
        made = replace(result, traces=tuple(replace(one, faithfulness=each) for each in curves))
        return {one.verdict for one in claims.results(made, 1, 0.1) if one.claim.id.endswith("below-random")}

    assert verdict(8) == {Verdict.SUPPORTED}
    assert verdict(7) == {Verdict.INCONCLUSIVE}
    assert verdict(8, math.nan) == {Verdict.SUPPORTED, Verdict.NOT_MEASURED}


def test_a_curve_without_mas_is_counted(result: running.Result) -> None:
    curves = (Faithfulness(0.4, math.nan), Faithfulness(math.nan, math.nan), Faithfulness(0.4, 0.5))
    traces = [
        replace(one, faithfulness={"flashtrace": curve}) for one, curve in zip(result.traces, curves, strict=True)
    ]
    found = metrics(FlashTraceInputs.parse(SETTINGS), replace(result, traces=tuple(traces)))
    assert found.flat_deletion_curves == 2
    assert (found.rise, found.mas) == (0.4, 0.5)


def test_seconds_with_the_forward_pass_are_told(result: running.Result) -> None:
    rounds = (Round(0.5, 2.0, 40.0), Round(0.6, 2.4, 48.0), Round(0.4, 1.6, 32.0))
    made = replace(result, timings=(Timing(128, 1, rounds, 32),), timed_text="a text", timed_forward=0.5)
    table = tables.timings(made)
    (row,) = table.frame.to_dict("records")
    assert row["naive_time_ratio"] == 80
    assert row["span_with_forward_seconds"] == 1.0
    assert row["naive_with_forward_time_ratio"] == 40.5
    assert row["cached_with_forward_time_ratio"] == 2.5
    assert table.caption.startswith("Median of 3 rounds on a text")
    assert "scaled up at M = 128 (from 32)" in table.caption
    once = tables.timings(replace(made, timings=(Timing(4, 1, rounds[:1], 4),)))
    assert once.caption.startswith("A single round on a text")
    assert "scaled" not in once.caption


def test_embedded_traces_run_on_a_users_model(run: Callable[..., FlashTraceOutputs]) -> None:
    found = run(traces_uri="", faithfulness_steps=0, baselines=["ifr_tokenwise"])
    assert found.metrics.recovery_ceiling is not None
    assert found.metrics.speedup_vs_tokenwise_time_ratio is not None


@pytest.mark.slow
def test_what_the_embedded_model_shows(context: Context, tmp_path: Path) -> None:
    """The claims that hold at this size, on five traces."""
    inputs = FlashTraceInputs.parse(
        {"n_traces": 5, "haystack_sentences": 4, "faithfulness_steps": 0, "baselines": ["ifr_tokenwise", "earliest"]}
        | {"timing_targets": [8, 32], "timing_repeats": 3}
    )
    result = running.explain_all(inputs, METHOD.load(inputs, context), context)
    more = [one.absorbed > (one.absorbed_alone or 0) for one in result.traces]
    assert np.mean(more) >= 0.8
    assert np.mean(claims.recovery_gains(result.traces, 1, 0.1)) == pytest.approx(0, abs=0.1)
    assert all((claims.correlation(one) or 0) > 0.9 for one in result.traces)
    assert all(np.isfinite(one.scores["flashtrace"]).all() for one in result.traces)
    assert np.mean([one.recovery["earliest"] for one in result.traces]) < 0.2, "evidence lies anywhere"
    ratios = {timing.M: timing.median.ratio("naive") for timing in result.timings}
    assert ratios[32] > max(1.0, ratios[8])


def test_the_table_survives_parquet(found: FlashTraceOutputs, tmp_path: Path) -> None:
    found.token_scores.frame.to_parquet(tmp_path / "scores.parquet", index=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "scores.parquet"), found.token_scores.frame)


def test_a_text_that_is_all_reasoning_has_no_answer(run: Callable[..., FlashTraceOutputs]) -> None:
    with pytest.raises(InputError, match="traces_uri: trace 3: nothing to attribute"):
        run(split_pattern=r"(?s).")
