"""FlashTrace: which part of a prompt made a language model give this answer, also through its reasoning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pydantic import InstanceOf, model_validator

from kfp_methods.components.language.flashtrace.choices import Baseline, RecursionSpan, Scorer
from kfp_methods.components.language.flashtrace.claims import CLAIMS
from kfp_methods.contract import (
    Dataset,
    Inputs,
    Method,
    Metrics,
    Model,
    Outputs,
    Resources,
    artifact,
    by_preset,
    metric,
    output,
    parameter,
)
from kfp_methods.errors import InputError, Problem
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.language.flashtrace.user_data import Data
    from kfp_methods.context import Context

_SMALL: list[Baseline] = ["ifr_tokenwise", "rollout", "earliest", "random"]
_USUAL: list[Baseline] = ["ifr_tokenwise", "rollout", "gradxinput", "earliest", "random"]
_ALL: list[Baseline] = [
    "ifr_tokenwise", "rollout", "gradxinput", "integrated_gradients", "leave_one_out", "earliest", "random",
]  # fmt: skip
_MEASURED: list[Scorer] = ["flashtrace", "rollout"]


class FlashTraceInputs(Inputs):
    """Which model, which traces, and how they are attributed and checked."""

    traces: Dataset | None = artifact(
        "JSON lines: id, prompt, output (absent: the model writes it), and perhaps reasoning, evidence (list of "
        "[start, end) characters of the prompt), chat (true/false). By default traces with known evidence."
    )
    model: Model | None = artifact(
        "Hugging Face folder (safetensors, tokenizer) of a Llama, Mistral, Qwen2 or Qwen3 decoder. "
        "By default SmolLM2-135M-Instruct."
    )
    hops: int = by_preset(
        "Recursive hops K through reasoning and output; 0 is the span alone.", smoke=1, sample=1, gpu=2, ge=0, le=8
    )
    recursion_span: RecursionSpan = parameter(
        "generation", "What hops go through: generation is reasoning and output, reasoning is reasoning alone."
    )
    skip_tokens: list[str] = parameter(
        [",", "."], "Tokens that are neither targets nor sources; white space never is.", max_length=1_000
    )
    baselines: list[Baseline] = by_preset("Other scores to compare with.", smoke=_SMALL, sample=_USUAL, gpu=_ALL)
    faithfulness_methods: list[Scorer] = by_preset(
        "Scores whose deletion curves (RISE, MAS) are measured, of those that run.",
        smoke=["flashtrace"],
        sample=_MEASURED,
        gpu=["flashtrace", "ifr_span", *_ALL],
    )
    faithfulness_steps: int = by_preset(
        "Groups in which the prompt's tokens are deleted; 0 measures no deletion curve.",
        smoke=2,
        sample=4,
        gpu=20,
        ge=0,
        le=100,
    )
    faithfulness_traces: int = by_preset(
        "Traces on which deletion curves are measured, from the first.", smoke=1, sample=2, gpu=64, ge=1, le=100_000
    )
    top_fraction: float = parameter(0.1, "Share of the prompt's tokens in which evidence is looked for.", gt=0, le=1)
    chunk_tokens: int = parameter(128, "Source positions at a time; fewer need less memory.", ge=1)
    recompute_attention: bool = by_preset(
        "Compute a layer's attention weights again when needed instead of keeping those of all layers.",
        smoke=False,
        sample=False,
        gpu=True,
    )
    max_tokens: int = by_preset("Longest trace in tokens.", smoke=1024, sample=1024, gpu=8192, ge=2, le=1_000_000)
    min_mass: float = parameter(1e-4, "Stop hopping when less than this is left to follow.", ge=0, lt=1)
    split_pattern: str = parameter(
        "</think>", "Regular expression: a generated text up to its last match is reasoning.", max_length=200
    )
    max_new_tokens: int = parameter(256, "Longest text that the model writes for a trace without output.", ge=1)
    top_spans: int = parameter(5, "Spans of the prompt that are listed for each trace.", ge=1, le=100)
    n_traces: int = by_preset("Embedded traces, when none are given.", smoke=1, sample=12, gpu=64, ge=1, le=10_000)
    haystack_sentences: int = by_preset(
        "Sentences around the evidence in an embedded trace.", smoke=0, sample=4, gpu=100, ge=0, le=1_000
    )
    timing_targets: list[int] = by_preset(
        "Target tokens M at which span-wise and token-wise attribution are timed; empty: no timing.",
        smoke=[4],
        sample=[8, 32, 128],
        gpu=[8, 32, 128, 512, 1024, 2048],
        max_length=20,
    )
    timing_repeats: int = by_preset(
        "Repetitions of each timing; medians count.", smoke=1, sample=3, gpu=3, ge=1, le=100
    )
    timing_limit_seconds: float = by_preset(
        "Seconds of one timing above which token-wise attribution that computes all anew is measured on some targets "
        "(at least 32, evenly spread) and scaled up.",
        smoke=1.0,
        sample=2.0,
        gpu=15.0,
        gt=0,
    )
    dtype: Literal["float32", "bfloat16", "float16"] = parameter("float32", "The model's number type.")

    @model_validator(mode="after")
    def _fits_together(self) -> FlashTraceInputs:
        problems = []
        try:
            re.compile(self.split_pattern)
        except (re.error, RecursionError, OverflowError) as error:
            remedy = "Give one such as </think>"
            problems.append(Problem("split_pattern", self.split_pattern, f"is no regular expression ({error})", remedy))
        if wrong := [M for M in self.timing_targets if M < 1]:
            problems.append(Problem("timing_targets", wrong[0], "is no number of tokens", "Give whole numbers from 1"))
        if problems:
            raise InputError(problems)
        return self


class FlashTraceMetrics(Metrics):
    """Means over traces; None where there is nothing to measure."""

    recovery_mean: float | None = metric("Evidence tokens among the top tokens, FlashTrace.", optional=True)
    recovery_ceiling: float | None = metric("The most that recovery could be.", optional=True)
    recovery_gain_vs_k0: float | None = metric("Recovery with all hops minus without any.", optional=True)
    absorbed_mass: float = metric("Share of the mass of the first pass that lies on reasoning and output.")
    absorbed_mass_without_reasoning: float | None = metric(
        "The same for the same traces without their reasoning.", optional=True
    )
    leftover_mass: float = metric("Share of the attribution that has not reached the prompt after the last hop.")
    span_correlation: float | None = metric(
        "Correlation over prompt tokens of span-wise and token-wise scores.", optional=True
    )
    rise: float | None = metric("Area under the deletion curve, FlashTrace; lower is better.", optional=True)
    mas: float | None = metric("The same with a penalty for misjudged sizes, FlashTrace.", optional=True)
    flat_deletion_curves: int = metric(
        "Deletion curves of FlashTrace whose RISE or MAS is undefined: flat, or without a score."
    )
    attrib_seconds: float = metric("Seconds of FlashTrace a trace, forward pass excluded.")
    forward_seconds: float = metric("Seconds of the forward pass a trace.")
    speedup_vs_tokenwise_time_ratio: float | None = metric(
        "Token-wise (naive) over span-wise seconds at the largest timed M.", optional=True
    )
    speedup_vs_cached_tokenwise_time_ratio: float | None = metric(
        "Token-wise (cached) over span-wise seconds at the largest timed M.", optional=True
    )


class FlashTraceOutputs(Outputs):
    """What an attribution leaves."""

    metrics: InstanceOf[FlashTraceMetrics] = output("Means over the traces.")
    token_scores: InstanceOf[Table] = output(
        "Every token of every trace: segment, characters, score, and its score in each pass.", format="parquet"
    )
    spans: InstanceOf[Table] = output("The spans of each prompt that the answer rests on most.")
    summary: InstanceOf[Table] = output("Every score: recovery, deletion curves, seconds.")
    timings: InstanceOf[Table] = output("Seconds against the number of target tokens.")


def load(inputs: FlashTraceInputs, context: Context) -> Data:
    """The model and the traces, read and checked."""
    from kfp_methods.components.language.flashtrace import user_data

    return user_data.load(inputs, context)


def run(inputs: FlashTraceInputs, data: Data, context: Context) -> FlashTraceOutputs:
    """Attributes every trace, checks the scores and times them."""
    from kfp_methods.components.language.flashtrace import running
    from kfp_methods.components.language.flashtrace.outputs import outputs

    return outputs(inputs, running.explain_all(inputs, data, context), context)


METHOD = Method(
    "flashtrace", FlashTraceInputs, FlashTraceOutputs, load, run, CLAIMS, resources=Resources(memory="16Gi")
)
