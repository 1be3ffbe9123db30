"""Runs on the embedded sample, its claims, and what a report shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.iterative_hessian_mixing import claims, figures, running
from kfp_methods.components.tabular.iterative_hessian_mixing.component import (
    IterativeHessianMixingInputs,
    IterativeHessianMixingOutputs,
)
from kfp_methods.components.tabular.iterative_hessian_mixing.decision import decide
from kfp_methods.components.tabular.iterative_hessian_mixing.dimensions import Dimension
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import Cell, Measured, measure
from kfp_methods.components.tabular.iterative_hessian_mixing.running import settings_of
from kfp_methods.context import Context
from kfp_methods.report import Figure, Table

Execute = Callable[..., IterativeHessianMixingOutputs]


@pytest.fixture(scope="module")
def measured() -> Measured:
    inputs = IterativeHessianMixingInputs.parse(
        {"preset": "smoke", "epsilon": [0.1, 4.0], "sample_parts": ["diabetes"]}
    )
    case = running._sample_cases(inputs, Context.__new__(Context))[0]
    return measure(case, settings_of(inputs))


def changed(measured: Measured, name: str, shift: float) -> Measured:
    """The same, with another mechanism's errors set to those of iterative Hessian mixing plus a shift at 4.0."""
    cells = dict(measured.cells)
    for epsilon in measured.settings.epsilons:
        ihm = measured.cells["ihm", epsilon]
        noise = 1e-6 * np.arange(len(ihm.train))
        cells[name, epsilon] = Cell(  # type: ignore[index]
            ihm.train + noise + (shift if epsilon == 4.0 else 1.0), ihm.test, ihm.theta, 1.0
        )
    return replace(measured, cells=cells)


@pytest.mark.parametrize(("shift", "verdict"), [(0.1, Verdict.SUPPORTED), (-0.1, Verdict.NOT_SUPPORTED)])
def test_a_claim_is_judged_where_it_is_weakest(measured: Measured, shift: float, verdict: Verdict) -> None:
    good = changed(changed(measured, "adassp", 0.2), "linear_mixing", 0.2)
    found = claims.results([good, changed(good, "adassp", shift)], [])
    by_id = {result.claim: result for result in found}
    assert by_id[claims.BEATS_ADASSP].verdict is verdict
    assert by_id[claims.NEVER_WORSE].verdict is verdict
    assert by_id[claims.BEATS_LINEAR_MIXING].verdict is Verdict.SUPPORTED
    assert "Diabetes, bounds at epsilon 4" in by_id[claims.BEATS_ADASSP].note
    assert by_id[claims.BEATS_ADASSP].seeds == measured.settings.seeds


def test_claims_without_their_data_are_not_measured(measured: Measured) -> None:
    alone = replace(measured, cells={key: cell for key, cell in measured.cells.items() if key[0] in ("ihm", "ols")})
    assert {result.verdict for result in claims.results([alone], [])} == {Verdict.NOT_MEASURED}
    assert figures.ratios([alone]) is None
    few = replace(measured, settings=replace(measured.settings, epsilons=(0.1,)))
    assert claims.results([few], [])[0].verdict is Verdict.NOT_MEASURED


def test_the_claim_about_columns_compares_ratios() -> None:
    seeds = (0, 1, 2)
    ten = Dimension(10, np.array([1.0, 1.1, 0.9]), np.array([0.6, 0.6, 0.6]), seeds)
    forty = Dimension(40, np.array([1.0, 1.0, 1.1]), np.array([5.0, 5.5, 5.2]), seeds)
    assert claims.results([], [ten, forty])[-1].verdict is Verdict.SUPPORTED
    same = replace(ten, d=40)
    assert claims.results([], [ten, same])[-1].verdict is Verdict.NOT_SUPPORTED


def test_the_decision_follows_the_tenth_worst_release(measured: Measured) -> None:
    found = decide(measured, 0.5)
    assert found is not None
    values = measured.r_squared("ihm", 4.0)
    assert values is not None
    assert found.sure[1] == pytest.approx(np.quantile(values, 0.1))
    strict = decide(measured, 0.99)
    assert strict is not None and strict.recommended is None  # noqa: PT018
    assert "budget is too small" in strict.why_not
    assert decide(replace(measured, case=replace(measured.case, test=None), cells=_untested(measured)), 0.5) is None


def _untested(measured: Measured) -> dict:  # type: ignore[type-arg]
    return {key: replace(cell, test=None) for key, cell in measured.cells.items()}


def test_figures_of_data_without_a_test_part(measured: Measured) -> None:
    bare = replace(measured, case=replace(measured.case, test=None), cells=_untested(measured))
    assert "train" in figures.errors(bare, 0).alt


def test_a_large_part_is_sketched_explicitly_on_the_device(execute_here: Execute) -> None:
    found = execute_here(
        sample_parts=["large"],
        large_rows=3_000,
        large_columns=6,
        epsilon=[1.0, 10.0],
        n_noise_seeds=2,
        methods=["adassp"],
    )
    assert found.metrics.epsilon_recommended is None
    assert found.metrics.train_mse_ihm is not None
    assert len(found.coefficients.example().columns) == 6


@pytest.mark.slow
def test_the_sample_s_report_answers_first(execute_here: Execute) -> None:
    found = execute_here(sample_parts=["boston", "diabetes"], epsilon=[0.1, 4.0], audit_trials=2_000)
    assert found.report.summary.startswith("Boston, bounds: ")
    assert "Diabetes, bounds" in found.report.summary
    assert isinstance(found.report.parts[0], Figure)
    assert isinstance(found.report.parts[1], Table)
    assert [part.name for part in found.report.highlights] == ["budgets", "overview"]
    assert found.metrics.audit_epsilon is not None
    assert found.metrics.audit_epsilon <= found.metrics.epsilon_reported
    assert "Nothing of this run may be published" in found.privacy_report
    frame = found.results.frame
    assert set(frame["data"]) == {f"{n}, {s}" for n in ("Boston", "Diabetes") for s in ("bounds", "paper's scaling")}


def test_a_broken_promise_is_said_first(
    execute_here: Execute, monkeypatch: pytest.MonkeyPatch, context: Context
) -> None:
    from kfp_methods.components.tabular.privacy_audit import Audit

    broken = Audit(99.0, 0.0, above=True, with_row=1.0, without_row=0.0, trials=1_000, level=0.95)
    monkeypatch.setattr(running, "_audit", lambda inputs, found: broken)
    found = execute_here(sample_parts=["diabetes"], epsilon=[1.0], methods=["ihm"], n_noise_seeds=10)
    assert "The promise is broken" in found.report.summary
    assert any("promise is broken" in text for text in context.warnings)
