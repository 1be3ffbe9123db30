"""From what was found to the method's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.ot_dro import figures, running, solving, verdicts
from kfp_methods.components.tabular.ot_dro.choices import BALLS, PORTFOLIOS, PROBLEMS
from kfp_methods.components.tabular.ot_dro.component import OtDroMetrics, OtDroOutputs
from kfp_methods.components.tabular.ot_dro.model import LinearDecision
from kfp_methods.components.tabular.ot_dro.running import Found
from kfp_methods.components.tabular.ot_dro.solving import Solved
from kfp_methods.report import Figure, Report, Table, Text, format_number
from kfp_methods.wording import counted

if TYPE_CHECKING:
    from kfp_methods.components.tabular.ot_dro.component import OtDroInputs

_NOTHING = 1e-8  # an interior point method does not say 0
_SMALL = 0.005  # weights below are not named in the summary


def outputs(inputs: OtDroInputs, found: Found) -> OtDroOutputs:
    """All that a run leaves."""
    main = found.main
    decisions, weights = solving.table(main), _weights(found)
    caption = "Lower is better. Without robustness the certificate is the loss on its own rows."
    chosen = Table("decisions", f"Decisions: {found.title}", decisions, caption, highlight=True)
    numbers = Table("weights", "What each decides", weights, max_rows=50)
    parts: list[Figure | Table | Text] = [chosen, numbers, figures.learning(found, inputs.gamma)]
    if main.decisions["learned"].test is not None:
        parts.append(figures.losses(found))
    parts += [figures.sets(found)] if len(main.L) > 1 else []
    runs = running.runs(found)
    if found.years:
        parts.append(figures.years(found.years))
    if len(runs):
        parts.append(Table("runs", "Every run of the sample", runs))
    transport = pd.DataFrame(main.L, columns=list(found.names))
    transport.insert(0, "column", list(found.names))
    return OtDroOutputs(
        report=Report(_summary(inputs, found), tuple(parts)),
        metrics=_metrics(main),
        claims=verdicts.results(found, inputs.gamma),
        decisions=Table("decisions", "Decisions", decisions),
        weights=Table("weights", "What each decides", weights),
        transport=Table("transport", "The learned metric L", transport),
        history=Table("history", "Learning", pd.DataFrame(main.learned.history).rename_axis("step").reset_index()),
        runs=Table("runs", "Runs of the sample", runs),
        decision=_model(found),
    )


def _decided(found: Found) -> tuple[str, ...]:
    """Names of the decision's numbers."""
    return found.names if found.main.setup.problem in PORTFOLIOS else found.names[:-1]


def _weights(found: Found) -> pd.DataFrame:
    """A row for each asset or feature, a column for each set."""
    columns = {
        BALLS[ball]: np.where(np.abs(one.w) < _NOTHING, 0.0, one.w) for ball, one in found.main.decisions.items()
    }
    return pd.DataFrame({"name": list(_decided(found)), **columns})


def _summary(inputs: OtDroInputs, found: Found) -> str:
    main = found.main
    learned, ball, plain = (main.decisions[name] for name in ("learned", "round", "none"))
    named = sorted(zip(_decided(found), learned.w, strict=True), key=lambda pair: -abs(pair[1]))
    portfolio = main.setup.problem in PORTFOLIOS
    shown = [
        f"{name} {w:.1%}" if portfolio else f"{name} {format_number(float(w))}"
        for name, w in named[:6]
        if abs(w) >= _SMALL
    ]
    what = "Hold" if portfolio else "Coefficients:"
    more = sum(abs(w) >= _SMALL for _, w in named[6:])
    sentences = [
        f"{PROBLEMS[main.setup.problem]}, {found.title}. {what} "
        f"{', '.join(shown)}{f' and {more} more' if more else ''}: in the worst case over the learned set the loss is "
        f"{format_number(learned.certificate)}, over the round ball of the same radius "
        f"{format_number(ball.certificate)}; {main.outside:.0%} of the bootstraps lie outside ({main.fresh:.0%} fresh)."
    ]
    if learned.test is not None:
        sentences.append(
            f"On the test rows its loss was {format_number(learned.test)} ({_held(main)}); the round ball's decision "
            f"{format_number(ball.test)}, without robustness {format_number(plain.test)}"
            + (f", equal weights {format_number(main.decisions['equal'].test)}." if portfolio else ".")
        )
    if found.years:
        sentences.append(_by_year(found.years))
    if main.learned.singular or main.learned.kinks:
        kinks, singular = counted(main.learned.kinks, "kink"), counted(main.learned.singular, "singular system")
        sentences.append(f"Conic gradients met {kinks} and {singular}.")
    return " ".join(sentences)


def _held(solved: Solved) -> str:
    one = solved.decisions["learned"]
    assert one.test is not None and one.certificate is not None  # noqa: S101
    return "within the certificate" if one.test <= one.certificate else "above the certificate"


def _by_year(years: dict[int, Solved]) -> str:
    better = sum(_loss(one, "learned") < _loss(one, "round") for one in years.values())
    held = sum(_held(one) == "within the certificate" for one in years.values())
    mean = {
        name: float(np.mean([_loss(one, name) for one in years.values()])) for name in ("learned", "round", "equal")
    }
    return (
        f"Over {counted(len(years), 'year')} of stocks the certificate held in {held}, the learned set's decision beat "
        f"the round ball's in {better}, and mean losses were {format_number(mean['learned'])} and "
        f"{format_number(mean['round'])} (equal weights {format_number(mean['equal'])}) % a week: returns change their "
        "law from year to year, which no set around last year's knows."
    )


def _loss(solved: Solved, name: str) -> float:
    value = solved.decisions[name].test
    assert value is not None  # noqa: S101
    return value


def _metrics(main: Solved) -> OtDroMetrics:
    names = {
        "": "learned",
        "_calibrated": "calibrated",
        "_round": "round",
        "_mahalanobis": "mahalanobis",
        "_saa": "none",
    }
    certificates = {f"certificate{suffix}": main.decisions[name].certificate for suffix, name in names.items()}
    values = certificates | {
        "oos_loss": main.decisions["learned"].test,
        "oos_loss_round": main.decisions["round"].test,
        "oos_loss_saa": main.decisions["none"].test,
        "violation_share": main.outside,
        "fresh_violation_share": main.fresh,
        "radius": main.eps,
        "iterations": float(main.learned.iterations),
        "condition_number": float(np.linalg.cond(main.L)),
        "seconds_per_iteration_ratio": main.seconds_per_iteration / main.round_seconds,
    }
    return OtDroMetrics.model_validate(values)


def _model(found: Found) -> LinearDecision:
    main, names = found.main, _decided(found)
    w = main.decisions["learned"].w
    portfolio = main.setup.problem in PORTFOLIOS
    intercept = 0.0 if portfolio else float(found.centre[-1] - w @ found.centre[:-1])
    about = {
        "problem": main.setup.problem,
        "certificate": main.decisions["learned"].certificate,
        "certificate_calibrated": main.decisions["calibrated"].certificate,
        "radius": main.eps,
    }
    row = (main.rows.mean(0) + found.centre)[: len(names)]
    return LinearDecision(names, "portfolio_return" if portfolio else found.names[-1], w, intercept, row, main.L, about)
