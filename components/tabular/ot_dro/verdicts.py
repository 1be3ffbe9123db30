"""What the sample says of the paper's claims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured
from kfp_methods.components.tabular.ot_dro import claims
from kfp_methods.components.tabular.ot_dro.running import Drawn, Found
from kfp_methods.components.tabular.ot_dro.solving import Solved

_NONE = "It is about the embedded sample's {}."


def results(found: Found, gamma: float) -> list[ClaimResult]:
    """Every claim's verdict."""
    return [*_drawn(found.drawn, gamma), *_stocks(found.years)]


def _certificate(solved: Solved, ball: str) -> float:
    value = solved.decisions[ball].certificate
    assert value is not None  # noqa: S101 (robust decisions have one)
    return value


def _test(solved: Solved, ball: str) -> float:
    value = solved.decisions[ball].test
    assert value is not None  # noqa: S101 (the sample has rows to test on)
    return value


def _drawn(drawn: list[Drawn], gamma: float) -> list[ClaimResult]:
    def by_seed(claim: Claim, value: Callable[[Solved], float], note: str = "") -> ClaimResult:
        """Means over sizes and numbers of bootstraps, for these share their rows."""
        values: dict[int, list[float]] = {}
        for one in drawn:
            values.setdefault(one.seed, []).append(value(one.solved))
        means = [float(np.mean(v)) for v in values.values()]
        return judge(claim, means, note, list(values), over="draws")

    def tighter(ball: str) -> Callable[[Solved], float]:
        return lambda solved: _certificate(solved, ball) - _certificate(solved, "round")

    one_by_one = (
        claims.TIGHTER, claims.CALIBRATED, claims.COVERAGE, claims.FRESH, claims.DECISION, claims.RELIABLE,
    )  # fmt: skip
    if not drawn:
        return [not_measured(claim, _NONE.format("discrete law")) for claim in one_by_one]
    worse = sum(tighter("learned")(one.solved) >= 0 for one in drawn)
    held = {one.seed: True for one in drawn}
    for one in drawn:
        held[one.seed] &= _test(one.solved, "learned") <= _certificate(one.solved, "learned")
    share = np.mean([_test(one.solved, "learned") <= _certificate(one.solved, "learned") for one in drawn])
    return [
        by_seed(claims.TIGHTER, tighter("learned"), f"Not lower in {worse} of {len(drawn)} runs."),
        by_seed(claims.CALIBRATED, tighter("calibrated")),
        by_seed(claims.COVERAGE, lambda solved: solved.outside - gamma),
        by_seed(claims.FRESH, lambda solved: solved.fresh - gamma),
        by_seed(claims.DECISION, lambda solved: _test(solved, "learned") - _test(solved, "round")),
        judge(
            claims.RELIABLE,
            [float(value) for value in held.values()],
            f"It held in {share:.0%} of the runs; a draw counts where it held for every number of bootstraps.",
            list(held),
            over="draws",
        ),
    ]


def _stocks(years: dict[int, Solved]) -> list[ClaimResult]:
    if not years:
        return [not_measured(claim, _NONE.format("stocks")) for claim in (claims.STOCKS_TIGHTER, claims.STOCKS_BETTER)]
    tighter = [_certificate(one, "learned") - _certificate(one, "round") for one in years.values()]
    better = [_test(one, "learned") - _test(one, "round") for one in years.values()]
    kept = {
        ball: sum(_test(one, ball) <= _certificate(one, ball) for one in years.values())
        for ball in ("learned", "round")
    }
    note = (
        f"The loss of the next year was within the certificate in {kept['learned']} of {len(years)} years with the "
        f"learned set and in {kept['round']} with the round ball: the law changes from year to year."
    )
    return [
        judge(claims.STOCKS_TIGHTER, tighter, over="years"),
        judge(claims.STOCKS_BETTER, better, note, over="years"),
    ]
