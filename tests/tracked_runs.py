"""A small method's run, as the tracking tests tell it to MLflow."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from kfp_methods.claims import Claim, judge, not_measured
from kfp_methods.context import CurvePoint
from kfp_methods.report import Figure, Table
from kfp_methods.tracking import DatasetUsed, Outcome, Tracker

CLAIM = Claim("auc-gain", "The attack beats its baseline", "0.12", "difference of AUC", "greater", 0.0)
OPEN_CLAIM = Claim("speed", "It is fast", "3x", "seconds", "less", 1.0)
PIXEL = '<svg xmlns="http://www.w3.org/2000/svg"/>'
FILES = {"claims.json", "figures", "inputs.json", "report.html", "tables"}


@dataclass(frozen=True)
class Scale:
    """y = factor * x."""

    factor: float

    def save(self, folder: Path) -> None:
        (folder / "scale.json").write_text(json.dumps(self.factor))

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"y": frame["x"] * self.factor})

    def example(self) -> pd.DataFrame:
        return pd.DataFrame({"x": [1.0, 2.0]})


TOY = SimpleNamespace(load_model=lambda folder: Scale(json.loads((folder / "scale.json").read_text())))


def saved_model(folder: Path, factor: float = 3.0) -> dict[str, Any]:
    """The outcome's fields of a model that lies in `folder`."""
    folder.mkdir()
    Scale(factor).save(folder)
    (folder / "method.json").write_text(json.dumps({"method": "toy", "version": "0"}))
    return {"model": Scale(factor), "model_folder": folder}


def curve(name: str, steps: int) -> list[CurvePoint]:
    now = time.time_ns() // 1_000_000
    return [CurvePoint(name, 1 / (1 + step), step, now + step) for step in range(steps)]


def outcome(folder: Path, **changes: Any) -> Outcome:
    """A finished run with some of everything but a model."""
    page = folder / "page.html"
    page.write_text("<html>Ergebnis: größer</html>", encoding="utf-8")
    known: dict[str, Any] = {
        "status": "FINISHED",
        "parameters": {"seed": 7, "preset": "smoke", "rate": 0.5, "sizes": [1, 2], "flag": True, "name": "größe 大"},
        "metrics": {"auc": 0.875, "unmeasured": None},
        "claims": [judge(CLAIM, [0.1, 0.12, 0.11]), not_measured(OPEN_CLAIM, "needs a GPU")],
        "points": [],
        "report": page,
        "figures": [Figure("roc", "ROC", "a curve", PIXEL)],
        "tables": [Table("scores", "Scores", pd.DataFrame({"a": [1, 2], "ü": ["x", "y"]}))],
        "model": None,
        "model_folder": None,
        "register_as": "",
        "datasets": [DatasetUsed("members_uri", "s3://bucket/members.csv", "ab" * 32, 100)],
        "data": "user",
        "warnings": [],
        "error": "",
    }
    return Outcome(**{**known, **changes})


def tracker(environ: Mapping[str, str], notes: list[str], timeout: float = 60, experiment: str = "") -> Tracker:
    return Tracker(
        method="toy", experiment=experiment, version="0.1.0", environ=environ, on_note=notes.append, timeout=timeout
    )
