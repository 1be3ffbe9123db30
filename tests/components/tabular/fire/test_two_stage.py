"""FIRE, its scaling, its backends and what it is compared with."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from kfp_methods.components.tabular.fire import baselines, foundation, gaussian, measures, problems
from kfp_methods.components.tabular.fire.backends import BackendChoice
from kfp_methods.components.tabular.fire.gaussian import Gaussian
from kfp_methods.components.tabular.fire.measuring import predictions
from kfp_methods.components.tabular.fire.pfn import Pfn
from kfp_methods.components.tabular.fire.predictive import CONSTANT_VARIANCE, Floats, Predictive, TooManyColumnsError
from kfp_methods.components.tabular.fire.scaling import Scaling
from kfp_methods.components.tabular.fire.two_stage import Fire, Options, Rows

DRAW = problems.draw("currin", 40, 10, 30, 0)
SCALING = Scaling.of(DRAW.training)
ROWS, ASKED = SCALING.rows(DRAW.training), SCALING.features(DRAW.X_test)


def test_a_gaussian_process_by_hand() -> None:
    X, y = np.array([[0.0], [0.5], [1.0]]), np.array([0.0, 1.0, 0.0])
    fitted = gaussian.fitted(RBF(0.3) + WhiteKernel(0.01), X, y, normalise=False, optimise=False)
    found = fitted.predict(np.array([[0.25]]))
    assert (found.mean[0], found.variance[0]) == pytest.approx((0.588324, 0.206776), abs=1e-6)


def test_many_rows_are_all_seen_though_the_kernel_is_chosen_on_a_part() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((500, 1))
    found = Gaussian().fit(X, np.sin(6 * X[:, 0]), 1)
    assert len(found.process.X_train_) == 500
    assert found.predict(X[:50]).mean == pytest.approx(np.sin(6 * X[:50, 0]), abs=1e-2)


@pytest.mark.parametrize("backend", [Pfn(4), Gaussian()], ids=["pfn", "gp"])
def test_units_of_the_target_carry_over(backend: Any) -> None:
    def solve(rows: Rows) -> Any:
        return Fire(backend).fit(rows).predict

    plain, _ = predictions(DRAW.training, DRAW.X_test, solve)
    moved, _ = predictions(replace(DRAW.training, y=3 - 0.5 + 7 * DRAW.training.y), DRAW.X_test, solve)
    assert moved.mean == pytest.approx(2.5 + 7 * plain.mean, rel=1e-5, abs=1e-4)
    assert moved.variance == pytest.approx(49 * plain.variance, rel=1e-3)


class Interpolates:
    """A stand-in for a cheap model that is exactly right about the costly level."""

    name, sees_fidelity = "exact", False

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        return wanted

    def fit(self, X: Floats, y: Floats, own: int) -> Interpolates:
        return self

    def predict(self, X: Floats) -> Predictive:
        return Predictive.normal(X[:, 0] ** 2, np.full(len(X), 0.04))


def test_without_anything_left_to_explain_the_cheap_model_stands() -> None:
    X = np.linspace(0, 1, 8)[:, None]
    rows = Rows(X, X[:, 0] ** 2, np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    found = Fire(Interpolates()).fit(rows).predict(np.array([[0.3], [0.9]]))
    assert found.mean == pytest.approx([0.09, 0.81])
    assert found.variance == pytest.approx(0.04 + CONSTANT_VARIANCE, abs=1e-15)


def test_unconditioned_it_is_residual_regression() -> None:
    fire = Fire(Gaussian(), Options(conditioning="none")).fit(ROWS).predict(ASKED)
    residual = baselines.residual_process(ROWS)(ASKED)
    assert fire.mean == pytest.approx(residual.mean, abs=1e-8)
    assert fire.variance == pytest.approx(residual.variance, abs=1e-8)


@pytest.mark.parametrize("backend", [Pfn(4), Gaussian()], ids=["pfn", "gp"])
def test_variances_add_up_and_quantiles_rise(backend: Any) -> None:
    fire = Fire(backend).fit(ROWS)
    low = fire.low.predict(fire._with_level(ASKED, np.full(len(ASKED), 1)))
    found = fire.predict(ASKED)
    assert (found.variance >= low.variance).all()
    assert (np.diff(found.quantiles(np.linspace(0.05, 0.95, 19)), axis=1) >= 0).all()


def test_two_levels_are_pooled_as_they_recur_and_three_are_not() -> None:
    gp = Gaussian()
    pooled, recursive = (Fire(gp, Options(strategy=s)).fit(ROWS).predict(ASKED) for s in ("pooled", "recursive"))
    assert recursive.mean == pytest.approx(pooled.mean)
    three = replace(ROWS, level=np.where(np.arange(50) < 20, 0, ROWS.level + 1))
    fire = Fire(gp, Options(strategy="recursive")).fit(three)
    assert [stage.level for stage in fire.stages] == [1, 2]
    assert np.isfinite(fire.predict(ASKED).mean).all()


def test_drawn_quantiles_of_a_sum_of_normal_laws_are_normal() -> None:
    rows = replace(ROWS)
    normal, drawn = (Fire(Gaussian(), Options(convolve=c)).fit(rows).predict(ASKED) for c in (False, True))
    assert drawn.mean == pytest.approx(normal.mean)
    levels = np.array([0.1, 0.5, 0.9])
    sd = np.sqrt(normal.variance)[:, None]
    assert (drawn.quantiles(levels) - normal.quantiles(levels)) / sd == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("solve", [baselines.autoregressive, baselines.nonlinear_autoregressive], ids=["ar1", "nargp"])
def test_related_levels_are_joined(solve: Any) -> None:
    """The costly level is twice the cheap one plus a line: ten costly rows are enough."""
    rng = np.random.default_rng(0)
    X = np.concatenate([np.linspace(0, 1, 40), rng.uniform(0, 1, 10)])[:, None]
    level = np.repeat([0, 1], [40, 10])
    wave = np.sin(9 * X[:, 0])
    rows = Rows(X, np.where(level == 1, 2 * wave + X[:, 0], wave), level)
    asked = np.linspace(0.05, 0.95, 30)[:, None]
    assert solve(rows)(asked).mean == pytest.approx(2 * np.sin(9 * asked[:, 0]) + asked[:, 0], abs=0.15)


def test_scaling_is_by_training_rows_and_constants_survive() -> None:
    rows = Rows(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([4.0, 4.0]), np.array([0, 1]))
    scaling = Scaling.of(rows)
    assert scaling.features(np.array([[2.0, 9.0]])).tolist() == [[0.5, 4.0]]
    assert scaling.rows(rows).y.tolist() == [0.0, 0.0]
    assert scaling.outside(np.array([[2.0, 5.0], [4.0, 5.0]])) == 0.5
    found = Fire(Gaussian()).fit(scaling.rows(rows)).predict(scaling.features(rows.X))
    assert scaling.restored(found).mean == pytest.approx(4.0)


def test_more_columns_than_slots_mean_fewer_quantiles_and_then_an_error() -> None:
    wanted = tuple(i / 10 for i in range(1, 10))
    assert (Pfn().levels(13, wanted), Pfn().levels(14, wanted)) == (wanted, (0.1, 0.9))
    rng = np.random.default_rng(0)
    with pytest.raises(TooManyColumnsError, match="25"):
        Pfn().fit(rng.random((30, 25)), rng.random(30), 25)


def test_a_context_that_is_too_large_is_cut_and_said() -> None:
    said: list[tuple[int, int]] = []
    backend = BackendChoice("gp", max_context=10).make(lambda had, kept: said.append((had, kept)))
    rng = np.random.default_rng(0)
    fitted: Any = backend.fit(rng.random((40, 1)), rng.random(40), 1)
    assert said == [(40, 10)]
    assert len(fitted.process.X_train_) == 10


def test_the_measures_by_hand() -> None:
    y = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    found = measures.score(Predictive.normal(np.zeros(20_000), np.ones(20_000)), y)
    assert found.nll == pytest.approx(0.5 * np.log(2 * np.pi) + 0.5, abs=1e-3)
    assert found.coverage == pytest.approx(0.8, abs=1e-3)
    assert found.r2 == pytest.approx(0, abs=1e-9)
    assert found.nrmse == pytest.approx(1 / np.ptp(y), abs=1e-4)
    constant = measures.score(Predictive.constant(1.0, 3), np.ones(3))
    assert (constant.nrmse, constant.r2) == (None, None)


def test_the_functions_at_known_points() -> None:
    at = np.array([[0.1, 200, 80_000, 1_000, 100, 750, 1_300, 10_000]])
    assert float(problems.borehole_high(at)[0]) == pytest.approx(60.238919, abs=1e-6)
    assert float(problems.borehole_low(at)[0]) == pytest.approx(47.936522, abs=1e-6)
    ones = np.ones((1, 10))
    assert (float(problems.chain_high(ones)[0]), float(problems.chain_low(ones)[0])) == pytest.approx((9, -46.4))
    park = np.array([[0.1, 0.2, 0.3, 0.4]])
    values = (float(problems.park91a_high(park)[0]), float(problems.park91a_low(park)[0]))
    assert values == pytest.approx((4.876247, 5.354928), abs=1e-6)
    half = np.array([[0.5]])
    values = (float(problems.forrester_high(half)[0]), float(problems.forrester_low(half)[0]))
    assert values == pytest.approx((0.909297, -4.545351), abs=1e-6)
    assert np.isfinite(problems.currin_high(np.array([[0.5, 0.0]]))).all()


@pytest.mark.parametrize("solve", [baselines.autoregressive, baselines.nonlinear_autoregressive], ids=["ar1", "nargp"])
def test_many_costly_rows_are_cut_too(solve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(baselines.MOST_ROWS, "gp", 8)
    monkeypatch.setattr(baselines, "_PROCESS", BackendChoice("gp", max_context=8).make())
    assert np.isfinite(solve(ROWS)(ASKED).mean).all()


@pytest.mark.parametrize("name", [*problems.PAIRS, "diabetes"])
def test_every_problem_gives_rows_within_its_box(name: str) -> None:
    draw = problems.draw(name, 30, 8, 12, 1)
    assert np.bincount(draw.training.level).tolist() == [30, 8]
    assert np.isfinite(draw.training.y).all()
    assert len(draw.y_test) == len(draw.X_test) == 12
    again = problems.draw(name, 30, 8, 12, 1)
    assert (again.training.X == draw.training.X).all()


class StubTabIcl:
    """Normal quantiles around the first column."""

    def fit(self, X: Floats, y: Floats) -> StubTabIcl:
        return self

    def predict(self, X: Floats, output_type: list[str]) -> dict[str, Floats]:
        assert output_type == ["mean", "raw_quantiles"]
        levels = np.arange(1, 1_000) / 1_000
        return {"mean": X[:, 0], "raw_quantiles": X[:, :1] + 2 * norm.ppf(levels)}


def test_tabicls_quantiles_become_moments() -> None:
    found = foundation.TabIcl(StubTabIcl).fit(np.zeros((3, 1)), np.zeros(3), 1).predict(np.array([[5.0], [7.0]]))
    assert found.mean.tolist() == [5.0, 7.0]
    assert found.variance == pytest.approx(4.0, rel=0.02)
    assert found.quantiles(np.array([0.1, 0.5]))[0] == pytest.approx(5 + 2 * norm.ppf([0.1, 0.5]), abs=1e-6)


def test_tabpfns_own_distribution_is_used() -> None:
    criterion = SimpleNamespace(
        mean=lambda logits: logits[:, 0], variance=lambda logits: logits[:, 1], icdf=lambda logits, q: logits[:, 0] + q
    )
    regressor = SimpleNamespace(predict=lambda X, output_type: {"criterion": criterion, "logits": torch.tensor(X)})
    found = foundation.FittedTabPfn(regressor).predict(np.array([[1.0, 4.0], [2.0, 9.0]]))
    assert (found.mean.tolist(), found.variance.tolist()) == ([1.0, 2.0], [4.0, 9.0])
    assert found.quantiles(np.array([0.25, 0.5])).tolist() == [[1.25, 1.5], [2.25, 2.5]]
