"""What the protocol says of the paper's claims; one value for each target, for choices of sources share images."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured
from kfp_methods.components.tabular.weak_monotonicity import frontier
from kfp_methods.components.tabular.weak_monotonicity.claims import (
    BELOW_MINMAX,
    FEW_LABELS,
    INCREASING,
    MONOTONE,
    NO_PRICE,
    PLATEAU,
    SHRINKS,
)
from kfp_methods.components.tabular.weak_monotonicity.frontier import Floats
from kfp_methods.wording import counted

_TARGETS = "target tasks"
_FEW, _MANY = 2, 8
_T = 0.05


def results(found: pd.DataFrame, pairs: pd.DataFrame, R: Floats) -> list[ClaimResult]:
    """Every claim's verdict; R: risks [tasks, models]."""
    table = found.pivot_table("excess", ["target", "K", "n"], "learner")
    return [
        _few(table),
        _no_price(table),
        _plateau(table),
        _below_minmax(table),
        _monotone(pairs),
        _increasing(pairs),
        _shrinks(R),
    ]


def _lacking(claim: Claim, table: pd.DataFrame, *names: str) -> ClaimResult | None:
    missing = [name for name in names if name not in table]
    return not_measured(claim, f"It needs {', '.join(missing)} among the learners.") if missing else None


def _few(table: pd.DataFrame) -> ClaimResult:
    if lacking := _lacking(FEW_LABELS, table, "erm_all", "adaptive"):
        return lacking
    part = table.query(f"n <= {_FEW} and K >= 2")
    if part.empty:
        return not_measured(FEW_LABELS, "It is about one or two labels and two sources or more.")
    gains = (part["erm_all"] - part["adaptive"]).groupby("target").mean()
    return judge(FEW_LABELS, gains, over=_TARGETS)


def _no_price(table: pd.DataFrame) -> ClaimResult:
    if lacking := _lacking(NO_PRICE, table, "erm_all", "adaptive"):
        return lacking
    # Per target the mean at each K and n is over choices of sources; the largest of these is what must be small.
    prices = (table["adaptive"] - table["erm_all"]).groupby("target").max()
    means = (table["adaptive"] - table["erm_all"]).groupby(["K", "n"]).mean()
    worst = means.sort_values().tail(1)
    [(K, n)] = worst.index.to_list()
    return judge(
        NO_PRICE, prices, f"Mean over targets at its worst (K={K}, n={n}): {worst.iloc[0]:.3f}.", over=_TARGETS
    )


def _plateau(table: pd.DataFrame) -> ClaimResult:
    if lacking := _lacking(PLATEAU, table, "erm_all", "erm_pareto"):
        return lacking
    last = table.xs(table.index.get_level_values("n").max(), level="n")
    return judge(PLATEAU, (last["erm_pareto"] - last["erm_all"]).groupby("target").mean(), over=_TARGETS)


def _below_minmax(table: pd.DataFrame) -> ClaimResult:
    names = ["erm_all", "erm_pareto", "adaptive"]
    if lacking := _lacking(BELOW_MINMAX, table, "minmax", *names):
        return lacking
    part = table.query(f"n >= {_MANY} and K >= 2")
    if part.empty:
        return not_measured(BELOW_MINMAX, f"It is about {_MANY} labels or more and two sources or more.")
    by_size = part.groupby(["target", "n"])[["minmax", *names]].mean()
    gains = (by_size["minmax"] - by_size[names].max(axis=1)).groupby("target").min()
    return judge(BELOW_MINMAX, gains, "Each target's least favourable number of labels.", over=_TARGETS)


def _shares(pairs: pd.DataFrame) -> pd.DataFrame:
    """Of ordered pairs, by target and K."""
    sums = pairs.groupby(["K", "target"])[["ordered", "pairs"]].sum()
    sums = sums[sums["pairs"] > 0]
    return (sums["ordered"] / sums["pairs"]).unstack("K")


def _monotone(pairs: pd.DataFrame) -> ClaimResult:
    shares = _shares(pairs)
    last = max(map(int, shares.columns.to_list()), default=0)
    if last < 2:
        return not_measured(MONOTONE, "It needs two sources or more, and models that dominate others.")
    note = "; ".join(f"{counted(int(str(K)), 'source')}: {share:.3f}" for K, share in shares.mean().items())
    return judge(MONOTONE, shares[last].dropna(), f"{note}.", over=_TARGETS)


def _increasing(pairs: pd.DataFrame) -> ClaimResult:
    shares = _shares(pairs)
    if shares.shape[1] < 2:
        return not_measured(INCREASING, "It needs two numbers of sources.")
    differences = (shares[shares.columns.max()] - shares[shares.columns.min()]).dropna()
    return judge(INCREASING, differences, over=_TARGETS)


def _shrinks(R: Floats) -> ClaimResult:
    ratios, pairs = [], []
    for left_out in range(len(R)):
        sources = np.delete(R, left_out, axis=0).T
        at_zero, within = frontier.covering_numbers(sources, np.array([0.0, _T]))
        ratios.append(within / at_zero)
        pairs.append(f"{within} of {at_zero}")
    return judge(SHRINKS, ratios, f"Models at t = {_T} of those at 0: {', '.join(pairs)}.", over="tasks left out")
