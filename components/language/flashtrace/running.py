"""Every trace is run through the model once, and every score is taken from that pass."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.language.attention import Captured, Layer, capture
from kfp_methods.components.language.flashtrace import baselines, sample
from kfp_methods.components.language.flashtrace import faithfulness as measures
from kfp_methods.components.language.flashtrace.attribution import Attribution, attribute, token_scores
from kfp_methods.components.language.flashtrace.choices import Baseline, after
from kfp_methods.components.language.flashtrace.faithfulness import Faithfulness
from kfp_methods.components.language.flashtrace.timing import Timing, seconds, sweep
from kfp_methods.components.language.flashtrace.traces import (
    Tokens,
    Trace,
    TraceError,
    prompt_ids,
    split_output,
    tokenise,
    without_reasoning,
)
from kfp_methods.components.language.flashtrace.user_data import Data, problem_of
from kfp_methods.components.language.generation import generate
from kfp_methods.components.language.models import LanguageModel
from kfp_methods.errors import InputError

if TYPE_CHECKING:
    from kfp_methods.components.language.flashtrace.component import FlashTraceInputs
    from kfp_methods.context import Context

_TEXT_SENTENCES = 18  # about 300 tokens


@dataclass(frozen=True)
class Explained:
    """One trace with all its scores.

    Attributes:
        scores: by scorer, of all its positions [N].
        seconds: by scorer, forward pass excluded where the scorer uses the shared one.
        absorbed_alone: `absorbed` of the same trace without its reasoning; None where it has none.
        faithfulness: by scorer, where it was measured.
        recovery: by scorer, of the evidence; empty where none is known.
    """

    tokens: Tokens
    attribution: Attribution
    scores: dict[str, np.ndarray]
    seconds: dict[str, float]
    forward_seconds: float
    absorbed_alone: float | None
    faithfulness: dict[str, Faithfulness]
    recovery: dict[str, float]
    ceiling: float | None

    @property
    def absorbed(self) -> float:
        """Share of the first pass's mass on reasoning and output, whatever hops go through."""
        return _absorbed(self.attribution, self.tokens)

    @property
    def leftover(self) -> float:
        """Share of the attribution that no pass has brought to the prompt."""
        return 1 - float(self.attribution.scores().double().sum())

    def recovery_at(self, hops: int, top_fraction: float) -> float:
        """Recovery of the first `hops` hops."""
        return measures.recovery(
            self.ranked(_numpy(self.attribution.scores(hops))), self.tokens.evidence[self.tokens.ranked], top_fraction
        )

    def ranked(self, scores: np.ndarray) -> np.ndarray:
        """Scores of the tokens that are ranked."""
        return scores[self.tokens.ranked]


@dataclass(frozen=True)
class Result:
    """All traces of a run, and the timings.

    Attributes:
        timed_text: what the timings were taken on.
        timed_forward: seconds of its forward pass, median of the repetitions; NaN without timings.
    """

    lm: LanguageModel
    traces: tuple[Explained, ...]
    timings: tuple[Timing, ...]
    timed_text: str
    timed_forward: float


def explain_all(inputs: FlashTraceInputs, data: Data, context: Context) -> Result:
    """Attributes every trace, then times span-wise and token-wise attribution.

    Raises:
        InputError: the model wrote an output that cannot be attributed, or its numbers are not finite.
    """
    tokens = _all_tokens(inputs, data, context)
    explained = tuple(
        _explain(inputs, data.lm, one, number)
        for number, one in enumerate(context.progress(tokens, "attributing traces"))
    )
    return Result(data.lm, explained, *_time(inputs, data, tokens, context))


def _all_tokens(inputs: FlashTraceInputs, data: Data, context: Context) -> list[Tokens]:
    """The traces' tokens, outputs written where there were none."""
    missing = [trace for trace in data.traces if trace.output is None]
    written = {trace.id: trace for trace in _written(inputs, data.lm, missing, context)} if missing else {}
    tokens, problems = [], []
    for trace in data.traces:
        try:
            known = data.tokens.get(trace.id)
            tokens.append(known or tokenise(data.lm, written[trace.id], inputs.skip_tokens, inputs.max_tokens))
        except TraceError as error:
            problems.append(problem_of(data.field, trace, error))
    if problems:
        raise InputError(problems)
    return tokens


