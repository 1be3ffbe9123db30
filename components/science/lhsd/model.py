"""The score model with the noise level and filter of a run: gives further points their dimension."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kfp_methods.components.science import score_diffusers, score_files
from kfp_methods.components.science.lhsd.estimate import Quadrature, spectra
from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.score_models import ScoreModel
from kfp_methods.networks import one_core

_SETTINGS, _ROWS = "dimension.json", "example.safetensors"


@dataclass(frozen=True)
class DimensionModel:
    """A score model, and at which noise level and with which filter and probes its Hessian is looked at.

    Attributes:
        model: the score model; a network, an empirical score or diffusers' U-Net.
        sigma: noise level b, in the model's units.
        filter: f.
        quadrature: probes, Lanczos steps, seed.
        columns: names of the features, as the user's table has them; x0, x1, … for arrays.
        rows: a few points for `example` [n, D].
    """

    model: ScoreModel
    sigma: float
    filter: Filter
    quadrature: Quadrature
    columns: tuple[str, ...]
    rows: Tensor

    @one_core()
    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Each row's dimension `lid` and its standard error over probes, `stderr`.

        Raises:
            ValueError: a column is missing or a number is not finite.
        """
        if missing := [name for name in self.columns if name not in frame]:
            raise ValueError(f"missing columns {missing[:5]}; needed: {self.columns[0]}, …, {self.columns[-1]}")
        x = torch.from_numpy(frame[list(self.columns)].to_numpy(np.float32, copy=True))
        if not x.isfinite().all():
            raise ValueError("a feature is missing or not finite")
        if len(x) == 0:
            return pd.DataFrame({"lid": [], "stderr": []}, index=frame.index, dtype=float)
        found = spectra(self.model, self.model.coordinates(x), self.sigma, self.quadrature)
        lid, stderr = found.dimension(self.filter)
        return pd.DataFrame({"lid": lid.numpy(), "stderr": stderr.numpy()}, index=frame.index)

    def example(self) -> pd.DataFrame:
        """A few of the scored points."""
        return pd.DataFrame(self.rows.double().numpy(), columns=list(self.columns))

    def save(self, folder: Path) -> None:
        """Writes the score model's folder `score_model`, which `model_uri` takes too, and the settings beside it."""
        inside = folder / "score_model"
        inside.mkdir()
        kind = "diffusers" if isinstance(self.model, score_diffusers.DiffusersScore) else "own"
        if isinstance(self.model, score_diffusers.DiffusersScore):
            self.model.save(inside)
        else:
            score_files.save(self.model, inside)
        about = {
            "kind": kind,
            "prediction": self.model.prediction,
            "sigma": self.sigma,
            "filter": asdict(self.filter),
            "quadrature": asdict(self.quadrature),
            "columns": list(self.columns),
        }
        (folder / _SETTINGS).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        save_file({"rows": self.rows.contiguous()}, folder / _ROWS)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        about: dict[str, Any] = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        inside = folder / "score_model"
        model: ScoreModel
        if about["kind"] == "diffusers":
            model = score_diffusers.load(inside, prediction=about["prediction"])
        else:
            model = score_files.load(inside)
        return cls(
            model=model,
            sigma=about["sigma"],
            filter=Filter(**about["filter"]),
            quadrature=Quadrature(**about["quadrature"]),
            columns=tuple(about["columns"]),
            rows=load_file(folder / _ROWS)["rows"],
        )
