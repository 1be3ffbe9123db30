"""The robust decision as a cone program: minimise c'x subject to A x + s = b, s in K.

The worst case over the ball {Q: W_p^L(P, Q) <= eps} of transport cost ||L'(a - b)||^p has a closed form in
||L^-1 v||, where v is what multiplies the uncertain quantity: v = w for a portfolio, v = (-w, 1) on (x, y) for a
regression. L enters A only, through q with L q = v, and ||q|| <= t. (Ohnemus et al., arXiv 2509.12689.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kfp_methods.components.tabular.ot_dro.choices import PORTFOLIOS, Problem

Floats = NDArray[np.float64]
Cone = tuple[Literal["zero", "nonnegative", "second_order"], int]
_WANTED, _ACCEPTED = 1e-10, 1e-8  # wanted, for gradients need it; and what is taken where no more can be had

_ITERATIONS = 200


class NotSolvedError(Exception):
    """The solver did not reach its tolerances; the text is its status."""


@dataclass(frozen=True)
class Data:
    """What a decision is made on.

    Attributes:
        mean [k], root [k, k]: of returns; root C has C C' = covariance.
        rows [N, k + 1]: features and target of a regression; empty for a portfolio.
        beta: tail probability of CVaR.
        lower, upper: bounds of each weight of a portfolio.
    """

    problem: Problem
    mean: Floats
    root: Floats
    rows: Floats
    beta: float = 0.05
    lower: float = 0.0
    upper: float = 1.0

    @property
    def size(self) -> int:
        """Numbers in the decision w."""
        return len(self.mean) if self.problem in PORTFOLIOS else self.rows.shape[1] - 1

    @property
    def dimension(self) -> int:
        """Of the uncertain quantity, and of L."""
        return self.size if self.problem in PORTFOLIOS else self.size + 1

    @property
    def tail(self) -> float:
        """a = sqrt((1 - beta) / beta): CVaR of the worst law with a mean and variance is mean + a sd."""
        return float(np.sqrt((1 - self.beta) / self.beta))

    @property
    def slope(self) -> float:
        """What eps ||L^-1 v|| is multiplied with."""
        return float(np.sqrt(1 + self.tail**2)) if self.problem == "po_cvar" else 1.0

    def direction(self, w: Floats) -> Floats:
        """v of a decision."""
        return w if self.problem in PORTFOLIOS else np.append(-w, 1.0)


@dataclass(frozen=True)
class Program:
    """A cone program; w: the decision's place in x. L_rows, L_columns: A[L_rows, L_columns] holds L."""

    c: Floats
    A: sparse.csc_matrix
    b: Floats
    cones: tuple[Cone, ...]
    w: slice
    L_rows: slice
    L_columns: slice


@dataclass(frozen=True)
class Solution:
    """x [n], slacks s [m] and dual variables y [m] of a program."""

    x: Floats
    s: Floats
    y: Floats
    value: float


class _Builder:
    """Columns by name, and blocks of rows."""

    def __init__(self, sizes: dict[str, int]) -> None:
        ends = np.cumsum([0, *sizes.values()])
        self.columns = {name: slice(a, b) for name, a, b in zip(sizes, ends[:-1], ends[1:], strict=True)}
        self.n = int(ends[-1])
        self.c = np.zeros(self.n)
        self.blocks: list[sparse.spmatrix] = []
        self.b: list[Floats] = []
        self.cones: list[Cone] = []
        self.m = 0

    def add(self, cone: Literal["zero", "nonnegative", "second_order"], b: Floats, **parts: Floats) -> slice:
        """Rows sum of part @ variable + s = b, s in the cone; gives their place."""
        height = len(b)
        # In the columns' order: `sparse.hstack` of one block for each variable.
        self.blocks.append(
            sparse.hstack([
                sparse.csc_matrix(parts[name]) if name in parts else sparse.csc_matrix((height, at.stop - at.start))
                for name, at in self.columns.items()
            ])
        )  # fmt: skip
        self.b.append(np.asarray(b, np.float64))
        self.cones.append((cone, height))
        self.m += height
        return slice(self.m - height, self.m)

    def program(self, L_rows: slice) -> Program:
        A = sparse.csc_matrix(sparse.vstack(self.blocks))
        return Program(
            self.c,
            A,
            np.concatenate(self.b),
            tuple(self.cones),
            self.columns["w"],
            L_rows,
            self.columns.get("q", slice(0, 0)),
        )


