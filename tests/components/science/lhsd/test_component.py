"""Runs on a user's files: with their data, their model in each format, and what they know of the truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from kfp_methods.claims import Verdict
from kfp_methods.components.science.lhsd.claims import BEATS_FLIPD, CLAIMS, MEMORISED, SMALL_ERROR
from kfp_methods.components.science.lhsd.component import LhsdInputs, LhsdOutputs, load, load_model, run
from kfp_methods.context import Context
from kfp_methods.errors import InputError
from tests.components.science.lhsd import own_data

Execute = Callable[..., LhsdOutputs]


@pytest.mark.slow
def test_a_table_is_learned_and_other_rows_of_it_are_scored(
    execute_here: Execute, files: dict[str, Any], context: Context
) -> None:
    found = execute_here(**files, train_steps=600, probes=16)
    frame = found.lid.frame
    assert len(frame) == 24
    assert frame["part"].unique().tolist() == ["points"]
    assert frame["point"].tolist() == list(range(24))
    assert frame["lid_true"].eq(2).all()
    assert frame["is_memorised"].tolist() == [index % 3 == 0 for index in range(24)]
    assert sorted(frame["rank_from_lowest"]) == list(range(1, 25))
    assert (found.metrics.mae_lhsd or 9) < 0.8
    assert found.metrics.mae_flipd is not None
    assert found.metrics.mae_mle is not None
    assert found.metrics.mae_twonn is None
    assert found.metrics.sigma_used_raw == pytest.approx(found.metrics.sigma_used * 1_000 * (2 / 6) ** 0.5, rel=0.2)
    assert 0 <= (found.metrics.auroc_memorised or 0) <= 1
    verdicts = {result.claim: result.verdict for result in found.claims}
    assert list(verdicts) == list(CLAIMS)
    assert verdicts[SMALL_ERROR] is Verdict.NOT_MEASURED
    assert verdicts[BEATS_FLIPD] is Verdict.INCONCLUSIVE  # one seed settles nothing
    assert [table.name for table in found.report.highlights] == ["methods-points"]
    assert "median local dimension of 24 points in 6 dimensions" in found.report.summary
    assert not [text for text in context.warnings if "scale" in text]


@pytest.fixture(scope="session")
def quick(files: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> LhsdOutputs:
    inputs = LhsdInputs.parse({"preset": "smoke", **files, "train_steps": 20})
    context = Context(tmp_path_factory.mktemp("run"), wanted_device="cpu")
    return run(inputs, load(inputs, context), context)


def test_the_model_is_saved_loaded_and_scores_the_user_s_columns(quick: LhsdOutputs, tmp_path: Path) -> None:
    quick.dimension_model.save(tmp_path)
    back = load_model(tmp_path)
    example = back.example()
    assert list(example.columns) == [f"Größe {index}" for index in range(6)]
    first = quick.lid.frame.set_index("point").loc[[0, 1, 2], ["lid", "stderr"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(back.predict(example), first, rtol=1e-4)
    named = example.set_axis(["a", "b", "c"])
    assert back.predict(named).index.tolist() == ["a", "b", "c"]
    shuffled = example[example.columns[::-1]].assign(other="text")
    pd.testing.assert_frame_equal(back.predict(shuffled), back.predict(example))
    assert len(back.predict(example.head(0))) == 0
    with pytest.raises(ValueError, match="missing columns"):
        back.predict(example.drop(columns="Größe 3"))
    with pytest.raises(ValueError, match="not finite"):
        back.predict(example.assign(**{"Größe 3": np.nan}))


def test_a_model_of_an_earlier_run_scores_new_points(execute_here: Execute, quick: LhsdOutputs, tmp_path: Path) -> None:
    quick.dimension_model.save(tmp_path)
    own_data.table(10, seed=5).to_parquet(tmp_path / "new.parquet")
    found = execute_here(
        model_uri=str(tmp_path / "score_model"),
        model_kind="edm_mlp",
        points_uri=str(tmp_path / "new.parquet"),
        sigma=0.2,
        lanczos_steps=4,
        baselines=["flipd", "mle"],
    )
    assert found.metrics.sigma_used == 0.2
    assert found.metrics.mae_mle is None  # without data there are no neighbours
    assert len(found.lid.frame) == 10


def test_points_are_a_sample_of_the_data_where_none_are_given(execute_here: Execute, tmp_path: Path) -> None:
    found = execute_here(data_uri=own_data.images(tmp_path), n_points=15, train_steps=10, network="auto")
    points = found.lid.frame["point"]
    assert len(points) == 15
    assert points.is_monotonic_increasing
    assert points.max() > 100
    assert any(part.__class__.__name__ == "Figure" and "gallery" in part.name for part in found.report.parts)  # type: ignore[union-attr]
    assert "lid_true" in found.lid.frame
    assert found.metrics.mae_lhsd is None


def test_the_empirical_score_needs_no_training(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    found = execute_here(**files, model_kind="empirical", sigma=0.3)
    assert (found.metrics.mae_lhsd or 9) < 1.5
    assert found.metrics.asymmetry < 1e-3
    found.dimension_model.save(tmp_path)
    back = load_model(tmp_path)
    assert back.predict(back.example())["lid"].between(0, 6).all()


def test_a_unet_learns_images(execute_here: Execute, tmp_path: Path) -> None:
    found = execute_here(
        data_uri=own_data.images(tmp_path), network="unet", channels=8, blocks=2, train_steps=5, n_points=4, probes=2,
        lanczos_steps=2, baselines=["flipd"], sigma=0.5,
    )  # fmt: skip
    found.dimension_model.save(tmp_path)
    back = load_model(tmp_path)
    assert back.predict(back.example())["lid"].tolist() == pytest.approx(found.lid.frame["lid"][:3].tolist(), rel=1e-3)


def test_a_diffusers_model_scores_images(execute_here: Execute, context: Context, tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), norm_num_groups=4, layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    pipeline = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler())
    pipeline.save_pretrained(tmp_path / "unet", safe_serialization=True)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).uniform(0, 255, (3, 1, 8, 8)))
    found = execute_here(
        model_uri=str(tmp_path / "unet"), model_kind="diffusers", points_uri=str(tmp_path / "x.npz"), probes=2,
        lanczos_steps=2, search_levels=3, nb_points=1,
    )  # fmt: skip
    assert found.lid.frame["lid"].notna().all()
    assert any("another scale (0 to 255" in text for text in context.warnings)
    (tmp_path / "saved").mkdir()
    found.dimension_model.save(tmp_path / "saved")
    back = load_model(tmp_path / "saved")
    expected = found.lid.frame["lid"].tolist()
    assert back.predict(back.example())["lid"].tolist() == pytest.approx(expected, rel=1e-3)


def test_the_same_parameters_give_the_same_bits(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    first = execute_here(**files, train_steps=10)
    inputs = LhsdInputs.parse({"preset": "smoke", **files, "train_steps": 10})
    context = Context(tmp_path, wanted_device="cpu")
    again = run(inputs, load(inputs, context), context)
    pd.testing.assert_frame_equal(first.lid.frame, again.lid.frame, check_exact=True)


def test_one_seed_of_the_sample_settles_nothing_and_is_kept(context: Context) -> None:
    inputs = LhsdInputs.parse({"preset": "smoke", "n_seeds": 1, "train_steps": 5, "cost_dimensions": [64, 128]})
    found = run(inputs, load(inputs, context), context)
    assert [part.name for part in context.parts] == ["manifolds_64-seed-0", "digits-seed-0"]  # type: ignore[union-attr]
    assert {point.name for point in context.points} == {"lhsd_error", "lhsd_auroc"}
    verdicts = {result.claim: result.verdict for result in found.claims}
    assert verdicts[SMALL_ERROR] is verdicts[MEMORISED] is Verdict.INCONCLUSIVE
    assert any(part.name == "costs" for part in found.report.parts)  # type: ignore[union-attr]


def test_a_sigma_above_the_claim_s_leaves_memorisation_unjudged(context: Context) -> None:
    inputs = LhsdInputs.parse(
        {"preset": "smoke", "n_seeds": 2, "train_steps": 5, "sample_parts": ["digits"], "sigma": 0.7}
    )
    found = run(inputs, load(inputs, context), context)
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    assert found.metrics.auroc_memorised is not None


@pytest.mark.parametrize("number", range(25))
def test_broken_inputs_are_explained(
    number: int, broken_cases: list[tuple[dict[str, Any], list[str]]], execute_here: Execute
) -> None:
    parameters, words = broken_cases[number]
    with pytest.raises(InputError) as caught:
        execute_here(**parameters, train_steps=2)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.fixture(scope="session")
def broken_cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], list[str]]]:
    cases = own_data.broken(tmp_path_factory.mktemp("broken"))
    assert len(cases) == 25
    return cases


def test_arrays_that_do_not_fit_together_are_explained(execute_here: Execute, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4))
    cases = [
        ({"x": x, "is_memorised": np.zeros(59, bool)}, "do not fit together"),
        ({"x": x[:, 0]}, "do not fit together"),
        ({"x": x[:, :0]}, "do not fit together"),
        ({"x": x, "lid_true": -np.ones(60)}, "below 0"),
        ({"x": x, "lid_true": np.full(60, 1e3)}, "no dimension is larger"),
        ({"x": x * 1e35}, "beyond"),
    ]
    for arrays, words in cases:
        np.savez(tmp_path / "x.npz", **arrays)
        with pytest.raises(InputError) as caught:
            execute_here(data_uri=str(tmp_path / "x.npz"))
        assert words in str(caught.value)


def test_tables_of_other_columns_are_explained(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    own_data.table(9).rename(columns={"Größe 0": "Höhe"}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(InputError, match=r"lacks.*Größe 0.*adds.*Höhe"):
        execute_here(**files | {"points_uri": str(tmp_path / "other.csv")})


def test_columns_in_another_order_are_the_same_points(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path, quick: LhsdOutputs
) -> None:
    frame = own_data.table(24, seed=1)
    frame[frame.columns[::-1]].to_csv(tmp_path / "turned.csv", index=False)
    found = execute_here(**files | {"points_uri": str(tmp_path / "turned.csv"), "train_steps": 20})
    pd.testing.assert_frame_equal(found.lid.frame, quick.lid.frame, rtol=1e-5)


def test_settings_are_plain_json(quick: LhsdOutputs, tmp_path: Path) -> None:
    quick.dimension_model.save(tmp_path)
    about = json.loads((tmp_path / "dimension.json").read_text())
    assert about["sigma"] == pytest.approx(quick.metrics.sigma_used)
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file()) == [".json"] * 2 + [".safetensors"] * 2


@pytest.mark.slow
def test_a_trained_score_counts_a_known_mixture_and_tells_memorised_digits(tmp_path: Path) -> None:
    """The sample's own sizes at one seed: thresholds of the method's card, at noise levels given there."""
    inputs = LhsdInputs.parse({"n_seeds": 1, "sigma": 0.2, "cost_dimensions": [], "baselines": ["flipd"]})
    found = run(inputs, None, Context(tmp_path, "cpu")).metrics
    assert found.mae_lhsd is not None
    assert found.mae_lhsd_exact is not None
    assert found.mae_lhsd_exact <= 0.8
    assert found.mae_lhsd <= 1.2
    assert found.mae_lhsd <= 0.25 * found.mae_flipd  # type: ignore[operator]
    assert found.auroc_memorised >= 0.9  # type: ignore[operator]
