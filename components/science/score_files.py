"""A score model on disk: `score_model.json` says how it is built, `score_model.safetensors` holds its tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save_file
from torch import Tensor

from kfp_methods import artifacts
from kfp_methods.components.science.score_choices import (
    TRAINED_SIGMAS,
    NetworkKind,
    Preconditioning,
    Prediction,
    Process,
)
from kfp_methods.components.science.score_models import EmpiricalScore, Level, ScoreModel, Standardisation, level_of
from kfp_methods.components.science.score_networks import Architecture, Preconditioned, build
from kfp_methods.errors import InputError, Problem

SETTINGS, TENSORS = "score_model.json", "score_model.safetensors"
_MAX_SETTINGS_BYTES = 2**20
_WRITE = "Write the folder as the README of the method says"


class NetworkSettings(BaseModel):
    """What `score_model.json` holds for a network.

    prediction: what the output stands for; EDM's preconditioning makes it the denoised point.
    process: "ve", x0 + sigma eps, or "vp", sqrt(1 - sigma^2) x0 + sigma eps.
    largest: largest |coordinate| of the training data, standardised; null when unknown.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    kind: NetworkKind = "mlp"
    shape: tuple[int, ...] = Field(min_length=1, max_length=3)
    width: int = Field(256, ge=1, le=65_536)
    blocks: int = Field(3, ge=1, le=1_000)
    preconditioning: Preconditioning = "edm"
    prediction: Prediction = "denoised"
    process: Process = "ve"
    sigma_data: float = Field(1.0, gt=0)
    sigma_min: float = Field(TRAINED_SIGMAS[0], gt=0)
    sigma_max: float = Field(TRAINED_SIGMAS[1], gt=0)
    largest: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if any(not 1 <= side <= 2**24 for side in self.shape) or (self.kind == "unet" and len(self.shape) != 3):
            raise ValueError(f"shape {list(self.shape)} is no shape of a point that a {self.kind} takes")
        if not self.sigma_min < self.sigma_max or (self.process == "vp" and self.sigma_max >= 1):
            raise ValueError("sigma_min must be below sigma_max, and sigma_max below 1 for process vp")
        if self.preconditioning == "edm" and (self.prediction, self.process) != ("denoised", "ve"):
            raise ValueError('preconditioning "edm" goes with prediction "denoised" and process "ve"')
        return self

    @property
    def architecture(self) -> Architecture:
        return Architecture(self.kind, self.shape, self.width, self.blocks)


class NetworkScore(ScoreModel):
    """The built-in score model: a network with the standardisation of its data.

    Args:
        net: in evaluation mode.
        settings: how it is built.
        standardisation: of the user's points.
    """

    def __init__(self, net: Preconditioned, settings: NetworkSettings, standardisation: Standardisation) -> None:
        self.net, self.settings, self.standardisation = net.eval().requires_grad_(False), settings, standardisation
        self.prediction, self.n_features = settings.prediction, settings.architecture.n_features
        self.sigma_range = (settings.sigma_min, settings.sigma_max)
        self.scale, self.largest = standardisation.scale, settings.largest

    def level(self, sigma: float) -> Level:
        self._check(sigma)
        return level_of(self.settings.process, sigma)

    def output(self, y: Tensor, level: Level) -> Tensor:
        return self.net(y, y.new_full((len(y), 1), level.time))

    def learned(self, y: Tensor, level: Level) -> Tensor:
        return self.net.learned(y, y.new_full((len(y), 1), level.time))

    def coordinates(self, x: Tensor) -> Tensor:
        return self.standardisation(x)


