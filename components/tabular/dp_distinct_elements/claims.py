"""The paper's claims, and how each is measured."""

from __future__ import annotations

from kfp_methods.claims import Claim

_SEPARATION = "any private mechanism needs about T^(1/3) bits on some streams, though O(log T) do without privacy"
SAMPLE_HOLD_SLOPE = Claim(
    id="private-memory-is-polynomial",
    statement="The low-memory private mechanism's memory grows polynomially in T, near T^(1/3)",
    paper=_SEPARATION,
    measure="log-log slope of sample and hold's peak bits over T at cap T^(2/3), minus 0.4; within 0.15; one value for "
    "each stream's seed",
    direction="within",
    threshold=0.15,
)
COUNTER_SLOPE = Claim(
    id="non-private-memory-is-logarithmic",
    statement="Without privacy one counter is enough",
    paper=_SEPARATION,
    measure="log-log slope of the counter's bits over T; below 0.15 (log T itself has 0.11 here)",
    direction="less",
    threshold=0.15,
    interval="exact",
)
LINEAR_SLOPE = Claim(
    id="remembering-everyone-is-linear",
    statement="The tree mechanism that remembers every user takes memory linear in their number",
    paper="the upper bound that it compares with (Jain et al. 2023)",
    measure="log-log slope of its peak bits over T, minus 1; within 0.1; one value for each stream's seed",
    direction="within",
    threshold=0.1,
)
NOCAP_FAILS = Claim(
    id="without-caps-the-attack-wins",
    statement="Saving memory by not capping heavy users breaks the promise",
    paper="capping contributions is what costs memory",
    measure="least delta of the uncapped mechanism at the promised epsilon, by the exact attack on its heaviest user, "
    "over the promised delta; above 1",
    direction="greater",
    threshold=1.0,
    interval="exact",
)
HONEST_PASS = Claim(
    id="with-caps-it-does-not",
    statement="Mechanisms that cap every user keep the promise against the same attack",
    paper="they are (epsilon, delta)-private at the level of users",
    measure="the same ratio, largest over capped mechanisms; below 1",
    direction="less",
    threshold=1.0,
    interval="exact",
    least=0.0,
)
AVOIDANCE = Claim(
    id="memory-buys-avoidance",
    statement="Who remembers a bit more than the heavy users can keep them out of what is given away",
    paper="the message passing game behind the lower bound",
    measure="heavy users' share of what is given away / their share of all, remembering 8 ids for 5 heavy users; "
    "below 0.1; one value for each game",
    direction="less",
    threshold=0.1,
    least=0.0,
)
NO_MEMORY = Claim(
    id="no-memory-no-avoidance",
    statement="Without memory heavy users are given away as often as others",
    paper="the message passing game behind the lower bound",
    measure="the same ratio without memory, minus 1; within 0.1; one value for each game",
    direction="within",
    threshold=0.1,
)
ERROR_SLOPE = Claim(
    id="error-grows-like-the-root-of-the-cap",
    statement="The error of the tree mechanism grows like the square root of the cap",
    paper="the upper bounds that it compares with",
    measure="log-log slope of RMSE over caps 4 to 256, minus 1/2, on the stream of players with 4 changes at most, "
    "fresh noise for each cap; within 0.05; one value for each seed",
    direction="within",
    threshold=0.05,
)
CLAIMS = (
    SAMPLE_HOLD_SLOPE,
    COUNTER_SLOPE,
    LINEAR_SLOPE,
    NOCAP_FAILS,
    HONEST_PASS,
    AVOIDANCE,
    NO_MEMORY,
    ERROR_SLOPE,
)
