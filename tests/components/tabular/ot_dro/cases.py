"""Small problems with known solutions."""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.ot_dro import cones
from kfp_methods.components.tabular.ot_dro.choices import Problem
from kfp_methods.components.tabular.ot_dro.cones import Data, Floats, Program, Solution

MEAN: Floats = np.array([0.1, 0.2, 0.3])
L: Floats = np.array([[1, 0, 0], [0.5, 2, 0], [0.2, -0.3, 1.5]])
S: Floats = np.array([[0.04, 0.01, 0], [0.01, 0.09, 0.02], [0, 0.02, 0.16]])
EPS = 0.3
NOTHING: Floats = np.zeros((0, 0))


def portfolio(problem: Problem = "po_mean", mean: Floats = MEAN) -> Data:
    """Three assets."""
    return Data(problem, mean, np.linalg.cholesky(S), NOTHING)


def diabetes(problem: Problem) -> Data:
    """Sixty patients, three features."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return Data(problem, np.zeros(0), NOTHING, np.column_stack([20 * X[:60, :3], (y[:60] - 150) / 77]))


def solved(data: Data, metric: Floats, eps: float = EPS) -> tuple[float, Floats, Program, Solution]:
    """Value, decision, program and solution."""
    program = cones.build(data, metric, eps)
    solution = cones.solve(program)
    return solution.value, solution.x[program.w], program, solution