def save(model: ScoreModel, folder: Path) -> None:
    """Writes a network or an empirical score into an existing folder.

    Raises:
        TypeError: the model is of another kind.
    """
    if isinstance(model, NetworkScore):
        tensors = {f"net.{name}": tensor for name, tensor in model.net.state_dict().items()}
        tensors["center"] = model.standardisation.center
        about = {"format": "network", **model.settings.model_dump(), "scale": model.scale}
    elif isinstance(model, EmpiricalScore):
        tensors, about = {"points": model.points, "center": model.center}, {"format": "empirical", "scale": model.scale}
    else:
        raise TypeError(f"{type(model).__name__} cannot be saved")
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, folder / TENSORS)
    (folder / SETTINGS).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load(folder: Path, *, field: str = "model") -> NetworkScore | EmpiricalScore:
    """Reads what `save` wrote, or what a user wrote in the same format.

    The folder's `score_model.json` has the fields of `NetworkSettings`, "format": "network" and perhaps "scale" (1);
    the tensors are `net.network.…`, named as in `score_networks`, and perhaps `center` [D] (0).

    Raises:
        InputError: it is another format, a program in disguise, or the tensors do not fit the settings.
    """
    artifacts.refuse_program(folder, field=field)
    if not (folder / SETTINGS).is_file():
        problem = f"holds no {SETTINGS} beside its tensors" if folder.is_dir() else "is a file, not a model's folder"
        raise InputError(Problem(field, str(folder), problem, _WRITE))
    about = _settings(folder / SETTINGS, field)
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for name, array in artifacts.read_tensors(folder / TENSORS, field=field).items()
    }
    scale, kind = about.pop("scale", 1.0), about.pop("format", None)
    if not isinstance(scale, int | float) or isinstance(scale, bool) or not 0 < scale < float("inf"):
        raise InputError(Problem(field, str(folder), f"{SETTINGS}: scale {scale!r} is not positive", _WRITE))
    if kind == "empirical":
        return _empirical(tensors, float(scale), folder, field)
    if kind != "network":
        problem = f'{SETTINGS}: format {kind!r} is neither "network" nor "empirical"'
        raise InputError(Problem(field, str(folder), problem, _WRITE))
    try:
        settings = NetworkSettings.model_validate(about)
    except ValidationError as error:
        raise InputError([_of_pydantic(entry, folder, field) for entry in error.errors()]) from None
    return _network(settings, tensors, float(scale), folder, field)


def _settings(path: Path, field: str) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_SETTINGS_BYTES:
            raise ValueError
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise InputError(Problem(field, str(path), "is not a small JSON object", _WRITE)) from None
    return content


def _of_pydantic(entry: Any, folder: Path, field: str) -> Problem:
    place = ".".join(map(str, entry["loc"]))
    words = str(entry["msg"]).removeprefix("Value error, ")
    return Problem(field, str(folder), f"{SETTINGS}: {place + ': ' if place else ''}{words}", _WRITE)


def _empirical(tensors: dict[str, Tensor], scale: float, folder: Path, field: str) -> EmpiricalScore:
    points, center = tensors.get("points"), tensors.get("center")
    if points is None or points.ndim != 2 or (center is not None and center.shape != points.shape[1:]):
        problem = "its tensors are not points [n, d] and perhaps center [d]"
        raise InputError(Problem(field, str(folder), problem, _WRITE))
    return EmpiricalScore(points, center, scale)


def _network(
    settings: NetworkSettings, tensors: dict[str, Tensor], scale: float, folder: Path, field: str
) -> NetworkScore:
    def wrong(problem: str, remedy: str = _WRITE) -> InputError:
        return InputError(Problem(field, str(folder), problem, remedy))

    try:
        with torch.device("meta"):
            wanted = Preconditioned(build(settings.architecture, 0)).state_dict()
    except ValueError as error:
        raise wrong(f"{SETTINGS}: {error}") from None
    given = {name.removeprefix("net."): tensor for name, tensor in tensors.items() if name != "center"}
    for name, tensor in wanted.items():
        if name not in given:
            raise wrong(f"tensor net.{name} of shape {tuple(tensor.shape)} is missing")
        if given[name].shape != tensor.shape:
            raise wrong(f"tensor net.{name} has shape {tuple(given[name].shape)} where {tuple(tensor.shape)} is needed")
    if surplus := sorted(given.keys() - wanted.keys()):
        raise wrong(f"tensor net.{surplus[0]} belongs to no layer", "Take it out, or correct width and blocks")
    if bad := [name for name, tensor in given.items() if not tensor.isfinite().all()]:
        raise wrong(f"tensor net.{bad[0]} holds NaN or infinities", "Save the weights of a training that converged")
    center = tensors.get("center", torch.zeros(settings.architecture.n_features))
    if center.shape != (settings.architecture.n_features,):
        raise wrong(f"tensor center has shape {tuple(center.shape)}, not ({settings.architecture.n_features},)")
    net = Preconditioned(build(settings.architecture, 0), settings.sigma_data, settings.preconditioning)
    net.load_state_dict({name: tensor.float() for name, tensor in given.items()})
    return NetworkScore(net, settings, Standardisation(center.float(), scale))
