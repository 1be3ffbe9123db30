"""Score models come back from disk as they were, and files that do not fit are explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kfp_methods.components.science import score_diffusers, score_files
from kfp_methods.components.science.score_models import CallableScore, EmpiricalScore, Standardisation
from kfp_methods.components.science.score_networks import Preconditioned, build
from kfp_methods.errors import InputError


def network(**given: Any) -> score_files.NetworkScore:
    settings = score_files.NetworkSettings(**{"shape": (4,), "width": 8, "blocks": 2, "largest": 3.0} | given)
    net = Preconditioned(build(settings.architecture, 0), settings.sigma_data, settings.preconditioning)
    return score_files.NetworkScore(net, settings, Standardisation(torch.arange(4.0), 2.5))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    score_files.save(network(), tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"preconditioning": "none", "prediction": "v", "process": "vp", "sigma_max": 0.9},
        {"kind": "unet", "shape": (1, 2, 2), "width": 8},
    ],
)
def test_a_network_comes_back(tmp_path: Path, given: dict[str, Any]) -> None:
    model = network(**given)
    score_files.save(model, tmp_path)
    back = score_files.load(tmp_path)
    x = torch.randn(5, 4)
    level = model.level(0.3)
    assert back.level(0.3) == level
    assert torch.equal(back.coordinates(x), (x - torch.arange(4.0)) / 2.5)
    assert torch.equal(back.score(x, level), model.score(x, level))
    assert (back.scale, back.largest, back.sigma_range) == (2.5, 3.0, model.sigma_range)


def test_an_empirical_score_comes_back(tmp_path: Path) -> None:
    model = EmpiricalScore(torch.randn(9, 3), torch.ones(3), 0.5)
    score_files.save(model, tmp_path)
    back = score_files.load(tmp_path)
    assert isinstance(back, EmpiricalScore)
    x = torch.randn(2, 3)
    assert torch.equal(back.score(x, back.level(0.5)), model.score(x, model.level(0.5)))
    assert torch.equal(back.coordinates(x), (x - 1) / 0.5)


def test_a_function_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="CallableScore"):
        score_files.save(CallableScore(lambda y, sigma: -y), tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"width": 9}, "has shape"),
        ({"blocks": 3}, "is missing"),
        ({"blocks": 1}, "belongs to no layer"),
        ({"width": 0}, "width"),
        ({"colour": 1}, "colour"),
        ({"sigma_min": 5.0}, "sigma_min must be below"),
        ({"prediction": "v"}, "edm"),
        ({"format": "torch"}, 'neither "network" nor "empirical"'),
        ({"format": "empirical"}, "are not points"),
        ({"scale": 0}, "scale"),
        ({"scale": "1"}, "scale"),
        ({"kind": "unet"}, "unet"),
        ({"kind": "unet", "shape": [1, 3, 3]}, "U-Net"),
        ({"shape": [5]}, "has shape"),
    ],
)
def test_settings_that_do_not_fit_are_explained(folder: Path, changed: dict[str, Any], words: str) -> None:
    path = folder / score_files.SETTINGS
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError) as caught:
        score_files.load(folder, field="model_uri")
    assert words in str(caught.value)
    assert str(caught.value).startswith("model_uri")


def test_files_that_are_no_model_are_explained(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / score_files.TENSORS)
    save_file(
        {name: t * float("nan") if "enter" in name else t for name, t in tensors.items()}, folder / "x.safetensors"
    )
    (folder / "x.safetensors").replace(folder / score_files.TENSORS)
    with pytest.raises(InputError, match="holds NaN"):
        score_files.load(folder)
    (folder / score_files.SETTINGS).write_text("[1]")
    with pytest.raises(InputError, match="JSON object"):
        score_files.load(folder)
    (folder / score_files.SETTINGS).unlink()
    with pytest.raises(InputError, match=r"holds no score_model\.json"):
        score_files.load(folder)
    torch.save({"w": torch.zeros(2)}, folder / "weights.bin")
    with pytest.raises(InputError, match="program"):
        score_files.load(folder)


diffusers = pytest.importorskip("diffusers")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random U-Net with its schedule, as DDPMPipeline saves it."""
    folder = tmp_path_factory.mktemp("pipeline")
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler()).save_pretrained(folder, safe_serialization=True)
    return folder


