"""A `UNet2DModel` of the diffusers library, with the schedule it was trained on, as a score model.

diffusers is optional: it is imported only here, when such a folder is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kfp_methods import artifacts
from kfp_methods.components.science.score_choices import Prediction
from kfp_methods.components.science.score_models import Level, ScoreModel
from kfp_methods.errors import InputError, Problem

SCHEDULE = "scheduler_config.json"
_PREDICTIONS: dict[str, Prediction] = {"epsilon": "epsilon", "v_prediction": "v", "sample": "denoised"}
_SAVE = "Save it with DDPMPipeline(unet, scheduler).save_pretrained(folder, safe_serialization=True)"


class DiffusersScore(ScoreModel):
    """An unconditional image model; points are images [C, H, W] in the model's own range, flattened.

    Args:
        unet: diffusers' `UNet2DModel`.
        alphas_cumprod: of its schedule [T]; level t has a = sqrt(abar_t), b = sqrt(1 - abar_t).
        prediction: what its output stands for.
        scheduler: kept for `save`.
    """

    largest = 1.0  # the range that diffusers' training scripts scale images to

    def __init__(self, unet: Any, alphas_cumprod: Tensor, prediction: Prediction, scheduler: Any) -> None:
        self.unet, self.scheduler, self.prediction = unet.eval().requires_grad_(False), scheduler, prediction
        self._signal = alphas_cumprod.double().sqrt()
        self._noise = (1 - alphas_cumprod.double()).sqrt()
        # With a final signal of exactly zero ("zero terminal SNR") the last level shows no data at all.
        known = self._noise[(self._signal > 0) & (self._noise > 0)]
        self.sigma_range = (float(known.min()), float(known.max()))
        side = unet.config.sample_size
        height, width = (side, side) if isinstance(side, int) else side
        self.shape = (int(unet.config.in_channels), int(height), int(width))
        self.n_features = int(torch.Size(self.shape).numel())

    def level(self, sigma: float) -> Level:
        self._check(sigma)
        t = int((self._noise.log() - torch.tensor(sigma, dtype=torch.double).log()).abs().argmin())
        return Level(float(self._signal[t]), float(self._noise[t]), float(t))

    def output(self, y: Tensor, level: Level) -> Tensor:
        # Fused attention has neither forward-mode nor second derivatives; the plain form has both.
        with sdpa_kernel(SDPBackend.MATH):
            return self.unet(y.unflatten(1, self.shape), int(level.time)).sample.flatten(1)

    def save(self, folder: Path) -> None:
        """Writes the folder again, with safetensors weights."""
        self.unet.save_pretrained(folder / "unet", safe_serialization=True)
        self.scheduler.save_pretrained(folder / "scheduler")


def load(folder: Path, *, field: str = "model", prediction: Prediction | None = None) -> DiffusersScore:
    """Reads a folder with `config.json` and weights, and the schedule beside them; or a saved pipeline's folder.

    Args:
        prediction: overrides the schedule's `prediction_type`.

    Raises:
        InputError: the folder is something else, its weights are pickled, or diffusers is not installed.
    """
    artifacts.refuse_program(folder, field=field)
    weights = folder / "unet" if (folder / "unet").is_dir() else folder
    schedule = next((p for p in (folder / "scheduler" / SCHEDULE, weights / SCHEDULE) if p.is_file()), None)
    if not folder.is_dir() or schedule is None:
        raise InputError(Problem(field, str(folder), f"holds no {SCHEDULE}, which says its noise levels", _SAVE))
    artifacts.huggingface_folder(weights, field=field)
    try:
        from diffusers import DDPMScheduler, UNet2DModel
    except ImportError:
        remedy = "Install it: pip install diffusers"
        raise InputError(Problem("model_kind", "diffusers", "the library diffusers is not installed", remedy)) from None
    config = UNet2DModel.load_config(weights, local_files_only=True)
    if config.get("_class_name") != "UNet2DModel" or config.get("num_class_embeds") or config.get("class_embed_type"):
        named = f"{config.get('_class_name')}{' with classes' if config.get('num_class_embeds') else ''}"
        raise InputError(Problem(field, str(folder), f"is {named}", "Give an unconditional UNet2DModel"))
    if config.get("in_channels") != config.get("out_channels") or not config.get("sample_size"):
        problem = "its output is no image of the input's shape, or config.json has no sample_size"
        raise InputError(Problem(field, str(folder), problem, "Give a model that predicts one image"))
    scheduler = DDPMScheduler.from_pretrained(schedule.parent, local_files_only=True)
    stated = _PREDICTIONS.get(str(scheduler.config.prediction_type))
    if prediction is None and stated is None:
        problem = f"{SCHEDULE}: prediction_type {scheduler.config.prediction_type!r} is not known"
        raise InputError(Problem(field, str(folder), problem, "Give prediction=epsilon, v, denoised or score"))
    try:
        unet = UNet2DModel.from_pretrained(weights, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:100]
        raise InputError(Problem(field, str(folder), f"diffusers cannot load it ({reason})", _SAVE)) from None
    return DiffusersScore(unet, scheduler.alphas_cumprod, cast("Prediction", prediction or stated), scheduler)
