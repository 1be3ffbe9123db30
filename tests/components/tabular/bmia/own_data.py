"""A user's audit of their own classifier (digits, trained here), and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

from kfp_methods.components.tabular.bmia.sample import digits, split
from kfp_methods.components.tabular.bmia.training import Recipe, outputs, train


def make(folder: Path) -> dict[str, Any]:
    """Logits as NPZ, records as CSV: what a team with a model of another framework has."""
    data = split(digits(), seed=0)
    model = train(data.members, data.n_classes, Recipe(epochs=10, hidden=(64,)), seed=0)
    audit = _frame(data.audit.x, data.audit.y)
    audit.insert(0, "member", data.member.astype(int))
    audit.to_csv(folder / "prüfung.csv", index=False)
    _frame(data.reference.x, data.reference.y).to_parquet(folder / "reference.parquet", index=False)
    np.savez(folder / "validation.npz", x=data.validation.x.flatten(1).numpy(), y=data.validation.y.numpy())
    np.savez(folder / "logits.npz", logits=outputs(model, data.audit.x)[1].numpy())
    np.savez(folder / "validation_logits.npz", logits=outputs(model, data.validation.x)[1].numpy())
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "target.safetensors")
    return {
        "audit_uri": str(folder / "prüfung.csv"),
        "reference_uri": str(folder / "reference.parquet"),
        "target_logits_uri": str(folder / "logits.npz"),
        "validation_uri": str(folder / "validation.npz"),
        "validation_logits_uri": str(folder / "validation_logits.npz"),
    }


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good = make(folder)
    audit = pd.read_csv(good["audit_uri"])
    by_model = {key: good[key] for key in ("audit_uri", "reference_uri")} | {"target_arch": "mlp", "hidden": [64]}

    def table(name: str, frame: pd.DataFrame) -> str:
        frame.to_csv(folder / name, index=False)
        return str(folder / name)

    def logits(name: str, values: np.ndarray) -> str:
        np.savez(folder / name, logits=values)
        return str(folder / name)

    shared = pd.concat([pd.read_parquet(good["reference_uri"]), audit.drop(columns="member").head(7)])
    high = audit.assign(label=audit["label"] + 5)
    zeros = np.zeros((len(audit), 10))
    others = np.random.default_rng(0).normal(size=(len(audit), 12))
    alone = {"validation_uri": "", "validation_logits_uri": ""}
    few = pd.read_parquet(good["reference_uri"]).query("label != 3")
    (folder / "pickled.npz").write_bytes(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.")
    torch.save({"0.weight": torch.zeros(2, 2)}, folder / "target.pt")
    return [
        ({"audit_uri": good["audit_uri"]}, ["reference_uri", "target_uri"]),
        (
            good | {"target_uri": str(folder / "target.safetensors")},
            ["target_logits_uri were both given"],
        ),
        (good | {"validation_uri": ""}, ["validation_uri", "go together"]),
        (good | {"reference_uri": table("shared.csv", shared)}, ["reference_uri", "7 of its", "audit set"]),
        (good | {"reference_uri": table("few.csv", few)}, ["reference_uri", "class 3 has 0 records"]),
        (
            good | {"audit_uri": table("labels.csv", high)},
            ["audit_uri", "labels outside 0..9"],
        ),
        (good | {"audit_uri": table("nolabel.csv", audit.drop(columns="label"))}, ["audit_uri", "'label'"]),
        (good | {"audit_uri": table("nan.csv", audit.assign(pixel_5=np.nan))}, ["audit_uri", "pixel_5"]),
        (
            good | {"target_logits_uri": logits("short.npz", zeros[:5])},
            ["target_logits_uri", f"for {len(audit)} records"],
        ),
        (
            good | {"target_logits_uri": logits("one.npz", zeros[:, :1])},
            ["target_logits_uri", "at least 2"],
        ),
        (
            good | {"target_logits_uri": logits("nan.npz", zeros * np.nan)},
            ["target_logits_uri", "logits"],
        ),
        (good | {"target_logits_uri": str(folder / "pickled.npz")}, ["target_logits_uri", "pickle"]),
        (
            good | {"target_logits_uri": logits("zeros.npz", zeros)},
            ["target_logits_uri", "every record has the same output"],
        ),
        (
            good | {"target_logits_uri": logits("decided.npz", np.eye(10)[audit["label"]])},
            ["target_logits_uri", "the rows hold decisions"],
        ),
        (
            good | alone | {"target_logits_uri": logits("twelve.npz", others)},
            ["target_logits_uri", "its output has 12 classes, but the labels run to 9 (audit) and 9 (reference)"],
        ),
        (
            good | alone | {"target_logits_uri": logits("nine.npz", others[:, :9])},
            ["target_logits_uri", "its output has 9 classes"],
        ),
        (good | {"arch": "cnn"}, ["arch", "needs images"]),
        (good | {"hessian": "full", "hidden": [512]}, ["hessian", "5,130 weights"]),
        (by_model | {"target_uri": str(folder / "target.pt")}, ["target_uri", "program that runs"]),
        (by_model | {"target_uri": str(folder / "target.safetensors"), "target_arch": "cnn"}, ["target_arch", "cnn"]),
        (good | {"n_samples": 1, "n_references": 1}, ["n_samples", "no spread"]),
        ({"fprs": [2.0], "prior_precision": -1, "alpha": 0}, ["alpha"]),
        ({"fprs": [2.0], "prior_precision": -1}, ["fprs", "prior_precision"]),
    ]


def _frame(x: torch.Tensor, y: torch.Tensor) -> pd.DataFrame:
    flat = x.flatten(1).numpy()
    frame = pd.DataFrame(flat, columns=[f"pixel_{index}" for index in range(flat.shape[1])])
    return frame.assign(label=y.numpy())
