"""Names that a user may choose from."""

from __future__ import annotations

from typing import Literal, get_args

Baseline = Literal[
    "ifr_tokenwise", "rollout", "gradxinput", "integrated_gradients", "leave_one_out", "earliest", "random"
]
Scorer = Literal["flashtrace", "ifr_span", Baseline]
RecursionSpan = Literal["generation", "reasoning"]

BASELINES: tuple[Baseline, ...] = get_args(Baseline)
TITLES: dict[str, str] = {
    "flashtrace": "FlashTrace",
    "ifr_span": "IFR, span (no hop)",
    "ifr_tokenwise": "IFR, token by token",
    "rollout": "attention rollout",
    "gradxinput": "gradient × input",
    "integrated_gradients": "integrated gradients",
    "leave_one_out": "leave one sentence out",
    "earliest": "earliest token first",
    "random": "random order",
}


def after(hops: int) -> str:
    """The name of FlashTrace's score after fewer hops than all."""
    return f"flashtrace_{hops}"


def title(scorer: str) -> str:
    """What a scorer is called in tables and figures."""
    if scorer in TITLES:
        return TITLES[scorer]
    hops = scorer.removeprefix("flashtrace_")
    return f"FlashTrace, {hops} hop{'s' * (hops != '1')}"
