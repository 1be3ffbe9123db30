"""How a cone program's solution changes with L: by the optimal value's envelope, or by the solution itself.

With z = (x, y - s) and Pi the projection on R^n x K*, solutions are the zeros of A'y + c and -A x + b - s, whose
derivative is M = (Q - I) D Pi(z) + I, Q = [[0, A'], [-A, 0]]. At kinks of Pi one element of its conservative Jacobian
is taken (Bolte et al. 2021), and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from kfp_methods.components.tabular.ot_dro.cones import Data, Floats, Program, Solution

_KINK = 1e-9


def envelope(data: Data, L: Floats, eps: float, w: Floats) -> Floats:
    """Gradient of the optimal value over L's lower triangle: tril(-kappa L^-T u u') / ||u||, u = L^-1 v [k, k]."""
    u = solve_triangular(L, data.direction(w), lower=True)
    length = float(np.linalg.norm(u))
    if length == 0:
        return np.zeros_like(L)
    outer = solve_triangular(L, np.outer(u, u), lower=True, trans="T")
    return np.asarray(np.tril(-eps * data.slope / length * outer))


@dataclass(frozen=True)
class Adjoint:
    """gradient: over L's lower triangle. kinks: of the projection at the solution; singular: M was."""

    gradient: Floats
    kinks: int
    singular: bool


def conic(program: Program, solution: Solution, dx: Floats) -> Adjoint:
    """Gradient over L of a function of the solution x, whose own gradient there is dx [n]."""
    n, m = program.A.shape[1], program.A.shape[0]
    A = program.A.toarray()
    dual = np.eye(m)
    kinks = 0
    at = 0
    v = solution.y - solution.s
    for kind, size in program.cones:
        here = slice(at, at + size)
        dual[here, here], found = _projection(kind, v[here])
        kinks += found
        at += size
    # D Pi is the identity on x, and block diagonal, symmetric on the dual part.
    M = np.block([[np.eye(n), A.T @ dual], [-A, np.eye(m) - dual]])
    M[:n, :n] = 0.0
    right = np.concatenate([dx, np.zeros(m)])
    singular = False
    try:
        g = -np.linalg.solve(M.T, right)
        singular = not np.isfinite(g).all() or np.linalg.norm(M.T @ g + right) > 1e-6 * (1 + np.linalg.norm(right))
    except np.linalg.LinAlgError:
        singular = True
    if singular:
        g = -np.linalg.lstsq(M.T, right, rcond=None)[0]
    dA = np.outer(solution.y, g[:n]) - np.outer(g[n:], solution.x)
    return Adjoint(np.tril(dA[program.L_rows, program.L_columns]), kinks, singular)


def _projection(kind: str, v: Floats) -> tuple[Floats, int]:
    """Derivative of the projection on the dual cone [size, size], and how many kinks lie at v."""
    size = len(v)
    if kind == "zero":  # its dual is everything
        return np.eye(size), 0
    if kind == "nonnegative":
        return np.diag((v > 0).astype(np.float64)), int((np.abs(v) < _KINK).sum())
    t, x = v[0], v[1:]
    length = float(np.linalg.norm(x))
    kinks = int(abs(length - abs(t)) < _KINK)
    if length <= t:
        return np.eye(size), kinks
    if length <= -t:
        return np.zeros((size, size)), kinks
    unit = x / length
    inner = (1 + t / length) * np.eye(size - 1) - t / length * np.outer(unit, unit)
    return 0.5 * np.block([[np.ones((1, 1)), unit[None]], [unit[:, None], inner]]), kinks
