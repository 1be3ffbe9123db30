"""The tables of a run: every cell, and what each budget buys on one data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.iterative_hessian_mixing.choices import TITLES
from kfp_methods.components.tabular.iterative_hessian_mixing.decision import SURE, Decision, rmse
from kfp_methods.components.tabular.iterative_hessian_mixing.dimensions import Dimension
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import Measured
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats
from kfp_methods.report import Table

_NORMAL = 1.959963984540054


def results(measured: Sequence[Measured]) -> Table:
    """Every data set, mechanism and budget."""
    frame = pd.concat([_rows(one) for one in measured], ignore_index=True)
    caption = (
        "Mean squared errors are of scaled targets, with 95% intervals of the mean over releases; excess: above least "
        "squares. Root mean squared errors are in the target's units: the median, and what 1 and 9 of 10 releases stay "
        "below."
    )
    return Table("results", "Every mechanism at every budget", frame, caption, max_rows=60)


def kept(measured: Measured, number: int) -> Table:
    """One data set's cells, for a run that is interrupted later."""
    return Table(f"kept-{number}", f"Every mechanism on {measured.case.name}", _rows(measured))


def _rows(measured: Measured) -> pd.DataFrame:
    rows = []
    for (name, epsilon), cell in measured.cells.items():
        low, high = _interval(cell.train)
        row = {
            "data": measured.case.name,
            "method": TITLES[name],
            "epsilon": epsilon,
            "delta": measured.delta,
            "releases": len(cell.train),
            "train_mse": cell.train.mean(),
            "train_mse_low": low,
            "train_mse_high": high,
            "excess": cell.train.mean() - measured.case.least,
        }
        if cell.test is not None:
            low, high = _interval(cell.test)
            errors = rmse(measured, name, epsilon)
            row |= {"test_mse": cell.test.mean(), "test_mse_low": low, "test_mse_high": high}
            row |= {"test_rmse": np.median(errors), "test_rmse_p10": np.quantile(errors, 1 - SURE)}
            row |= {"test_rmse_p90": np.quantile(errors, SURE)}
        rows.append(row)
    return pd.DataFrame(rows)


def _interval(values: Floats) -> tuple[float, float]:
    """95% interval of the mean; missing for one value."""
    if len(values) == 1:
        return float("nan"), float("nan")
    half = _NORMAL * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def decision(found: Decision, wanted: float) -> Table:
    """What each budget buys: the error of each mechanism, and whether it is enough."""
    measured = found.measured
    others = [name for name in measured.methods if name in ("adassp", "linear_mixing")]
    rows = []
    for epsilon, sure in zip(measured.settings.epsilons, found.sure, strict=True):
        errors = rmse(measured, "ihm", epsilon)
        row: dict[str, object] = {"epsilon": epsilon, "error": np.median(errors)}
        row |= {"9 of 10 below": np.quantile(errors, SURE)}
        row |= {TITLES[name]: np.median(rmse(measured, name, epsilon)) for name in others}
        row |= {"not private": rmse(measured, "ols", epsilon)[0], "R2 of 9 in 10": sure}
        rows.append(row | {"enough": "yes" if found.r2_ols > 0 and sure >= wanted * found.r2_ols else "no"})
    caption = (
        f"Median root mean squared test error of releases, in units of {measured.case.target}. R2 of 9 in 10: share of "
        f"the variance that 9 of 10 releases explain at least; enough is {wanted:.0%} of the {found.r2_ols:.3f} that "
        "least squares explains."
    )
    return Table("budgets", f"What each budget buys, {measured.case.name}", pd.DataFrame(rows), caption, highlight=True)


def overview(found: Sequence[Decision]) -> Table:
    """Each data set's recommended budget."""
    rows = [
        {
            "data": one.measured.case.name,
            "rows": one.measured.case.data.moments.n,
            "columns": one.measured.case.data.d,
            "least squares R2": one.r2_ols,
            "epsilon": np.nan if one.recommended is None else one.recommended,
            "R2 of 9 in 10": one.sure[one.measured.settings.epsilons.index(one.reported)],
            "release": "no" if one.recommended is None else "yes",
        }
        for one in found
    ]
    caption = "R2 at the recommended budget, or at the largest where none is."
    return Table("overview", "Whether to release", pd.DataFrame(rows), caption, highlight=True)


def columns(found: Sequence[Dimension]) -> Table:
    """The gap to AdaSSP by the number of columns."""
    rows = [
        {
            "columns": one.d,
            "excess": one.ihm.mean(),
            "AdaSSP excess": one.adassp.mean(),
            "ratio": one.ratio,
            "seeds": len(one.seeds),
        }
        for one in found
    ]
    caption = (
        "Rows of uniform direction, epsilon = 1; ratio: geometric mean over seeds. Such rows are well conditioned: at "
        "few columns AdaSSP's ridge vanishes, and it wins (ratio below 1)."
    )
    return Table("columns", "Advantage over AdaSSP by number of columns", pd.DataFrame(rows), caption)