def _written(inputs: FlashTraceInputs, lm: LanguageModel, traces: Sequence[Trace], context: Context) -> Iterator[Trace]:
    """The traces with what the model writes, its likeliest token at each step."""
    for trace in context.progress(traces, "writing outputs"):
        ids = generate(lm, [prompt_ids(lm, trace)], max_new_tokens=inputs.max_new_tokens)[0]
        text = str(lm.tokenizer.decode(ids))
        reasoning, output = split_output(text, inputs.split_pattern)
        yield Trace(trace.id, trace.prompt, reasoning, output, trace.evidence, trace.chat)


def _explain(inputs: FlashTraceInputs, lm: LanguageModel, tokens: Tokens, number: int) -> Explained:
    captured, forward_seconds = seconds(lambda: _captured(inputs, lm, tokens), lm.device)
    attribution, own_seconds = seconds(lambda: _attributed(inputs, captured.layers, tokens), lm.device)
    scores = {"flashtrace": attribution.scores()}
    scores |= {after(hops): attribution.scores(hops) for hops in range(inputs.hops - 1, 0, -1)}
    scores["ifr_span"] = attribution.scores(0)
    times = {"flashtrace": own_seconds}
    for name in inputs.baselines:
        scores[name], times[name] = seconds(_baseline(name, inputs, lm, captured.layers, tokens, number), lm.device)
    arrays = {name: _numpy(values) for name, values in scores.items()}
    evidence = tokens.evidence[tokens.ranked]
    known = bool(evidence.any())
    return Explained(
        tokens=tokens,
        attribution=attribution,
        scores=arrays,
        seconds=times,
        forward_seconds=forward_seconds,
        absorbed_alone=_absorbed_alone(inputs, lm, tokens),
        faithfulness=_faithfulness(inputs, lm, tokens, arrays) if number < inputs.faithfulness_traces else {},
        recovery={
            name: measures.recovery(values[tokens.ranked], evidence, inputs.top_fraction)
            for name, values in arrays.items()
            if known
        },
        ceiling=measures.recovery_ceiling(evidence, inputs.top_fraction) if known else None,
    )


def _captured(inputs: FlashTraceInputs, lm: LanguageModel, tokens: Tokens) -> Captured:
    ids = torch.from_numpy(tokens.ids)[None]
    return capture(lm, ids, keep_weights=not inputs.recompute_attention)


def _attributed(
    inputs: FlashTraceInputs, layers: Sequence[Layer], tokens: Tokens, hops: int | None = None
) -> Attribution:
    through = ("reasoning", "output") if inputs.recursion_span == "generation" else ("reasoning",)
    device = layers[0].entering.device

    def flags(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device)

    return attribute(
        layers,
        answer=flags(tokens.of("output")),
        recursion=flags(tokens.of(*through)),
        prompt=flags(tokens.of("prompt", "template")),
        skipped=flags(tokens.skipped),
        hops=inputs.hops if hops is None else hops,
        chunk=inputs.chunk_tokens,
        min_mass=inputs.min_mass,
    )


def _absorbed_alone(inputs: FlashTraceInputs, lm: LanguageModel, tokens: Tokens) -> float | None:
    """`Explained.absorbed` of the same trace without its reasoning."""
    if not tokens.of("reasoning").any():
        return None
    alone = tokenise(lm, without_reasoning(tokens.trace), inputs.skip_tokens, inputs.max_tokens)
    return _absorbed(_attributed(inputs, _captured(inputs, lm, alone).layers, alone, hops=0), alone)


def _absorbed(attribution: Attribution, tokens: Tokens) -> float:
    generated = tokens.of("reasoning", "output")
    return float(_numpy(attribution.hops[0])[generated].sum())


