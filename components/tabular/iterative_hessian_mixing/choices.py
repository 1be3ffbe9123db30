"""The words a user may choose from, and what they are called in a report."""

from __future__ import annotations

from typing import Literal

MethodName = Literal["ihm", "adassp", "linear_mixing", "ihm_one_step", "dp_gd", "ols"]
SketchMode = Literal["covariance", "explicit"]
AdaSSPVariant = Literal["official", "wang"]
SamplePart = Literal["boston", "diabetes", "diamonds", "dimensions", "large"]

METHODS: tuple[MethodName, ...] = ("ihm", "adassp", "linear_mixing", "ihm_one_step", "dp_gd", "ols")
TITLES: dict[str, str] = {
    "ihm": "iterative Hessian mixing",
    "adassp": "AdaSSP",
    "linear_mixing": "linear mixing",
    "ihm_one_step": "mixing, one step",
    "dp_gd": "private gradient descent",
    "ols": "least squares (not private)",
}
