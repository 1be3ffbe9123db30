"""Which budget is enough: the smallest at which 9 of 10 releases keep a share of what least squares explains.

An owner gets one release, so the mean over releases is not what to go by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing.choices import MethodName
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import Measured
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats
from kfp_methods.report import format_number

SURE = 0.9
_LEAST_SEEDS = 10


@dataclass(frozen=True)
class Decision:
    """What a data set's simulated releases say of a real one.

    Attributes:
        measured: the data set.
        r2_ols: share of the test part's variance that least squares explains.
        sure: what 9 of 10 releases explain at least, for each budget.
        recommended: smallest budget at which that is the wanted share of least squares' or more; None without one.
        why_not: why there is none, in words.
    """

    measured: Measured
    r2_ols: float
    sure: tuple[float, ...]
    recommended: float | None
    why_not: str = ""

    @property
    def reported(self) -> float:
        """The recommended budget, else the largest."""
        return self.recommended or self.measured.settings.epsilons[-1]

    def sentence(self, delta: float) -> str:
        """The answer in words."""
        name = self.measured.case.name
        if self.recommended is None:
            return f"{name}: do not release. {self.why_not}"
        epsilon = self.recommended
        most = float(np.quantile(rmse(self.measured, "ihm", epsilon), SURE))
        ols = float(rmse(self.measured, "ols", epsilon)[0])
        none = self.measured.case.unit * float(np.sqrt(self.measured.case.test_variance))
        return (
            f"{name}: release with epsilon = {format_number(epsilon)}: 9 of 10 private fits then err by at most "
            f"{format_number(most)}, against {format_number(ols)} without privacy and {format_number(none)} without a "
            f"model, and what is published changes nobody's odds on a person's row more than "
            f"{format_number(float(np.exp(epsilon)))}-fold (delta = {format_number(delta)})."
        )


def decide(measured: Measured, wanted: float) -> Decision | None:
    """None where there is no test part."""
    settings = measured.settings
    explained = measured.r_squared("ols", settings.epsilons[0])
    if explained is None:
        return None
    r2 = float(explained[0])
    sure = []
    for epsilon in settings.epsilons:
        values = measured.r_squared("ihm", epsilon)
        assert values is not None  # noqa: S101 (there is a test part)
        sure.append(float(np.quantile(values, 1 - SURE)))
    if r2 <= 0:
        why = "Least squares itself explains nothing of the test part."
        return Decision(measured, r2, tuple(sure), None, why)
    if len(settings.seeds) < _LEAST_SEEDS:
        why = f"{len(settings.seeds)} simulated releases are too few to say what 9 of 10 do; give {_LEAST_SEEDS}."
        return Decision(measured, r2, tuple(sure), None, why)
    enough = [epsilon for epsilon, value in zip(settings.epsilons, sure, strict=True) if value >= wanted * r2]
    if enough:
        return Decision(measured, r2, tuple(sure), enough[0])
    rows = measured.case.data.moments.n
    why = (
        f"Even with epsilon = {format_number(settings.epsilons[-1])} 9 of 10 releases explain no more than "
        f"{sure[-1]:.0%} of the variance (least squares {r2:.0%}, {wanted:.0%} of it wanted): the budget is too small "
        f"for {rows:,} rows."
    )
    return Decision(measured, r2, tuple(sure), None, why)


def rmse(measured: Measured, name: MethodName, epsilon: float) -> Floats:
    """Root mean squared test error of each release in the target's units [S]."""
    errors = measured.cells[name, epsilon].test
    assert errors is not None  # noqa: S101 (asked for where there is a test part)
    return np.asarray(measured.case.unit * np.sqrt(errors), np.float64)
