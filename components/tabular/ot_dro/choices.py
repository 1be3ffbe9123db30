"""Names that inputs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Problem = Literal["po_mean", "po_cvar", "reg_abs", "reg_sq"]
PROBLEMS: Mapping[str, str] = {
    "po_mean": "Portfolio, expected return",
    "po_cvar": "Portfolio, CVaR",
    "reg_abs": "Regression, absolute error",
    "reg_sq": "Regression, squared error",
}
PORTFOLIOS: tuple[Problem, ...] = ("po_mean", "po_cvar")
InputKind = Literal["auto", "returns", "prices"]
Gradient = Literal["envelope", "conic"]
UpperObjective = Literal["certificate", "validation_loss"]
BALLS: Mapping[str, str] = {
    "learned": "learned set",
    "calibrated": "learned set, calibrated",
    "round": "round ball",
    "mahalanobis": "Mahalanobis ball",
    "none": "no robustness",
    "equal": "equal weights",
    "min_variance": "least variance",
}
SamplePart = Literal["discrete", "stocks", "regression"]
