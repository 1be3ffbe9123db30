"""The shown mixture as a model: from inputs to prediction, expert, concepts and formula."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from kfp_methods.components.tabular.mcbe import formulas, measuring
from kfp_methods.components.tabular.mcbe.data import Data, Floats
from kfp_methods.components.tabular.mcbe.networks import Encoder, FormulaExperts, Mixture

_ABOUT, _WEIGHTS, _SCALE = "experts.json", "weights.safetensors", "scale.npz"
_SCALES = ("c_mean", "c_sd", "y_mean", "y_sd", "x_mean", "x_sd")


@dataclass(frozen=True)
class Explained:
    """A mixture of formulas in the units of concepts and target.

    Attributes:
        mixture: with `FormulaExperts`, whatever its experts were trained as.
        about: names, sizes and formulas; plain JSON values.
        scale: how inputs are standardised, see `Scale`.
        row: one row of inputs, for `example`.
        clip: range that predictions of a regression are kept in; None: not at all.
    """

    mixture: Mixture
    about: dict[str, Any]
    scale: dict[str, Floats]
    row: Floats

    @classmethod
    def of(cls, mixture: Mixture, data: Data, hidden: int, latent: int, selector: str, *, clip: bool) -> Self:
        """From a trained mixture, whose formulas are written down."""
        written = measuring.expressions(mixture, data)
        assert written is not None  # noqa: S101 (MLP experts are not shown)
        train = data.y[data.rows(0)]
        about = {
            "experts": [[formulas.to_tree(one) for one in row] for row in written],
            "concepts": list(data.c_names),
            "binary": list(data.binary),
            "outputs": list(data.y_names),
            "classes": list(data.classes),
            "shape": list(data.x.shape[1:]),
            "hidden": hidden,
            "latent": latent,
            "selector": selector,
            "clip": [train.min(0).tolist(), train.max(0).tolist()] if clip and not data.classes else None,
        }
        scale = {name: np.asarray(getattr(data.scale, name), np.float64) for name in _SCALES}
        first = data.x[data.rows(0)[:1]].reshape(1, -1)[0].astype(np.float64)
        return cls(_with_formulas(mixture.cpu(), written, scale), about, scale, first)

    @property
    def columns(self) -> list[str]:
        """Of inputs."""
        return [f"x_{i}" for i in range(int(np.prod(self.about["shape"])))]

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Prediction, expert, concepts and formula of each row; inputs are the columns that start with x_, in order.

        Raises:
            ValueError: another number of inputs, or something else than numbers.
        """
        names = [name for name in frame.columns if str(name).startswith("x_")]
        if len(names) != len(self.columns):
            raise ValueError(f"{len(names)} columns x_*; needed: {len(self.columns)}")
        try:
            values = frame[names].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a column holds something else than numbers: {error}") from None
        return self.explain(values.reshape(len(frame), *self.about["shape"]), frame.index)

    @torch.no_grad()
    def explain(self, x: Floats, index: pd.Index | None = None) -> pd.DataFrame:
        """The same for inputs [n, *shape]."""
        scaled = torch.tensor((x - self.scale["x_mean"]) / self.scale["x_sd"], dtype=torch.float32)
        logits, selector = self.mixture.eval().encode(scaled)
        c = self.mixture.predicted(logits)
        picked = selector.argmax(1).numpy()
        outputs = self.mixture.decide(
            c, torch.nn.functional.one_hot(selector.argmax(1), self.mixture.M).transpose(1, 2)
        )
        values = outputs.double().numpy() * self.scale["y_sd"] + self.scale["y_mean"]
        concepts = c.double().numpy() * self.scale["c_sd"] + self.scale["c_mean"]
        frame = pd.DataFrame(index=pd.RangeIndex(len(x)) if index is None else index)
        if self.about["classes"]:
            frame["prediction"] = np.array(self.about["classes"], object)[measuring.classes_of(values)]
        else:
            if self.about["clip"]:
                values = np.clip(values, *self.about["clip"])
            for o, name in enumerate(self.about["outputs"]):
                frame["prediction" if len(self.about["outputs"]) == 1 else f"prediction_{name}"] = values[:, o]
        shown = [
            [formulas.shown(formulas.from_tree(one), self.about["concepts"]) for one in row]
            for row in self.about["experts"]
        ]
        several = picked.shape[1] > 1
        for o in range(picked.shape[1]):
            suffix = f"_{o}" if several else ""
            frame[f"expert{suffix}"] = [f"expert {m}" for m in picked[:, o]]
            frame[f"formula{suffix}"] = [shown[m][o] for m in picked[:, o]]
        for k, name in enumerate(self.about["concepts"]):
            frame[f"concept_{name}"] = concepts[:, k]
        return frame

    def example(self) -> pd.DataFrame:
        """The first training row."""
        return pd.DataFrame([self.row], columns=self.columns)

    def save(self, folder: Path) -> None:
        """Writes experts.json, to be read by people too, and the networks' weights."""
        (folder / _ABOUT).write_text(json.dumps(self.about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        kept = {
            name: value.contiguous()
            for name, value in self.mixture.state_dict().items()
            if not name.startswith("experts.")
        }
        save_file(kept, folder / _WEIGHTS)
        np.savez(folder / _SCALE, **{"row": self.row, **self.scale})  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote; formulas are rebuilt from their trees, and nothing in them is run."""
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        with np.load(folder / _SCALE, allow_pickle=False) as stored:
            scale, row = {name: stored[name] for name in _SCALES}, stored["row"]
        written = [[formulas.from_tree(one) for one in row] for row in about["experts"]]
        M, outputs, latent = len(written), len(written[0]), about["latent"]
        encoder = Encoder(about["shape"], about["hidden"], latent)
        mixture = Mixture(encoder, torch.nn.Identity(), M, outputs, latent, about["binary"], about["selector"])
        if len(about["shape"]) > 1:
            encoder(torch.zeros(2, *about["shape"]))
        mixture.load_state_dict(load_file(folder / _WEIGHTS))
        return cls(_with_formulas(mixture, written, scale), about, scale, row)


def _with_formulas(mixture: Mixture, written: Any, scale: dict[str, Floats]) -> Mixture:
    import copy

    found = copy.deepcopy(mixture)
    c_mean, c_sd, y_mean, y_sd = (
        torch.tensor(scale[name], dtype=torch.float32) for name in ("c_mean", "c_sd", "y_mean", "y_sd")
    )
    found.experts = FormulaExperts(written, (c_mean, c_sd), (y_mean, y_sd))
    return found
