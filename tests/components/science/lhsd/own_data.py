"""A user's tables, images and score models, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

from kfp_methods.components.science import score_files
from kfp_methods.components.science.score_models import Standardisation
from kfp_methods.components.science.score_networks import Architecture, Preconditioned, build


def make(folder: Path) -> dict[str, Any]:
    """A table to learn from, and other rows of it to score, of which the truth is known for the test's sake."""
    table(96).drop(columns=["lid_true", "is_memorised"]).to_parquet(folder / "messung.parquet", index=False)
    table(24, seed=1).to_csv(folder / "prüfen.csv", index=False)
    return {
        "data_uri": str(folder / "messung.parquet"),
        "points_uri": str(folder / "prüfen.csv"),
        "lanczos_steps": 4,
        "baselines": ["flipd", "nb", "mle"],
    }


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """n points of a 2-plane in 6 dimensions, in units of thousands; every third is called memorised."""
    plane = np.linalg.qr(np.random.default_rng(7).normal(size=(6, 2)))[0]
    x = 1_000 * (np.random.default_rng(seed).normal(size=(n, 2)) @ plane.T + 3)
    frame = pd.DataFrame(x, columns=[f"Größe {index}" for index in range(6)])
    return frame.assign(lid_true=2.0, is_memorised=np.arange(n) % 3 == 0)


def images(folder: Path, name: str = "images.npz") -> str:
    """200 digits as images of bytes."""
    x = load_digits().images[:200].astype(np.uint8)
    np.savez(folder / name, x=x)
    return str(folder / name)


def own_model(folder: Path, n_features: int = 64, **changed: Any) -> str:
    """An untrained network in the method's own format."""
    settings = score_files.NetworkSettings(shape=(n_features,), width=16, blocks=1, largest=4.0)
    net = Preconditioned(build(Architecture("mlp", (n_features,), 16, 1), 0))
    folder.mkdir()
    score_files.save(score_files.NetworkScore(net, settings, Standardisation(torch.zeros(n_features), 1.0)), folder)
    if changed:
        path = folder / score_files.SETTINGS
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return str(folder)


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good = make(folder)
    frame = table(96).drop(columns=["lid_true", "is_memorised"])

    def saved(name: str, changed: pd.DataFrame) -> str:
        changed.to_csv(folder / name, index=False)
        return str(folder / name)

    def only(name: str, changed: pd.DataFrame) -> dict[str, Any]:
        return {"data_uri": saved(name, changed)}

    model = own_model(folder / "model")
    pixels = images(folder)
    by_model = {"model_uri": model, "model_kind": "edm_mlp", "points_uri": pixels}
    torch.save({"x": torch.zeros(2)}, folder / "model.pt")
    with torch.no_grad():
        silent = {name: tensor * 0 for name, tensor in load_file(folder / "model" / score_files.TENSORS).items()}
    own_model(folder / "silent")
    save_file(silent, folder / "silent" / score_files.TENSORS)
    return [
        (only("few.csv", frame.head(40)), ["data_uri", "40 points are too few"]),
        (only("constant.csv", frame * 0 + 5), ["data_uri", "zero variance"]),
        (only("copies.csv", pd.concat([frame.head(10)] * 9)), ["data_uri", "copies of 10 different"]),
        (only("nan.csv", frame.assign(**{"Größe 2": np.nan})), ["data_uri", "Größe 2"]),
        (only("text.csv", frame.assign(name="x")), ["data_uri", "name"]),
        (only("thin.csv", frame[["Größe 0"]]), ["data_uri", "1 feature"]),
        (good | {"lanczos_steps": 7}, ["lanczos_steps", "6 features"]),
        (good | {"sigma": 5.0}, ["sigma", "0.03 to 3"]),
        (good | {"sigma": -1.0}, ["sigma", "not positive"]),
        (good | {"points_uri": pixels}, ["points_uri", "64 features", "6"]),
        (good | {"network": "unet"}, ["network", "unet"]),
        ({"points_uri": good["points_uri"]}, ["data_uri", "is missing"]),
        ({"model_uri": model, "model_kind": "edm_mlp"}, ["points_uri", "is missing"]),
        ({"model_kind": "edm_mlp"}, ["model_uri", "needs it"]),
        (by_model | {"model_kind": "train"}, ["model_kind", "a model is given"]),
        (by_model | {"points_uri": good["points_uri"]}, ["points_uri", "6 features", "64"]),
        (by_model | {"sigma": 9.0}, ["sigma", "0.03 to 3"]),
        (by_model | {"prediction": "v"}, ["prediction", "diffusers"]),
        (by_model | {"model_uri": str(folder / "model.pt")}, ["model_uri", "program"]),
        (by_model | {"model_uri": str(folder / "silent")}, ["model", "does not depend on the points"]),
        (by_model | {"model_uri": own_model(folder / "wide", width=8)}, ["model_uri", "shape"]),
        (by_model | {"model_kind": "diffusers"}, ["model_uri", "scheduler_config.json"]),
        ({"cost_dimensions": [128, 64]}, ["cost_dimensions", "rise"]),
        ({"lanczos_steps": 65}, ["lanczos_steps", "64 features"]),
        ({"cutoff_c": 1.5}, ["cutoff_c", "1"]),
    ]
