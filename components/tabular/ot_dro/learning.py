"""The upper level: which L makes the worst case least while bootstraps of the data still lie in the ball.

Minimise f(L) / scale + lambda max(0, h(L))^2 with h = mean of sigmoid(eta (d_b / eps - 1)) - gamma, by Adam; without h
a larger L would shrink the worst case to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cholesky
from scipy.special import expit

from kfp_methods.components.tabular.ot_dro import cones, derivative
from kfp_methods.components.tabular.ot_dro.choices import Gradient
from kfp_methods.components.tabular.ot_dro.cones import Data, Floats, Program, Solution
from kfp_methods.components.tabular.ot_dro.transport import Distances

_EIGENVALUES = (1e-6, 1e6)
_CLIP = 1e4
_PATIENCE = 20
_BETAS, _SMALL = (0.9, 0.999), 1e-8

# Value and gradient over x of a loss of the decision on other rows; None: the optimal value itself.
Objective = Callable[[Floats], tuple[float, Floats]]


@dataclass(frozen=True)
class Settings:
    """lambda, eta, gamma and the optimiser's numbers, as the inputs have them."""

    gamma: float = 0.1
    penalty: float = 10.0
    eta: float = 100.0
    lr: float = 1e-2
    iterations: int = 300
    tolerance: float = 1e-6
    gradient: Gradient = "envelope"


@dataclass(frozen=True)
class Problem:
    """The lower level in the data's units, the distances in standardised ones: L_raw = diag(1 / sd) L.

    Attributes:
        scale: f's unit in the penalised objective.
        objective: the upper level's loss, where that is not the certificate.
    """

    data: Data
    distances: Distances
    eps: float
    sd: Floats
    scale: float
    objective: Objective | None = None

    def raw(self, L: Floats) -> Floats:
        """L in the data's units."""
        return L / self.sd[:, None]

    def program(self, L: Floats) -> Program:
        """The lower level."""
        return cones.build(self.data, self.raw(L), self.eps)


@dataclass
class Learned:
    """The best iterate's L, and each iterate's f, h and share of bootstraps outside the ball.

    f: the certificate (of reg_sq its root). kinks, singular: of conic gradients.
    """

    L: Floats
    f: float
    history: dict[str, list[float]] = field(default_factory=dict)
    kinks: int = 0
    singular: int = 0

    @property
    def iterations(self) -> int:
        """Steps that were made."""
        return max(0, len(self.history.get("f", [])) - 1)


def learn(
    problem: Problem, settings: Settings, follow: Callable[[range], Iterable[int]] = iter
) -> Learned:  # fmt: skip
    """From L = I on; iterate 0 is a candidate, and the iterate of least penalised objective is kept."""
    k = problem.data.dimension
    L, first, second = np.eye(k), np.zeros((k, k)), np.zeros((k, k))
    found = Learned(L, np.inf, {name: [] for name in ("f", "objective", "h", "outside")})
    best, since = np.inf, 0
    for step in follow(range(settings.iterations + 1)):
        f, gradient, objective = _evaluate(problem, settings, L, found)
        if objective < best - settings.tolerance * abs(best) or step == 0:
            since = 0
        else:
            since += 1
        if objective < best:
            best, found.L, found.f = objective, L, f
        if since >= _PATIENCE or step == settings.iterations:
            break
        length = float(np.linalg.norm(gradient))
        gradient = gradient * min(1.0, _CLIP / length) if length else gradient
        first = _BETAS[0] * first + (1 - _BETAS[0]) * gradient
        second = _BETAS[1] * second + (1 - _BETAS[1]) * gradient**2
        corrected = first / (1 - _BETAS[0] ** (step + 1)), second / (1 - _BETAS[1] ** (step + 1))
        L = stabilised(L - settings.lr * corrected[0] / (np.sqrt(corrected[1]) + _SMALL))
    return found


def _evaluate(problem: Problem, settings: Settings, L: Floats, found: Learned) -> tuple[float, Floats, float]:
    """f, the gradient and the penalised objective at L, noted in `found`."""
    program = problem.program(L)
    solution = cones.solve(program)
    upper, gradient = _upper(problem, settings, L, program, solution, found)
    values, pull = problem.distances.at(L)
    soft = expit(settings.eta * (values / problem.eps - 1))
    h = float(soft.mean()) - settings.gamma
    objective = upper / problem.scale + settings.penalty * max(0.0, h) ** 2
    total = gradient / problem.sd[:, None] / problem.scale
    if h > 0:
        weights = settings.eta / problem.eps * soft * (1 - soft) / len(values)
        total = total + 2 * settings.penalty * h * pull(weights)
    for name, value in (
        ("f", solution.value), ("objective", objective), ("h", h), ("outside", float((values > problem.eps).mean())),
    ):  # fmt: skip
        found.history[name].append(value)
    return solution.value, np.tril(total), objective


def _upper(
    problem: Problem, settings: Settings, L: Floats, program: Program, solution: Solution, found: Learned
) -> tuple[float, Floats]:
    """The upper level's loss and its gradient over L in the data's units."""
    w = solution.x[program.w]
    if problem.objective is None and settings.gradient == "envelope":
        return solution.value, derivative.envelope(problem.data, problem.raw(L), problem.eps, w)
    value, dx = solution.value, program.c
    if problem.objective is not None:
        value, at_w = problem.objective(w)
        dx = np.zeros_like(program.c)
        dx[program.w] = at_w
    adjoint = derivative.conic(program, solution, dx)
    found.kinks += adjoint.kinks
    found.singular += adjoint.singular
    return value, adjoint.gradient


def stabilised(L: Floats) -> Floats:
    """The Cholesky factor of L L' with its eigenvalues clipped to 1e-6 and 1e6."""
    values, vectors = np.linalg.eigh(L @ L.T)
    H = (vectors * np.clip(values, *_EIGENVALUES)) @ vectors.T
    return np.asarray(cholesky(0.5 * (H + H.T), lower=True))