def test_a_diffusers_pipeline_is_a_score_model(pipeline: Path) -> None:
    model = score_diffusers.load(pipeline)
    assert (model.prediction, model.shape, model.n_features) == ("epsilon", (1, 8, 8), 64)
    low, high = model.sigma_range
    assert low == pytest.approx(0.01, abs=1e-4)
    assert 0.999 < high < 1
    level = model.level(0.5)
    assert level.a**2 + level.b**2 == pytest.approx(1)
    assert level.b == pytest.approx(0.5, abs=0.01)
    y = torch.randn(3, 64)
    with torch.no_grad():
        by_hand = -model.unet(y.reshape(3, 1, 8, 8), int(level.time)).sample.flatten(1) / level.b
        torch.testing.assert_close(model.score(y, level), by_hand, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="outside"):
        model.level(1.5)


def test_a_diffusers_model_goes_to_disk_and_back_in_both_layouts(pipeline: Path, tmp_path: Path) -> None:
    model = score_diffusers.load(pipeline, prediction="v")
    model.save(tmp_path)
    (tmp_path / "scheduler" / "scheduler_config.json").rename(tmp_path / "unet" / "scheduler_config.json")
    back = score_diffusers.load(tmp_path / "unet", prediction="v")
    y, level = torch.randn(2, 64), model.level(0.3)
    with torch.no_grad():
        assert torch.equal(back.score(y, level), model.score(y, level))


def test_fused_attention_is_left_out_so_that_the_hessian_exists(pipeline: Path) -> None:
    from kfp_methods.components.science.lhsd.estimate import Quadrature, spectra
    from kfp_methods.components.science.lhsd.operator import Hessian

    model = score_diffusers.load(pipeline)
    level, x = model.level(0.3), torch.randn(2, 64)
    found = spectra(model, x, 0.3, Quadrature(probes=2, steps=2))
    assert found.lanczos.alpha.isfinite().all()
    operator = Hessian(lambda y: model.score(y, level), x)
    u, v = torch.randn(2, 64), torch.randn(2, 64)
    torch.testing.assert_close(
        (u * operator.forward(v)).sum(1), (operator.transposed(u) * v).sum(1), rtol=1e-3, atol=1e-3
    )


def test_diffusers_folders_that_cannot_be_used_are_explained(pipeline: Path, tmp_path: Path) -> None:
    import shutil

    def changed(name: str, file: str, **entries: Any) -> Path:
        copy = shutil.copytree(pipeline, tmp_path / name)
        path = copy / file
        path.write_text(json.dumps(json.loads(path.read_text()) | entries))
        return copy

    cases = [
        (changed("class", "unet/config.json", _class_name="UNet2DConditionModel"), "UNet2DConditionModel"),
        (changed("labels", "unet/config.json", num_class_embeds=10), "with classes"),
        (changed("variance", "unet/config.json", out_channels=2), "no image of the input's shape"),
        (changed("odd", "scheduler/scheduler_config.json", prediction_type="flow"), "prediction_type 'flow'"),
        (changed("wide", "unet/config.json", block_out_channels=[16, 16]), "cannot load"),
    ]
    bare = shutil.copytree(pipeline / "unet", tmp_path / "bare")
    cases.append((bare, "scheduler_config.json"))
    pickled = shutil.copytree(pipeline, tmp_path / "pickled")
    (pickled / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    torch.save({"w": torch.zeros(2)}, pickled / "unet" / "diffusion_pytorch_model.bin")
    cases.append((pickled, "program"))
    for folder, words in cases:
        with pytest.raises(InputError) as caught:
            score_diffusers.load(folder, field="model_uri")
        assert words in str(caught.value), (folder.name, str(caught.value))
