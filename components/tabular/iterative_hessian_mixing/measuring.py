"""What each budget buys: every mechanism on the same rows, at every epsilon, with the noise of many seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing import baselines, mixing
from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan, linear_mixing_plan, plan
from kfp_methods.components.tabular.iterative_hessian_mixing.choices import METHODS, AdaSSPVariant, MethodName
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Data, Floats, Moments, Regression
from kfp_methods.components.tabular.iterative_hessian_mixing.sample import Rows
from kfp_methods.components.tabular.iterative_hessian_mixing.scaling import Scaling

Delta = float | None  # None: 1 / n^2
ONE_STEP = 1


@dataclass(frozen=True)
class Settings:
    """What the mechanisms are run with.

    Attributes:
        epsilons: total budgets, rising.
        delta: of each; None for 1 / n^2.
        iterations: T.
        factor: rows of a sketch for each column.
        methods: to run.
        strict: see `calibration.plan`.
        adassp_variant: see `baselines.adassp`.
        seeds: of the noise.
    """

    epsilons: tuple[float, ...]
    delta: Delta
    iterations: int
    factor: float
    methods: tuple[MethodName, ...]
    strict: bool
    adassp_variant: AdaSSPVariant
    seeds: tuple[int, ...]

    def delta_of(self, n: int) -> float:
        """The delta for n rows."""
        return 1 / n**2 if self.delta is None else self.delta

    def plan(self, epsilon: float, n: int, d: int, iterations: int | None = None) -> Plan:
        """Of iterative Hessian mixing."""
        T = self.iterations if iterations is None else iterations
        return plan(epsilon, self.delta_of(n), d, iterations=T, factor=self.factor, strict=self.strict)


@dataclass(frozen=True)
class Case:
    """Scaled rows to fit and to test on.

    Attributes:
        name: of the data.
        data: what mechanisms see.
        test: moments of the test part, scaled alike and not clipped; None without one.
        test_variance: mean squared distance of its targets from the training part's mean, scaled.
        scaling: how the rows were made; None for rows that were made so.
        features: their names.
        target: its name.
    """

    name: str
    data: Data
    test: Moments | None = None
    test_variance: float = float("nan")
    scaling: Scaling | None = None
    features: tuple[str, ...] = ()
    target: str = "y"

    @property
    def null(self) -> float:
        """Training error of predicting 0."""
        moments = self.data.moments
        return moments.square / moments.n

    @property
    def least(self) -> float:
        """Training error of least squares."""
        return float(self.data.moments.mse(self.data.moments.least_squares))

    @property
    def unit(self) -> float:
        """By which a scaled root mean squared error becomes one of the target's units."""
        return 1.0 if self.scaling is None else self.scaling.y_width


@dataclass(frozen=True)
class Cell:
    """One mechanism at one budget: an entry for each seed, one entry for least squares.

    Attributes:
        train: mean squared error on the training part, scaled [S].
        test: the same on the test part [S]; None without one.
        theta: the first seed's parameters [d].
        seconds: of all seeds.
    """

    train: Floats
    test: Floats | None
    theta: Floats
    seconds: float


@dataclass(frozen=True)
class Measured:
    """A case with all its cells, by method and epsilon."""

    case: Case
    settings: Settings
    cells: dict[tuple[MethodName, float], Cell]

    @property
    def methods(self) -> list[MethodName]:
        """Those that were run."""
        return [name for name in METHODS if (name, self.settings.epsilons[0]) in self.cells]

    @property
    def delta(self) -> float:
        """Of every mechanism."""
        return self.settings.delta_of(self.case.data.moments.n)

    def plan(self, epsilon: float) -> Plan:
        """Of iterative Hessian mixing at this budget."""
        return self.settings.plan(epsilon, self.case.data.moments.n, self.case.data.d)

    def gain(self, first: MethodName, second: MethodName, epsilon: float) -> Floats | None:
        """By how much less the first's training error is, in units of what least squares gains over 0 [S]."""
        if (first, epsilon) not in self.cells or (second, epsilon) not in self.cells:
            return None
        worse, better = self.cells[second, epsilon].train, self.cells[first, epsilon].train
        return (worse - better) / max(self.case.null - self.case.least, np.finfo(float).tiny)

    def r_squared(self, name: MethodName, epsilon: float) -> Floats | None:
        """Share of the test part's variance that each seed's fit explains [S]; None without a test part."""
        errors = self.cells[name, epsilon].test
        return None if errors is None else 1 - errors / self.case.test_variance


def case_of(name: str, training: Rows, test: Rows | None, scaling: Scaling, *, explicit: bool = False) -> Case:
    """Scales both parts. The test part keeps its own values where bounds would clip them."""
    X, y = scaling.rows(training.x, clip=True), scaling.targets(training.y, clip=True)
    moments, variance = None, float("nan")
    if test is not None:
        moments = Moments.of(scaling.rows(test.x, clip=False), scaling.targets(test.y, clip=False))
        variance = float(np.mean((test.y - training.y.mean()) ** 2)) / scaling.y_width**2
    data = Regression(X, y, explicit=explicit)
    return Case(name, data, moments, variance, scaling, training.features, training.target)


def measure(case: Case, settings: Settings, follow: Callable[[Sequence[float]], Iterator[float]] = iter) -> Measured:
    """Every mechanism at every budget; `follow` may show the progress over budgets."""
    cells: dict[tuple[MethodName, float], Cell] = {}
    for epsilon in follow(settings.epsilons):
        for name in settings.methods:
            cells[name, epsilon] = _cell(case, settings, name, epsilon)
    return Measured(case, settings, cells)


def _cell(case: Case, settings: Settings, name: MethodName, epsilon: float) -> Cell:
    stream = METHODS.index(name), settings.epsilons.index(epsilon)
    mechanism(case.data, settings, name, epsilon)  # plans are found once, and are not what is timed
    started = time.perf_counter()
    theta = mechanism(case.data, settings, name, epsilon)(Noise.seeded(settings.seeds, *stream))
    seconds = time.perf_counter() - started
    test = None if case.test is None else case.test.mse(theta)
    return Cell(case.data.moments.mse(theta), test, theta[0], seconds)


def mechanism(data: Data, settings: Settings, name: MethodName, epsilon: float) -> Callable[[Noise], Floats]:
    """The mechanism at this budget, from noise of B sources to parameters [B, d]."""
    delta = settings.delta_of(data.moments.n)
    if name == "adassp":
        return lambda noise: baselines.adassp(data, epsilon, delta, noise, variant=settings.adassp_variant)
    if name == "linear_mixing":
        sketch = linear_mixing_plan(epsilon, delta, data.d, strict=settings.strict)
        return lambda noise: baselines.linear_mixing(data, sketch, noise)
    if name == "dp_gd":
        return lambda noise: baselines.gradient_descent(data, epsilon, delta, settings.iterations, noise)
    if name == "ols":
        return lambda noise: data.moments.least_squares[None]
    found = settings.plan(epsilon, data.moments.n, data.d, ONE_STEP if name == "ihm_one_step" else None)
    return lambda noise: mixing.release(data, found, noise)
