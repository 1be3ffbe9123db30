"""From what was measured to the method's outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.claims import not_measured
from kfp_methods.components.tabular.weak_monotonicity import figures, frontier, selecting, verdicts
from kfp_methods.components.tabular.weak_monotonicity.choices import LEARNERS
from kfp_methods.components.tabular.weak_monotonicity.claims import CLAIMS
from kfp_methods.components.tabular.weak_monotonicity.component import (
    WeakMonotonicityMetrics,
    WeakMonotonicityOutputs,
)
from kfp_methods.components.tabular.weak_monotonicity.running import Found
from kfp_methods.components.tabular.weak_monotonicity.selecting import Picked
from kfp_methods.report import Figure, Report, Table, Text

_TRUSTED = 0.9


def outputs(found: Found) -> WeakMonotonicityOutputs:
    """All that a run leaves."""
    modulus, selection = found.modulus, selecting.table(found.picked, found.models)
    chosen = Table("selection", f"What each rule picks for {found.target}", selection, highlight=True)
    parts: list[Figure | Table | Text] = [chosen]
    if len(found.curve):
        parts = [figures.curves(found), *parts]
    parts += [figures.moduli(found, modulus), _frontier(found, 20), figures.parallel(found)]
    if len(found.curve):
        parts.append(Table("curve", "Excess risk by labels", found.curve))
    if found.risks is None:
        why = "The claims are about many tasks whose every risk is known: they are measured on the embedded sample."
        results = [not_measured(claim, why) for claim in CLAIMS]
    else:
        results = verdicts.results(found.found, found.pairs, found.risks)
    return WeakMonotonicityOutputs(
        report=Report(_summary(found), tuple(parts)),
        metrics=_metrics(found, modulus),
        claims=results,
        selection=Table("selection", "What each rule picks", _with_weights(found, selection)),
        frontier=_frontier(found, len(found.models)),
        curve=Table("curve", "Excess risk by labels", found.curve),
        modulus=Table("modulus", "Moduli and covering numbers", modulus),
    )


def _summary(found: Found) -> str:
    sentences = [_advice(found)]
    on_frontier = int(found.pool.on_frontier.sum())
    sentences.append(
        f"{on_frontier} of {len(found.models)} models are on the frontier of {len(found.tasks)} source tasks: no other "
        "is as good everywhere and better somewhere."
    )
    if found.Q is not None:
        ordered, pairs = frontier.monotone_pairs(found.pool.R, found.Q)
        if pairs:
            share = ordered / pairs
            word = "is plausible here" if share >= _TRUSTED else "is doubtful here"
            sentences.append(
                f"Of {pairs:,} pairs in which one model dominates the other, {found.target} orders {share:.0%} alike: "
                f"weak monotonicity {word}."
            )
    if len(found.found):
        sentences.append(_few_labels(found.curve))
    return " ".join(sentences)


def _advice(found: Found) -> str:
    by_name = {one.learner: one for one in found.picked}
    one = by_name.get("adaptive") or next((p for p in found.picked if p.model is not None), found.picked[0])
    if one.model is None:
        return f"No rule that picks one model was asked for; {LEARNERS[one.learner]} mixes them."
    name = found.models[one.model]
    if one.loss is None or one.again is None:
        return f"Without labels of the target, {LEARNERS[one.learner]} picks {name}: how sure that is cannot be said."
    ends = "" if one.interval is None else f" (95% interval {one.interval[0]:.3g} to {one.interval[1]:.3g})"
    advice = (
        f"Pick {name} for {found.target}: the {LEARNERS[one.learner]} rule's choice from {found.n} labels, with a mean "
        f"loss of {one.loss:.3g} on them{ends}. Other examples of this number would "
        f"lead to the same pick {one.again:.0%} of the time."
    )
    return advice + _against_all(one, by_name.get("erm_all"), found)


def _against_all(one: Picked, plain: Picked | None, found: Found) -> str:
    if plain is None or plain.model is None or plain.model == one.model:
        return ""
    among = f" (one of {plain.tied} that these labels cannot tell apart)" if plain.tied > 1 else ""
    return f" Labels alone would have picked {found.models[plain.model]}{among}."


def _few_labels(curve: pd.DataFrame) -> str:
    K, n = curve["K"].max(), curve["n"].min()
    part = curve[(curve["K"] == K) & (curve["n"] == n)].set_index("learner")["mean"]
    named = [f"{LEARNERS[name]} {part[name]:.3f}" for name in ("adaptive", "erm_all", "minmax") if name in part]
    return f"Over choices of {K} source tasks, excess risk with {n} label{'s' * int(n > 1)}: {', '.join(named)}."


def _frontier(found: Found, most: int) -> Table:
    domination = found.pool.domination
    frame = pd.DataFrame(found.pool.R, columns=list(found.tasks))
    frame.insert(0, "model", list(found.models))
    frame.insert(1, "on_frontier", domination.on_frontier)
    frame.insert(2, "margin", domination.margin)
    frame.insert(3, "dominated_by", [found.models[i] if i >= 0 else None for i in domination.by])
    frame = frame.iloc[np.lexsort((found.pool.R.mean(1), domination.margin, ~domination.on_frontier))]
    caption = "margin: by how much another model is better on every task at once."
    return Table("frontier", "Models, the frontier first", frame.head(most).reset_index(drop=True), caption)


def _with_weights(found: Found, selection: pd.DataFrame) -> pd.DataFrame:
    weights = [
        "; ".join(f"{found.models[i]}={one.weights[i]:.4f}" for i in np.flatnonzero(one.weights > 1e-6))
        for one in found.picked
    ]
    return selection.assign(weights=weights)


def _metrics(found: Found, modulus: pd.DataFrame) -> WeakMonotonicityMetrics:
    values: dict[str, float | None] = {
        "frontier_size": float(found.pool.on_frontier.sum()),
        "cover_number_t": float(found.pool.cover(max(1, found.n)).sum()),
    }
    if found.Q is not None:
        ordered, pairs = frontier.monotone_pairs(found.pool.R, found.Q)
        values["monotone_pair_rate"] = ordered / pairs if pairs else None
        values["upper_modulus_0"] = _finite(modulus["upper"].iloc[0])
    if len(found.curve):
        part = found.curve[found.curve["K"] == found.curve["K"].max()]
        for label, n in (("fewest", part["n"].min()), ("most", part["n"].max())):
            at = part[part["n"] == n].set_index("learner")["mean"]
            for name in ("adaptive", "erm_all", "erm_pareto"):
                values[f"excess_{name}_{label}"] = float(at[name]) if name in at else None
    chosen = next((one for one in found.picked if one.learner == "adaptive"), None)
    values |= {"picked_loss": chosen.loss if chosen else None, "picked_again": chosen.again if chosen else None}
    return WeakMonotonicityMetrics.model_validate(values)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
