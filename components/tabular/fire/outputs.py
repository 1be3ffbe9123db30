"""From what was measured to the method's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.claims import not_measured
from kfp_methods.components.tabular.fire import claims, figures, verdicts
from kfp_methods.components.tabular.fire.backends import BackendChoice
from kfp_methods.components.tabular.fire.component import FireInputs, FireMetrics, FireOutputs
from kfp_methods.components.tabular.fire.measuring import ALONE, FIRE, MEAN_ONLY, NARGP, paired, ranks
from kfp_methods.components.tabular.fire.model import MultiFidelityModel, table_of
from kfp_methods.components.tabular.fire.running import Benchmark, Predicted, options_of
from kfp_methods.components.tabular.fire.two_stage import Rows
from kfp_methods.components.tabular.fire.user_data import Features, UserData
from kfp_methods.report import Figure, Report, Table, Text, format_number

if TYPE_CHECKING:
    from pathlib import Path

_MEASURES = {
    "nrmse": "NRMSE",
    "r2": "R2",
    "nll_scaled": "NLL",
    "coverage": "80% hold",
    "fit_predict_seconds": "seconds",
}
_NOTE = (
    "NRMSE: root mean squared error / range of the test targets. NLL: negative log likelihood, targets in test sds. "
    "80% hold: share of test rows within their 80% interval."
)


def benchmarked(inputs: FireInputs, data: UserData | None, found: Benchmark, checkpoint: Path | None) -> FireOutputs:
    """All that a benchmark leaves."""
    scores, shown = found.scores, found.shown
    names = data.features if data is not None else _numbered(shown.training)
    title = f"The predicted curve, {_shown_name(data, found)}"
    parts: list[Figure | Table | Text] = [
        figures.curve(found.surrogate, shown.training, names.names, title),
        figures.budgets(scores),
        _overview(scores),
        figures.against_truth(found.found, shown.y_test, f"Predicted against true, {_shown_name(data, found)}"),
        figures.calibration(scores),
        _details(scores),
    ]
    predictions = table_of(found.surrogate, shown.X_test).assign(y=shown.y_test)
    return FireOutputs(
        report=Report(_benchmark_summary(found), tuple(parts)),
        metrics=_metrics(scores, log_ratio(scores)),
        claims=verdicts.results(scores, found.n_low, inputs.backend),
        scores=Table("scores", "Scores by problem, budget, seed and method", scores),
        predictions=Table("predictions", f"Predictions of the test rows, {_shown_name(data, found)}", predictions),
        surrogate=_model(inputs, names, shown.training, checkpoint),
    )


def predicted(inputs: FireInputs, data: UserData, found: Predicted, checkpoint: Path | None) -> FireOutputs:
    """All that a user's table gives: their predictions first."""
    rows = data.everything if data.held_out_at_random else data.training
    answers = _answers(data, found)
    parts: list[Figure | Table | Text] = [
        figures.curve(found.surrogate, rows, data.features.names, "The predicted curve"),
        Table("answers", "Predictions", answers, highlight=data.query is not None),
    ]
    if len(found.scores):
        parts += [
            _held_out(found.scores),
            figures.against_truth(found.found, data.y_test, "Predicted against true, held-out rows"),
            figures.calibration(found.scores),
        ]
    why = "The claims are about problems whose truth is known; with your own table, give mode=benchmark."
    return FireOutputs(
        report=Report(_prediction_summary(data, found), tuple(parts)),
        metrics=_metrics(found.scores, found.gain[0] if found.gain else None),
        claims=[not_measured(claim, why) for claim in claims.CLAIMS],
        scores=Table("scores", "Scores on held-out rows by method", found.scores),
        predictions=Table("predictions", "Predictions", answers),
        surrogate=_model(inputs, data.features, rows, checkpoint),
    )


def _shown_name(data: UserData | None, found: Benchmark) -> str:
    return "your table" if data is not None else found.shown_problem


def _numbered(rows: Rows) -> Features:
    return Features(tuple(f"x{i + 1}" for i in range(rows.X.shape[1])))


def _model(inputs: FireInputs, features: Features, rows: Rows, checkpoint: Path | None) -> MultiFidelityModel:
    choice = BackendChoice(
        inputs.backend, inputs.n_estimators, inputs.max_context, checkpoint=checkpoint, seed=inputs.seed
    )
    return MultiFidelityModel(features, rows, choice, options_of(inputs))


def log_ratio(scores: pd.DataFrame) -> float | None:
    """Mean log of FIRE's error / that of the costly rows alone, over cells."""
    table = paired(scores, "nrmse", FIRE, ALONE)
    return float(np.log(table[FIRE] / table[ALONE]).mean()) if len(table) else None


