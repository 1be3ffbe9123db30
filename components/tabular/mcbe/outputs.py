"""From trained models to the method's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.mcbe import figures, formulas, verdicts
from kfp_methods.components.tabular.mcbe.choices import MODELS
from kfp_methods.components.tabular.mcbe.component import McbeMetrics, McbeOutputs
from kfp_methods.components.tabular.mcbe.data import Data
from kfp_methods.components.tabular.mcbe.measuring import SHARES, Measured
from kfp_methods.components.tabular.mcbe.model import Explained
from kfp_methods.components.tabular.mcbe.running import Found
from kfp_methods.report import Figure, Report, Table, Text, format_number
from kfp_methods.wording import counted

if TYPE_CHECKING:
    from kfp_methods.components.tabular.mcbe.component import McbeInputs

_LISTED = 6


def outputs(inputs: McbeInputs, found: Found) -> McbeOutputs:
    """All that a run leaves."""
    data, best = found.data, found.best
    what = "accuracy" if data.classes else "R2"
    tree = tree_score(data)
    experts, models = _experts(best, data), _models(found, what)
    model = Explained.of(
        best.trained.model, data, inputs.hidden, inputs.latent, inputs.selector, clip=inputs.clip_to_range
    )
    explained = model.explain(data.x[data.rows(2)].astype(np.float64))
    predictions = _with_truth(explained, data)
    shown = experts.drop(columns=["latex", "depth", "visitation_length"])
    parts: list[Figure | Table | Text] = [
        Table("formulas", f"Formulas: {figures.name_of(best)}", shown, "share: of test rows decided.", highlight=True),
        figures.trade_off(found, what, tree),
        Table(
            "models",
            "Every model",
            models,
            "complexity: nodes of the formulas that decide a row; total: of all in use.",
        ),
        figures.interventions(found, what),
        Table("rows", "Some test rows", predictions.head(10)),
    ]
    if found.routed is not None:
        parts.insert(2, figures.routing(found))
    curves = pd.DataFrame(
        [
            {"model": one.kind, "M": one.M, "seed": one.seed, "share": share, what.lower(): value}
            for measured in found.measured.values()
            for one in measured
            for share, value in zip(SHARES, one.curve, strict=False)
        ]
    )
    return McbeOutputs(
        report=Report(_summary(found, what), tuple(parts)),
        metrics=_metrics(found, tree),
        claims=verdicts.results(found),
        experts=Table("experts", "Formulas", experts),
        models=Table("models", "Models", models),
        predictions=Table("predictions", "Test rows", predictions),
        interventions=Table("interventions", "Interventions", curves),
        model=model,
    )


def tree_score(data: Data) -> float:
    """Of a decision tree on true concepts, also in test rows."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind: Any = DecisionTreeClassifier if data.classes else DecisionTreeRegressor
    model = kind(max_depth=8, random_state=0).fit(data.c[data.rows(0)], data.y[data.rows(0)])
    return float(model.score(data.c[data.rows(2)], data.y[data.rows(2)]))


def output_names(data: Data) -> list[str]:
    """Of the outputs O: targets, or classes whose logit a formula gives."""
    if not data.classes:
        return list(data.y_names)
    return [f"logit of {name}" for name in (data.classes[1:] if data.outputs == 1 else data.classes)]


def _experts(best: Measured, data: Data) -> pd.DataFrame:
    names = output_names(data)
    rows = [
        {
            "expert": m,
            "output": names[o],
            "formula": formulas.shown(formula, data.c_names),
            "share": share,
            "complexity": formulas.nodes(formula),
            "depth": formulas.depth(formula),
            "visitation_length": formulas.visits(formula),
            "latex": formulas.latex(formula, data.c_names),
        }
        for (m, o), (formula, share) in best.experts.items()
    ]
    return (
        pd.DataFrame(rows)
        .sort_values(["output", "share"], ascending=[True, False], kind="stable")
        .reset_index(drop=True)
    )


