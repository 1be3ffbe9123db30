"""The fitted attack: scores new records against the references of an audit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kfp_methods.components.tabular.bmia.architectures import build
from kfp_methods.components.tabular.bmia.choices import ScoreName
from kfp_methods.components.tabular.bmia.decision import t_test
from kfp_methods.components.tabular.bmia.posterior import sample_scores, with_bias
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.scores import are_probabilities, logits_of_probabilities, score
from kfp_methods.components.tabular.bmia.training import Recipe, outputs

_TENSORS, _SETTINGS = "attack.safetensors", "attack.json"


@dataclass(frozen=True)
class Reference:
    """A trained reference and its posterior samples [M, C, D] of the last layer."""

    model: nn.Sequential
    samples: Tensor


@dataclass(frozen=True)
class MembershipAttack:
    """References with their posterior samples, and the threshold that the audit calibrated.

    `predict` takes one column for each input feature (x0, x1, …), the label, and the target's logits or
    probabilities (logit0, …); it returns t, p_value and member for each row.

    Attributes:
        references: K of them.
        recipe: how they are built.
        input_shape: of one record.
        n_classes: number of classes C.
        center: subtracted from every record's inputs before a reference sees them.
        scale: by which they are divided then.
        score: of the logits.
        alpha: intended share of non-members flagged.
        threshold: members have t above it (infinite: nobody is flagged); None where members have p < alpha.
        rows: a few audited records, scaled, for `example`.
        row_logits: the target's logits on them.
    """

    references: tuple[Reference, ...]
    recipe: Recipe
    input_shape: tuple[int, ...]
    n_classes: int
    center: Tensor
    scale: Tensor
    score: ScoreName
    alpha: float
    threshold: float | None
    rows: Records
    row_logits: Tensor

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Membership of each row: t, p_value, member.

        Raises:
            ValueError: a column is missing, or a label is no class.
        """
        names = [*self._features(), "label", *self._logits()]
        if missing := [name for name in names if name not in frame]:
            raise ValueError(f"missing columns {missing[:5]}; needed: {names[0]}, …, label, {self._logits()[0]}, …")
        if not frame["label"].isin(range(self.n_classes)).all():
            raise ValueError(f"label must be a whole number from 0 to {self.n_classes - 1}")
        x = torch.from_numpy(frame[self._features()].to_numpy(np.float32, copy=True)).reshape(-1, *self.input_shape)
        x = (x - self.center) / self.scale
        labels = torch.from_numpy(frame["label"].to_numpy(np.int64, copy=True))
        given = frame[self._logits()].to_numpy(np.float64, copy=True)
        logits = torch.from_numpy(logits_of_probabilities(given) if len(given) and are_probabilities(given) else given)
        drawn = [
            sample_scores(with_bias(outputs(reference.model, x)[0]), labels, reference.samples, self.score)
            for reference in self.references
        ]
        test = t_test(score(self.score, logits, labels).numpy(), np.stack(drawn))
        member = test.p_value < self.alpha if self.threshold is None else test.t > self.threshold
        return pd.DataFrame({"t": test.t, "p_value": test.p_value, "member": member}, index=frame.index)

    def example(self) -> pd.DataFrame:
        """A few rows of the audit, as `predict` takes them: floats, so that MLflow's schema takes whole numbers too."""
        x = (self.rows.x * self.scale + self.center).flatten(1).numpy().astype(np.float64)
        columns = dict(zip(self._features(), x.T, strict=True)) | {"label": self.rows.y.double().numpy()}
        return pd.DataFrame(columns | dict(zip(self._logits(), self.row_logits.double().numpy().T, strict=True)))

    def save(self, folder: Path) -> None:
        """Writes tensors and settings."""
        tensors = {
            "center": self.center,
            "scale": self.scale,
            "x": self.rows.x,
            "y": self.rows.y,
            "logits": self.row_logits,
        }
        for k, reference in enumerate(self.references):
            tensors[f"{k}.samples"] = reference.samples
            tensors |= {f"{k}.model.{name}": tensor for name, tensor in reference.model.state_dict().items()}
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, folder / _TENSORS)
        settings = {
            "recipe": asdict(self.recipe),
            "input_shape": list(self.input_shape),
            "n_classes": self.n_classes,
            "score": self.score,
            "alpha": self.alpha,
            "decision_rule": "t" if self.threshold is None else "calibrated",
            "threshold": self.threshold if self.threshold is not None and math.isfinite(self.threshold) else None,
            "n_references": len(self.references),
        }
        (folder / _SETTINGS).write_text(json.dumps(settings, indent=1, allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        settings: dict[str, Any] = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        tensors = load_file(folder / _TENSORS)
        recipe = Recipe(**settings["recipe"] | {"hidden": tuple(settings["recipe"]["hidden"])})
        shape, C = tuple(settings["input_shape"]), settings["n_classes"]
        return cls(
            references=tuple(_reference(tensors, k, recipe, shape, C) for k in range(settings["n_references"])),
            recipe=recipe,
            input_shape=shape,
            n_classes=C,
            center=tensors["center"],
            scale=tensors["scale"],
            score=settings["score"],
            alpha=settings["alpha"],
            threshold=_threshold(settings),
            rows=Records(tensors["x"], tensors["y"]),
            row_logits=tensors["logits"],
        )

    def _features(self) -> list[str]:
        return [f"x{index}" for index in range(int(np.prod(self.input_shape)))]

    def _logits(self) -> list[str]:
        return [f"logit{index}" for index in range(self.n_classes)]


def _threshold(settings: dict[str, Any]) -> float | None:
    """JSON has no infinity: a calibrated threshold that nothing exceeds is stored as null."""
    if settings["decision_rule"] == "t":
        return None
    return math.inf if settings["threshold"] is None else float(settings["threshold"])


def _reference(tensors: dict[str, Tensor], k: int, recipe: Recipe, shape: tuple[int, ...], C: int) -> Reference:
    model = build(recipe.architecture, shape, C, seed=0, hidden=recipe.hidden)
    prefix = f"{k}.model."
    model.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    return Reference(model.eval(), tensors[f"{k}.samples"])