def _baseline(
    name: Baseline, inputs: FlashTraceInputs, lm: LanguageModel, layers: Sequence[Layer], tokens: Tokens, number: int
) -> Callable[[], Tensor]:
    """The work of one baseline: scores of all positions [N]."""
    ids, targets = torch.from_numpy(tokens.ids), torch.from_numpy(tokens.targets)
    here = targets.to(lm.device)
    output = torch.from_numpy(np.flatnonzero(tokens.of("output")))
    return {
        "ifr_tokenwise": lambda: token_scores(layers, here, inputs.chunk_tokens, reuse=True),
        "rollout": lambda: baselines.rollout(layers, here),
        "gradxinput": lambda: baselines.gradient_x_input(lm, ids, output),
        "integrated_gradients": lambda: baselines.integrated_gradients(lm, ids, output),
        "leave_one_out": lambda: baselines.leave_one_out(
            lm, tokens.ids.tolist(), _sentence_groups(tokens), tokens.continuation
        ),
        "earliest": lambda: baselines.earliest_first(len(tokens)),
        "random": lambda: baselines.random_scores(len(tokens), [inputs.seed, number]),
    }[name]


def _sentence_groups(tokens: Tokens) -> list[list[int]]:
    """Ranked positions of each sentence of the prompt."""
    ranked = tokens.ranked
    last = tokens.spans[ranked, 1]
    groups = [
        ranked[(last > start) & (last <= stop)].tolist() for start, stop in baselines.sentences(tokens.trace.prompt)
    ]
    return [group for group in groups if group]


def _faithfulness(
    inputs: FlashTraceInputs, lm: LanguageModel, tokens: Tokens, scores: dict[str, np.ndarray]
) -> dict[str, Faithfulness]:
    """RISE and MAS of the wanted scorers."""
    if not inputs.faithfulness_steps:
        return {}
    wanted: list[str] = [name for name in inputs.faithfulness_methods if name in scores]
    ranked = {name: scores[name][tokens.ranked] for name in wanted}
    groups = {name: measures.deletion_groups(values, inputs.faithfulness_steps) for name, values in ranked.items()}
    curves = measures.deletion_curves(lm, tokens.ids.tolist(), tokens.ranked, groups, tokens.continuation)
    return {name: measures.faithfulness(curves[name], values, groups[name]) for name, values in ranked.items()}


def _time(
    inputs: FlashTraceInputs, data: Data, tokens: Sequence[Tokens], context: Context
) -> tuple[tuple[Timing, ...], str, float]:
    """Timings on the user's longest trace, or on a text of the sample that has room for all targets.

    Returns:
        What `Result` holds of them: the timings, what they were taken on, seconds of its forward pass.
    """
    if not inputs.timing_targets or "ifr_tokenwise" not in inputs.baselines:
        return (), "", math.nan
    if inputs.traces:
        longest = max(tokens, key=len)
        ids, text = torch.from_numpy(longest.ids), f"trace {longest.trace.id}"
    else:
        most = max(inputs.timing_targets)
        n_sentences = max(_TEXT_SENTENCES, most // 12) if most > 32 else max(2, most // 2)
        encoded = data.lm.tokenizer(sample.long_text(n_sentences, inputs.seed))
        ids, text = torch.tensor(encoded.input_ids), "a text of the sample"
    ids = ids[: inputs.max_tokens]

    def forward() -> Captured:
        return capture(data.lm, ids[None], keep_weights=not inputs.recompute_attention)

    # The last one's weights are kept, and no other's beside them.
    taken = [seconds(forward, data.lm.device)[1] for _ in range(inputs.timing_repeats - 1)]
    captured, last = seconds(forward, data.lm.device)
    found = sweep(
        captured,
        inputs.timing_targets,
        hops=inputs.hops,
        chunk=inputs.chunk_tokens,
        repeats=inputs.timing_repeats,
        limit_seconds=inputs.timing_limit_seconds,
    )
    timings = tuple(context.progress(found, "timing", len(inputs.timing_targets)))
    return timings, f"{text} of {len(ids)} tokens", statistics.median([*taken, last])


def _numpy(scores: Tensor) -> np.ndarray:
    return scores.double().cpu().numpy()
