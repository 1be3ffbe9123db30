"""Names that a user may choose from."""

from __future__ import annotations

from typing import Literal, get_args

Baseline = Literal["ifr_tokenwise", "rollout", "gradxinput", "integrated_gradients", "leave_one_out", "random"]
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
    "random": "random order",
}
