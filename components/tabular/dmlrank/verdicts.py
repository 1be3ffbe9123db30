"""What the sample says of the paper's claims."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured
from kfp_methods.components.tabular.dmlrank import claims
from kfp_methods.components.tabular.dmlrank.running import Found
from kfp_methods.report import format_number

_OVER = "draws"


def results(found: Found) -> list[ClaimResult]:
    """Every claim's verdict."""
    return [
        *_validity(found.draws),
        _rate(found.rate),
        _plans(found.ratios),
        *_digits(found.digits),
        *_cycles(found.cycles),
    ]


def _missing(*wanted: Claim) -> list[ClaimResult]:
    why = "It needs a known truth: it is measured on the embedded sample."
    return [not_measured(claim, why) for claim in wanted]


def _validity(draws: pd.DataFrame) -> list[ClaimResult]:
    if draws.empty:
        return _missing(claims.COVERAGE, claims.PLUGIN)
    by_seed = draws.groupby("seed")[["coverage_debiased", "coverage_plugin"]].mean()
    by_score = draws.groupby("score", sort=False)[["coverage_debiased", "coverage_plugin"]].mean()
    each = [f"{name} {row.coverage_plugin:.2f} to {row.coverage_debiased:.2f}" for name, row in by_score.iterrows()]
    errors = draws[["error_debiased", "error_plugin"]][draws["score"] == draws["score"].iloc[0]].mean()
    note = (
        f"Plug-in to debiased: {', '.join(each)}. The plug-in's errors are no larger ({errors.iloc[1]:.4f} against "
        f"{errors.iloc[0]:.4f}): it is its intervals that are too short."
    )
    gain = by_seed["coverage_debiased"] - by_seed["coverage_plugin"]
    return [
        judge(claims.COVERAGE, by_seed["coverage_debiased"], note, by_seed.index, over=_OVER),
        judge(claims.PLUGIN, gain, seeds=by_seed.index, over=_OVER),
    ]


def _rate(rate: pd.DataFrame) -> ClaimResult:
    if rate.empty:
        return _missing(claims.RATE)[0]
    means = rate.groupby(["group", "score", "n"])["error"].mean().unstack("n")
    slopes = np.polynomial.polynomial.polyfit(np.log(means.columns.to_numpy(float)), np.log(means.to_numpy()).T, 1)[1]
    by_group = pd.Series(slopes, means.index).groupby("group").mean()
    by_score = pd.Series(slopes, means.index).groupby("score").mean()
    note = ", ".join(f"{name} {value:.2f}" for name, value in by_score.items())
    return judge(claims.RATE, by_group + 0.5, f"Slopes: {note}.", over="groups of draws")


def _plans(ratios: dict[str, float]) -> ClaimResult:
    if not ratios:
        return _missing(claims.PLAN)[0]
    note = ", ".join(f"{name}: {format_number(value)}" for name, value in ratios.items())
    return judge(claims.PLAN, [max(ratios.values())], f"{note}.", over="worlds")


def _digits(digits: pd.DataFrame) -> list[ClaimResult]:
    if digits.empty:
        return _missing(claims.JUDGE, claims.USELESS, claims.REAL)
    seeds = digits["seed"]
    mean = digits.mean()
    note = (
        f"Standard errors {mean['se_none']:.4f} without, {mean['se_good']:.4f} with, {mean['se_useless']:.4f} useless."
    )
    covered = (
        f"Plug-in {mean['coverage_plugin']:.2f}. The truth is of these contexts, and the intervals also allow for "
        "drawing them: they are cautious."
    )
    return [
        judge(claims.JUDGE, digits["se_good"] / digits["se_none"], note, seeds, over=_OVER),
        judge(claims.USELESS, digits["se_useless"] / digits["se_none"] - 1, seeds=seeds, over=_OVER),
        judge(claims.REAL, digits["coverage_none"], covered, seeds, over=_OVER),
    ]


def _cycles(cycles: pd.DataFrame) -> list[ClaimResult]:
    if cycles.empty:
        return _missing(claims.CYCLES, claims.CYCLES_COVERED)
    return [
        judge(claims.CYCLES, (cycles["leaders"] > 1).astype(float), seeds=cycles["seed"], over=_OVER),
        judge(claims.CYCLES_COVERED, cycles["coverage"], seeds=cycles["seed"], over=_OVER),
    ]
