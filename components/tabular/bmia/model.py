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
from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.choices import DecisionRule, ScoreName
from kfp_methods.components.tabular.bmia.columns import logit_columns
from kfp_methods.components.tabular.bmia.decision import MembershipTest, flags, t_test
from kfp_methods.components.tabular.bmia.posterior import with_bias
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.scores import are_probabilities, logits_of_probabilities, sample_scores, score
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

    `predict` takes one column for each input feature, the label, and the target's logits or probabilities
    (logit0, …); it returns t, p_value and member for each row.

    Attributes:
        references: K of them.
        recipe: how they are built.
        features: the inputs' columns, in the order of the references' inputs.
        input_shape: of one record.
        n_classes: number of classes C.
        center: subtracted from every record's inputs before a reference sees them.
        scale: by which they are divided then.
        score: of the logits.
        alpha: intended share of non-members flagged.
        decision_rule: see `decision.flags`.
        threshold: calibrated threshold of t, infinite where nobody is flagged; None without one.
        rows: a few audited records, scaled, for `example`.
        row_logits: the target's logits on them.
    """

    references: tuple[Reference, ...]
    recipe: Recipe
    features: tuple[str, ...]
    input_shape: tuple[int, ...]
    n_classes: int
    center: Tensor
    scale: Tensor
    score: ScoreName
    alpha: float
    decision_rule: DecisionRule
    threshold: float | None
    rows: Records
    row_logits: Tensor

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Membership of each row: t, p_value, member; all missing in rows with a missing or infinite number.

        `member` is missing in every row where the audit had nothing to calibrate the decision on. Columns are taken
        by name, in any order; others are ignored.

        Raises:
            ValueError: a column is missing or holds no numbers, or a label is no class.
        """
        values = self._numbers(frame)
        whole = np.isfinite(values).all(1)
        results = pd.DataFrame(index=frame.index)
        test = self._test(values[whole])
        member = flags(test, self.threshold, self.alpha, self.decision_rule)
        for name, found in (("t", test.t), ("p_value", test.p_value)):
            results[name] = np.full(len(frame), np.nan)
            results.loc[whole, name] = found
        results["member"] = pd.array(np.full(len(frame), None), dtype="boolean")
        if member is not None:
            results.loc[whole, "member"] = member
        return results

    def example(self) -> pd.DataFrame:
        """A few rows of the audit, as `predict` takes them."""
        x = (self.rows.x * self.scale + self.center).flatten(1).numpy().astype(np.float64)
        columns = dict(zip(self.features, x.T, strict=True)) | {"label": self.rows.y.numpy()}
        logits = zip(logit_columns(self.n_classes), self.row_logits.double().numpy().T, strict=True)
        return pd.DataFrame(columns | dict(logits))

    def _numbers(self, frame: pd.DataFrame) -> Floats:
        """Features, label and logits of each row [n, d + 1 + C]."""
        names = [*self.features, "label", *logit_columns(self.n_classes)]
        if missing := [name for name in names if name not in frame]:
            needed = f"{names[0]}, …, label, {logit_columns(self.n_classes)[0]}, …"
            raise ValueError(f"missing columns {missing[:5]}; needed: {needed}")
        try:
            values = frame[names].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a column holds something else than numbers: {error}") from None
        labels = values[:, len(self.features)]
        if not np.isin(labels[np.isfinite(labels)], range(self.n_classes)).all():
            raise ValueError(f"label must be a whole number from 0 to {self.n_classes - 1}")
        return values

    def _test(self, values: Floats) -> MembershipTest:
        """The test of rows without gaps [n, d + 1 + C]."""
        d = len(self.features)
        x = torch.from_numpy(values[:, :d].astype(np.float32)).reshape(-1, *self.input_shape)
        x = (x - self.center) / self.scale
        labels, given = torch.from_numpy(values[:, d].astype(np.int64)), values[:, d + 1 :]
        logits = torch.from_numpy(logits_of_probabilities(given) if len(given) and are_probabilities(given) else given)
        drawn = [
            sample_scores(with_bias(outputs(reference.model, x)[0]), labels, reference.samples, self.score)
            for reference in self.references
        ]
        return t_test(score(self.score, logits, labels).numpy(), np.stack(drawn))

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
            "features": list(self.features),
            "decision_rule": self.decision_rule,
            "threshold": None if self.threshold == math.inf else self.threshold,
            "calibrated": self.threshold is not None,
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
            features=tuple(settings["features"]),
            input_shape=shape,
            n_classes=C,
            center=tensors["center"],
            scale=tensors["scale"],
            score=settings["score"],
            alpha=settings["alpha"],
            decision_rule=settings["decision_rule"],
            threshold=_threshold(settings["threshold"], settings["calibrated"]),
            rows=Records(tensors["x"], tensors["y"]),
            row_logits=tensors["logits"],
        )


def _threshold(stored: float | None, calibrated: bool) -> float | None:
    """JSON has no infinity: a calibrated threshold that nothing exceeds is stored as null."""
    return math.inf if calibrated and stored is None else stored


def _reference(tensors: dict[str, Tensor], k: int, recipe: Recipe, shape: tuple[int, ...], C: int) -> Reference:
    model = build(recipe.architecture, shape, C, seed=0, hidden=recipe.hidden)
    prefix = f"{k}.model."
    model.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    return Reference(model.eval(), tensors[f"{k}.samples"])
