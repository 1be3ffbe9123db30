"""What a benchmark says of the paper's claims."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured
from kfp_methods.components.tabular.fire.claims import (
    BEATS_ALONE,
    BEST_ERROR,
    BEST_LIKELIHOOD,
    DISTRIBUTION,
    DISTRIBUTION_GP,
    ERROR_RATIO,
    FASTER,
)
from kfp_methods.components.tabular.fire.measuring import ALONE, FIRE, MEAN_ONLY, NARGP, by, paired, ranks

_CELLS = "cells"


def results(scores: pd.DataFrame, n_low: int, backend: str) -> list[ClaimResult]:
    """Every claim's verdict; backend: the regressor that FIRE was run with first."""
    network = (by(FIRE, "pfn"), by(MEAN_ONLY, "pfn")) if backend == "gp" else (FIRE, MEAN_ONLY)
    process = (FIRE, MEAN_ONLY) if backend == "gp" else (by(FIRE, "gp"), by(MEAN_ONLY, "gp"))
    return [
        _beats(scores),
        _ratio(scores),
        _distribution(DISTRIBUTION, scores, *network),
        _distribution(DISTRIBUTION_GP, scores, *process),
        _best(BEST_ERROR, scores, "nrmse"),
        _best(BEST_LIKELIHOOD, scores, "nll_scaled"),
        _faster(scores, n_low, network[0]),
    ]


def _beats(scores: pd.DataFrame) -> ClaimResult:
    table = paired(scores, "nrmse", FIRE, ALONE)
    worse = table.index[table[FIRE] >= table[ALONE]]
    lost = [f"{problem} at {n}" for problem, n in worse.to_list()]
    note = f"Not in: {', '.join(lost)}." if lost else ""
    return judge(BEATS_ALONE, (table[FIRE] < table[ALONE]).astype(float), note, over=_CELLS)


def _ratio(scores: pd.DataFrame) -> ClaimResult:
    table = paired(scores, "nrmse", FIRE, ALONE)
    logs = np.log(table[FIRE] / table[ALONE])
    return judge(ERROR_RATIO, logs, f"The geometric mean of the ratios is {np.exp(logs.mean()):.2f}.", over=_CELLS)


def _distribution(claim: Claim, scores: pd.DataFrame, full: str, mean_only: str) -> ClaimResult:
    table = paired(scores, "nll_scaled", full, mean_only)
    if table.empty:
        return not_measured(claim, "The problems have more columns than the network takes.")
    gains = table[mean_only] - table[full]
    note = f"Better in {int((gains > 0).sum())} of {len(gains)} cells."
    return judge(claim, gains, note, over=_CELLS)


def _best(claim: Claim, scores: pd.DataFrame, value: str) -> ClaimResult:
    table = ranks(scores, value)
    means = table.mean()
    best = str(means.drop(FIRE).idxmin())
    note = f"Mean ranks: {', '.join(f'{name} {rank:.1f}' for name, rank in means.sort_values().items())}."
    return judge(claim, table[FIRE] - table[best], f"The best other is {best}. {note}", over=_CELLS)


def _faster(scores: pd.DataFrame, n_low: int, network: str) -> ClaimResult:
    if n_low < 1_000:
        return not_measured(FASTER, f"It is about 1,000 cheap rows or more; here are {n_low}.")
    seconds = scores.pivot_table("fit_predict_seconds", "seed", "method")
    logs = np.log((seconds[network] / seconds[NARGP]).to_numpy())
    return judge(FASTER, logs, seeds=[int(seed) for seed in seconds.index.to_list()])