def build(data: Data, L: Floats, eps: float) -> Program:
    """The program whose value is the worst case over the ball of L and eps; of reg_sq its root."""
    k, dim = data.size, data.dimension
    sizes = {"w": k} | ({"q": dim, "t": 1} if eps else {})  # without a ball nothing would hold q and t
    match data.problem:
        case "po_cvar":
            sizes["r"] = 1
        case "reg_abs":
            sizes["u"] = len(data.rows)
        case "reg_sq":
            sizes["r"] = 1
    to = _Builder(sizes)
    L_rows = slice(0, 0)
    if data.problem in PORTFOLIOS:
        to.add("zero", np.ones(1), w=np.ones((1, k)))
        to.add("nonnegative", np.full(k, -data.lower), w=-np.eye(k))
        if data.upper < 1 or data.lower < 0:
            to.add("nonnegative", np.full(k, data.upper), w=np.eye(k))
        to.c[to.columns["w"]] = -data.mean
    if eps:
        to.c[to.columns["t"]] = eps * data.slope
        # L q - v = 0, with v = w or (-w, 1).
        linear, constant = (-np.eye(k), np.zeros(k)) if dim == k else (np.eye(k + 1, k), np.append(np.zeros(k), 1.0))
        L_rows = to.add("zero", constant, w=linear, q=L)
        to.add("second_order", np.zeros(dim + 1), **_norm("q", "t", np.eye(dim)))
    _loss(to, data)
    return to.program(L_rows)


def _norm(vector: str, length: str, of: Floats) -> dict[str, Floats]:
    """Parts of (length, of @ vector) in the second-order cone, for b = 0."""
    above = np.zeros((1, of.shape[1]))
    return {vector: -np.vstack([above, of]), length: -np.eye(len(of) + 1, 1)}


def _loss(to: _Builder, data: Data) -> None:
    """What the loss needs beside the ball."""
    k = data.size
    if data.problem == "po_cvar":
        to.add("second_order", np.zeros(k + 1), **_norm("w", "r", data.root.T))
        to.c[to.columns["r"]] = data.tail
    if data.problem == "reg_abs":
        X, y, N = data.rows[:, :-1], data.rows[:, -1], len(data.rows)
        to.add("nonnegative", -y, w=-X, u=-np.eye(N))
        to.add("nonnegative", y, w=X, u=-np.eye(N))
        to.c[to.columns["u"]] = 1 / N
    if data.problem == "reg_sq":
        # ||y - X w|| = ||R (-w, 1)|| with [X y] = Q R: the cone's size does not grow with N.
        R = np.linalg.qr(data.rows, mode="r") / np.sqrt(len(data.rows))
        to.add(
            "second_order", np.append(0.0, R[:, -1]), w=np.vstack([np.zeros(k), R[:, :-1]]), r=-np.eye(len(R) + 1, 1)
        )
        to.c[to.columns["r"]] = 1.0


def build_dense(mean: Floats, points: Floats, L: Floats, eps: float) -> Program:
    """po_mean with p = 2 as its dual states it, a cone for each of N points: the same value as `build`, and slower.

    sup over the ball of E[-w'z] = inf over lambda >= 0 of lambda eps^2 + mean of tau_i, with
    tau_i >= -w'z_i + ||L^-1 w||^2 / (4 lambda).
    """
    N, k = points.shape
    to = _Builder({"w": k, "q": k, "lambda": 1, "tau": N})
    to.add("zero", np.ones(1), w=np.ones((1, k)))
    L_rows = to.add("zero", np.zeros(k), w=-np.eye(k), q=L)
    to.add("nonnegative", np.zeros(k), w=-np.eye(k))
    for i in range(N):
        # g = tau_i + w'z_i >= ||q||^2 / (4 lambda), as ||(q, lambda - g)|| <= lambda + g.
        z, at = np.zeros((k + 2, k)), np.zeros((k + 2, N))
        z[0], z[-1] = -points[i], points[i]
        at[0, i], at[-1, i] = -1.0, 1.0
        q, scale = np.zeros((k + 2, k)), np.zeros((k + 2, 1))
        q[1:-1], scale[0], scale[-1] = -np.eye(k), -1.0, -1.0
        to.add("second_order", np.zeros(k + 2), w=z, tau=at, q=q, **{"lambda": scale})
    to.c[to.columns["lambda"]], to.c[to.columns["tau"]] = eps**2, 1 / N
    return to.program(L_rows)


def solve(program: Program) -> Solution:
    """By Clarabel's interior point method.

    Raises:
        NotSolvedError: also after attempts with a scaled objective and wider tolerances.
    """
    import clarabel

    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonnegative": clarabel.NonnegativeConeT,
        "second_order": clarabel.SecondOrderConeT,
    }
    cones = [kinds[kind](size) for kind, size in program.cones]
    n = len(program.c)
    status = ""
    largest = float(np.abs(program.c).max())
    for scale, tolerance in ((1.0, _WANTED), (largest, _WANTED), (largest, _ACCEPTED)):
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_iter, settings.max_threads = False, _ITERATIONS, 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solver = clarabel.DefaultSolver(
            sparse.csc_matrix((n, n)), program.c / scale, program.A, program.b, cones, settings
        )
        found = solver.solve()
        status = str(found.status)
        if status == "Solved":
            x = np.array(found.x)
            return Solution(x, np.array(found.s), np.array(found.z) * scale, float(program.c @ x))
    raise NotSolvedError(status)