def _models(found: Found, what: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "model": MODELS[one.kind],
                "M": one.M or None,
                "seed": seed,
                what: one.score,
                f"{what} clipped": one.clipped,
                f"{what}, true concepts": one.with_true,
                "1 - macro F1" if found.data.classes else "mean absolute error": one.error,
                "concepts": one.concept,
                "complexity": one.complexity,
                "total": one.total,
                "experts_used": len({m for m, _ in one.experts}) or None,
                "validation_loss": one.trained.validation,
                "seconds": sum(one.trained.seconds.values()),
            }
            for seed, measured in found.measured.items()
            for one in measured
        ]
    )


def _with_truth(explained: pd.DataFrame, data: Data) -> pd.DataFrame:
    test = data.rows(2)
    frame = explained.copy()
    if data.classes:
        frame.insert(0, "true", np.array(data.classes, object)[data.y[test]])
    else:
        for o, name in enumerate(data.y_names):
            frame.insert(o, "true" if len(data.y_names) == 1 else f"true_{name}", data.y[test, o])
    for k, name in enumerate(data.c_names):
        frame[f"true_concept_{name}"] = data.c[test, k]
    return frame


def _summary(found: Found, what: str) -> str:
    best, data = found.best, found.data
    ranked = sorted(best.experts.items(), key=lambda item: -item[1][1])
    listed = [f"{formulas.shown(f, data.c_names)} ({share:.0%})" for _, (f, share) in ranked[:_LISTED]]
    more = f" and {len(ranked) - _LISTED} more" if len(ranked) > _LISTED else ""
    used = len({m for m, _ in best.experts})
    measured = next(iter(found.measured.values()))
    black = next(one for one in measured if one.kind == "black_box")
    single = next((one for one in measured if one.kind == "linear" and one.M == 1), None)
    sentences = [
        f"{used} of {best.M} {MODELS[best.kind]} decide {', '.join(data.y_names)} from the concepts "
        f"{', '.join(data.c_names[:_LISTED])}{' and more' * (len(data.c_names) > _LISTED)}: {'; '.join(listed)}{more}.",
        f"{what} on test rows is {best.score:.3f} with predicted concepts and {best.with_true or 0:.3f} with true "
        f"ones; a black box has {black.score:.3f}"
        + (f", one linear formula {single.score:.3f}." if single is not None and single is not best else "."),
        f"Concepts are predicted with {format_number(best.concept)} "
        f"({'accuracy' if all(data.binary) else 'R2' if not any(data.binary) else 'R2 or accuracy'}).",
    ]
    if found.collapsed:
        sentences.append(
            f"{counted(found.collapsed, 'start')} used one expert only; the best start by validation is kept."
        )
    return " ".join(sentences)


def _metrics(found: Found, tree: float) -> McbeMetrics:
    best, measured = found.best, next(iter(found.measured.values()))

    def score(kind: str) -> float | None:
        return next((one.score for one in measured if one.kind == kind and one.M in (0, 1)), None)

    symbolic = next((one for one in measured if one.kind == "symbolic"), None)
    first = next((one for one in measured if symbolic and one.kind == "mlp" and one.M == symbolic.M), None)
    ratio = None
    if symbolic and first:
        ratio = sum(symbolic.trained.seconds.values()) / sum(first.trained.seconds.values())
    values = {
        "score": best.score,
        "score_clipped": best.clipped,
        "score_true_concepts": best.with_true,
        "error": best.error,
        "concept_score": best.concept,
        "complexity_mean": best.complexity,
        "complexity_total": best.total,
        "experts_used": float(len({m for m, _ in best.experts})),
        "score_black_box": score("black_box"),
        "score_one_expert": score("linear"),
        "score_licem": score("licem"),
        "score_tree": tree,
        "formula_match": float(np.mean(list(found.matched.values()))) if found.matched else None,
        "collapsed_starts": float(found.collapsed),
        "sr_seconds_ratio": ratio,
    }
    return McbeMetrics.model_validate(values)