def _benchmark_summary(found: Benchmark) -> str:
    table = paired(found.scores, "nrmse", FIRE, ALONE)
    won, factor = int((table[FIRE] < table[ALONE]).sum()), float(np.exp(np.log(table[FIRE] / table[ALONE]).mean()))
    by_rank = ranks(found.scores, "nrmse").mean().sort_values()
    best = " and ".join(f"{name} ({rank:.1f})" for name, rank in by_rank.head(2).items())
    own = found.scores[found.scores["method"] == FIRE]
    return (
        f"With {found.n_low} cheap rows FIRE's error is {factor:.2f} times that of the same regressor on the costly "
        f"rows alone (geometric mean); it is lower in {won} of {len(table)} problems and budgets. "
        f"{own['coverage'].mean():.0%} of the test rows lie within its 80% intervals. "
        f"Best mean ranks in error among {len(by_rank)} methods: {best}; FIRE has {by_rank[FIRE]:.1f}."
    )


def _prediction_summary(data: UserData, found: Predicted) -> str:
    top = data.levels[-1]
    asked = f"{len(data.X_query):,} rows of the query" if data.query is not None else "the held-out rows"
    sentences = [f"Predictions of y at fidelity {top} for {asked}, from {len(data.training.y):,} rows of all levels."]
    if len(found.scores):
        own = found.scores.set_index("method").loc[FIRE]
        error = float(np.sqrt(np.mean((data.y_test - found.found[FIRE].mean) ** 2)))
        sentences.append(
            f"On {len(data.y_test)} held-out rows its root mean squared error is {format_number(error)} (in units of "
            f"y), and {own['coverage']:.0%} lie within their 80% intervals."
        )
    if found.gain is not None:
        sentences.append(_gain_sentence(*found.gain))
    else:
        sentences.append("How much the cheap rows helped is not known without more held-out rows.")
    return " ".join(sentences)


def _gain_sentence(log_ratio: float, low: float, high: float) -> str:
    factor, ends = np.exp(log_ratio), f"95% interval {np.exp(low):.2f} to {np.exp(high):.2f}"
    told = "helped" if high < 0 else "did harm" if low > 0 else "made no difference that these rows could show"
    return f"The cheap rows {told}: the error is {factor:.2f} times that without them ({ends})."


def _answers(data: UserData, found: Predicted) -> pd.DataFrame:
    if data.query is not None:
        plain = table_of(found.surrogate, data.X_query, data.query.index)
        clash = [name for name in plain.columns if name in data.query.columns]
        return pd.concat([data.query, plain.rename(columns={name: f"predicted_{name}" for name in clash})], axis=1)
    shown = table_of(found.surrogate, data.X_test) if len(data.X_test) else table_of(found.surrogate, data.training.X)
    truth = data.y_test if len(data.X_test) else data.training.y
    return shown.assign(y=truth)


def _overview(scores: pd.DataFrame) -> Table:
    """Mean ranks and measures of every method."""
    columns = {
        "rank, NRMSE": ranks(scores, "nrmse").mean(),
        "rank, NLL": ranks(scores, "nll_scaled").mean(),
    }
    by_method = scores.groupby("method", sort=False)
    columns |= {
        "NRMSE": by_method["nrmse"].median(),
        "NLL": by_method["nll_scaled"].median(),
        "80% hold": by_method["coverage"].mean(),
        "seconds": by_method["fit_predict_seconds"].mean(),
    }
    frame = pd.DataFrame(columns).reindex(scores["method"].unique())
    frame.index.name = "method"
    return Table("methods", "Every method: mean ranks, medians over problems and budgets", frame, _NOTE, highlight=True)


def _held_out(scores: pd.DataFrame) -> Table:
    frame = scores.set_index("method")[list(_MEASURES)].rename(columns=_MEASURES)
    return Table("held-out", "Every method on the held-out rows", frame, _NOTE, highlight=True)


def _details(scores: pd.DataFrame) -> Table:
    table = scores.pivot_table("nrmse", ["problem", "n_high"], "method", sort=False)
    table.columns.name = None
    frame = table.rename_axis(["problem", "costly rows"])
    return Table("by-problem", "NRMSE by problem and costly rows", frame, "Mean over seeds.")


def _metrics(scores: pd.DataFrame, gain: float | None) -> FireMetrics:
    values: dict[str, float | None] = {"error_ratio": None if gain is None else float(np.exp(gain))}
    if scores.empty:
        return FireMetrics.model_validate(values)
    by_method = scores.groupby("method", sort=False)
    fire = by_method.get_group(FIRE)
    values |= {
        "nrmse": _mean(fire["nrmse"]),
        "r2": _mean(fire["r2"]),
        "nll": _mean(fire["nll_scaled"]),
        "coverage_80": _mean(fire["coverage"]),
        "nrmse_costly_alone": _mean(by_method.get_group(ALONE)["nrmse"]),
        "nll_mean_only": _mean(by_method.get_group(MEAN_ONLY)["nll_scaled"]),
        "fit_predict_seconds": _mean(fire["fit_predict_seconds"]),
        "nargp_time_ratio": float(
            fire["fit_predict_seconds"].mean() / by_method.get_group(NARGP)["fit_predict_seconds"].mean()
        ),
    }
    if "problem" in scores:
        values |= {
            "rank_nrmse": _mean(ranks(scores, "nrmse")[FIRE]),
            "rank_nll": _mean(ranks(scores, "nll_scaled")[FIRE]),
        }
    return FireMetrics.model_validate(values)


def _mean(column: pd.Series) -> float | None:
    value = column.mean()
    return float(value) if np.isfinite(value) else None
