"""Runs on a user's table: what each budget buys, one release, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.iterative_hessian_mixing import claims, running
from kfp_methods.components.tabular.iterative_hessian_mixing.component import (
    IterativeHessianMixingInputs,
    IterativeHessianMixingOutputs,
    load,
    load_model,
)
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.context import Context
from kfp_methods.errors import InputError
from tests.components.tabular.iterative_hessian_mixing import own_data

Execute = Callable[..., IterativeHessianMixingOutputs]


def test_the_smallest_budget_that_is_enough_is_found(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files)
    metrics = found.metrics
    assert metrics.epsilon_recommended is not None
    assert "release with epsilon" in found.report.summary
    table = next(part for part in found.report.highlights if part.name == "budgets").frame
    enough = table[table["enough"] == "yes"]["epsilon"]
    assert enough.min() == metrics.epsilon_recommended
    assert (table.loc[table["enough"] == "no", "epsilon"] < metrics.epsilon_recommended).all()
    assert metrics.r2_ols is not None
    assert metrics.r2_ihm_p10 is not None
    assert metrics.r2_ihm_p10 >= 0.5 * metrics.r2_ols
    assert set(found.results.frame["method"]) >= {"AdaSSP", "linear mixing", "iterative Hessian mixing"}
    assert [result.claim for result in found.claims] == list(claims.CLAIMS)
    assert found.claims[-1].verdict is Verdict.NOT_MEASURED


def test_too_small_a_budget_is_not_recommended(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files | {"epsilon": [0.05]})
    assert found.metrics.epsilon_recommended is None
    assert "do not release" in found.report.summary
    assert "too small for 1,000 rows" in found.report.summary


def test_a_target_that_nothing_explains_is_not_released(execute_here: Execute, tmp_path: Path) -> None:
    frame = own_data.table(200)
    frame["score"] = np.random.default_rng(5).uniform(0, 100, 200)
    frame.to_csv(tmp_path / "noise.csv", index=False)
    found = execute_here(**own_data.bounded(str(tmp_path / "noise.csv")), seed=3)
    assert "do not release" in found.report.summary


def test_few_simulated_releases_decide_nothing(execute_here: Execute, files: dict[str, Any]) -> None:
    found = execute_here(**files | {"n_noise_seeds": 1})
    assert found.metrics.epsilon_recommended is None
    assert "too few" in found.report.summary
    assert {result.verdict for result in found.claims} == {Verdict.INCONCLUSIVE, Verdict.NOT_MEASURED}


def test_a_release_publishes_coefficients_and_nothing_else(
    execute_here: Execute, tmp_path: Path, context: Context
) -> None:
    frame = own_data.table(20_000)
    frame.to_parquet(tmp_path / "many.parquet")
    given = own_data.bounded(str(tmp_path / "many.parquet")) | {"release": True, "epsilon": [4.0]}
    first, second = execute_here(**given), execute_here(**given)
    one, other = first.coefficients, second.coefficients
    example = one.example()
    assert example.iloc[0].tolist() == [175.0, 50.0, 500.0]  # the bounds' middles: no person
    assert one.predict(example).iloc[0, 0] != other.predict(example).iloc[0, 0]  # same seed, other noise
    assert one.predict(example).iloc[0, 0] == pytest.approx(20 + 12.5 + 20 - 5, abs=2)
    measured = {name: value for name, value in first.metrics if value is not None}
    assert set(measured) == {"epsilon_reported", "delta", "gamma", "eta", "sigma_grad", "k"}
    assert measured == {name: value for name, value in second.metrics if value is not None}
    assert first.metrics.delta == 1 / 20_000**2
    assert {result.verdict for result in first.claims} == {Verdict.NOT_MEASURED}
    pd.testing.assert_frame_equal(first.results.frame, second.results.frame)
    assert not context.warnings
    assert "(4, 2.5e-9)-differentially private" in first.privacy_report


def test_coefficients_are_saved_and_loaded(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    found = execute_here(**files)
    found.coefficients.save(tmp_path)
    back = load_model(tmp_path)
    rows = own_data.table(5)
    predicted = found.coefficients.predict(rows)
    pd.testing.assert_frame_equal(back.predict(rows[rows.columns[::-1]]), predicted, check_exact=True)
    about = json.loads((tmp_path / "coefficients.json").read_text())
    assert "not private" in about["kind"]
    assert about["scaling"] == "public bounds"
    assert (tmp_path / "privacy_statement.md").read_text() == found.privacy_report
    slopes = about["slopes"]
    by_hand = about["intercept"] + sum(slopes[name] * rows[name] for name in slopes)
    np.testing.assert_allclose(by_hand, predicted["score"], rtol=1e-12)
    with pytest.raises(ValueError, match="missing columns"):
        back.predict(rows.drop(columns="age"))
    with pytest.raises(ValueError, match="something else than numbers"):
        back.predict(rows.assign(age="old"))
    assert back.predict(rows.assign(age=np.nan))["score"].isna().all()


def test_data_dependent_scaling_is_stamped(execute_here: Execute, files: dict[str, Any], context: Context) -> None:
    given = {name: value for name, value in files.items() if "bounds" not in name}
    found = execute_here(**given, data_dependent_scaling=True)
    assert "scaling not private" in found.privacy_report
    assert any("scaling not private" in text for text in context.warnings)
    assert found.coefficients.about["scaling"] == "scaling not private"  # type: ignore[attr-defined]


def test_the_owner_is_told_of_clipping_and_repeats(execute_here: Execute, tmp_path: Path, context: Context) -> None:
    frame = own_data.table(200).assign(person="the same")
    frame.to_csv(tmp_path / "clipped.csv", index=False)
    given = own_data.bounded(str(tmp_path / "clipped.csv")) | {"person": "person", "target": "score"}
    given["feature_bounds"] = own_data.BOUNDS | {"age": [20.0, 80.0]}
    execute_here(**given, delta=0.01, row_clip=1.2)
    warned = "\n".join(context.warnings)
    for words in ("bounds clip", "not for a person", "delta = 0.01", "row_clip shortens"):
        assert words in warned


def test_row_clip_and_no_intercept(execute_here: Execute, files: dict[str, Any]) -> None:
    assert execute_here(**files, row_clip=1.5).metrics.rmse_ihm
    assert execute_here(**files, fit_intercept=False, adassp_variant="wang", sketch="explicit").metrics.rmse_ihm


def test_one_feature_ties_and_an_exact_fit(execute_here: Execute, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.repeat([0.0, 1.0], 100)}).assign(y=lambda f: 3 * f["x"])
    frame.to_csv(tmp_path / "x.csv", index=False)
    given = {"data_uri": str(tmp_path / "x.csv"), "feature_bounds": {"x": [0, 1]}, "target_bounds": [0, 3]}
    found = execute_here(**given)
    assert found.metrics.train_mse_ols == pytest.approx(0, abs=1e-12)
    assert found.metrics.rmse_ols == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_a_million_rows_and_copied_columns(execute_here: Execute, tmp_path: Path) -> None:
    frame = own_data.table(1_000_000)
    frame.insert(0, "copy", frame["age"])
    frame.to_parquet(tmp_path / "million.parquet")
    given = own_data.bounded(str(tmp_path / "million.parquet"))
    given["feature_bounds"] = own_data.BOUNDS | {"copy": [0.0, 100.0]}
    found = execute_here(**given, epsilon=[1.0])
    assert found.metrics.epsilon_recommended == 1.0


@pytest.mark.parametrize("number", range(32))
def test_broken_inputs_are_explained(
    number: int, broken_cases: list[tuple[dict[str, Any], list[str]]], execute_here: Execute
) -> None:
    parameters, words = broken_cases[number]
    with pytest.raises(InputError) as caught:
        execute_here(**parameters)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.fixture(scope="session")
def broken_cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], list[str]]]:
    cases = own_data.broken(tmp_path_factory.mktemp("broken"))
    assert len(cases) == 32
    return cases


def test_the_release_s_noise_is_the_operating_system_s(
    files: dict[str, Any], context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {name: value for name, value in files.items() if name != "test_data_uri"} | {"epsilon": [1.0]}
    inputs = IterativeHessianMixingInputs.parse({**given, "release": True})
    asked = []
    secure = Noise.secure
    monkeypatch.setattr(Noise, "secure", lambda: (asked.append(1), secure())[1])
    monkeypatch.setattr(Noise, "seeded", lambda *args: pytest.fail("seeded noise in a release"))
    data = load(inputs, context)
    assert data is not None
    running.release(inputs, data)
    assert asked == [1]
