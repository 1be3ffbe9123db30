"""A loop that was cut off goes on where it last saved, and ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kfp_methods.checkpoints import Checkpoints, checkpoints_for
from kfp_methods.context import Context
from kfp_methods.errors import InputError

STEPS = 12


class CutOffError(Exception):
    """Stands for the end of the process."""


def train(context: Context, cut_after: int | None = None) -> dict[str, Any]:
    """A loop with every kind of state; returns all that it computed."""
    net = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for weight in net.parameters():
            weight.fill_(0.5)
    adam = torch.optim.Adam(net.parameters(), 0.1)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    noise, order = torch.Generator().manual_seed(3), np.random.default_rng(4)
    losses: list[float] = []
    running: dict[str, Any] = {"mean": torch.zeros(2), "words": ["ü"], "big": 2**70}
    states = {"net": net, "adam": adam, "rate": rate, "noise": noise, "order": order}
    for step in context.resumable(range(STEPS), "training", **states, losses=losses, running=running):
        if step == cut_after:
            raise CutOffError
        inputs = torch.randn(5, 3, generator=noise) * float(order.normal())
        loss = net(inputs).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        rate.step()
        losses.append(loss.item())
        running["mean"] = running["mean"] + net.weight.detach().mean(1)
    weights = [weight.detach().clone() for weight in net.parameters()]
    return {"losses": losses, "weights": weights, "running": running, "order": order.bit_generator.state}


def context(folder: Path, root: Path | None, seconds: float = 0.0, identity: str = "a") -> Context:
    made = Context(folder, "cpu")
    if root is not None:
        made.find_checkpoints = lambda: Checkpoints(root, "toy", {"inputs": identity}, seconds)
    return made


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["losses"] == other["losses"]
    assert one["order"] == other["order"]
    assert all(torch.equal(a, b) for a, b in zip(one["weights"], other["weights"], strict=True))
    assert torch.equal(one["running"]["mean"], other["running"]["mean"])
    assert one["running"]["words"] == other["running"]["words"]


@pytest.mark.parametrize("cut_after", [0, 1, 7, STEPS - 1])
def test_a_cut_run_ends_with_the_same_bits(tmp_path: Path, cut_after: int) -> None:
    whole = train(context(tmp_path, None))
    with pytest.raises(CutOffError):
        train(context(tmp_path, tmp_path / "kept"), cut_after)
    again = context(tmp_path, tmp_path / "kept")
    seen = list(again.checkpoints.folder.iterdir()) if again.checkpoints else []
    assert bool(seen) == (cut_after > 0)
    assert_same(train(again), whole)


def test_a_finished_loop_is_not_repeated(tmp_path: Path) -> None:
    whole = train(context(tmp_path, tmp_path / "kept"))
    assert_same(train(context(tmp_path, tmp_path / "kept"), cut_after=0), whole)  # not one step is made


def test_other_inputs_find_nothing(tmp_path: Path) -> None:
    train(context(tmp_path, tmp_path / "kept"))
    with pytest.raises(CutOffError):
        train(context(tmp_path, tmp_path / "kept", identity="b"), cut_after=0)


def test_a_broken_checkpoint_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CutOffError):
        train(context(tmp_path, tmp_path / "kept"), 6)
    (file,) = (tmp_path / "kept").rglob("*.pt")
    file.write_bytes(file.read_bytes()[:200])
    assert_same(train(context(tmp_path, tmp_path / "kept")), train(context(tmp_path, None)))
    assert "starting anew" in caplog.text


def test_a_program_in_place_of_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    import pickle

    ran = tmp_path / "ran"

    class Program:
        def __reduce__(self) -> Any:
            return (Path.touch, (ran,))

    with pytest.raises(CutOffError):
        train(context(tmp_path, tmp_path / "kept"), 6)
    (file,) = (tmp_path / "kept").rglob("*.pt")
    file.write_bytes(pickle.dumps(Program()))
    train(context(tmp_path, tmp_path / "kept"))
    assert not ran.exists()


def test_a_checkpoint_of_another_device_is_not_gone_on_from(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, "toy", {})
    stage = folder.stage("a", {"x": [1, 2]})
    stage.step()
    stage.save()
    assert folder.stage("a", {"x": []}).done == 1
    assert folder.stage("a", {"x": []}, lambda: "meta").done == 0


def test_saving_takes_a_small_share_of_the_time(tmp_path: Path) -> None:
    cautious = context(tmp_path, tmp_path / "kept", seconds=3600)
    train(cautious)
    assert not list((tmp_path / "kept").rglob("*.pt"))


def test_removed_when_the_run_is_done(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "kept", "toy", {})
    kept.stage("a", {"x": []}).save()
    kept.remove()
    assert not kept.folder.exists()


def test_a_label_is_used_once(tmp_path: Path) -> None:
    one = context(tmp_path, None)
    list(one.resumable(range(2), "a"))
    with pytest.raises(ValueError, match="already"):
        list(one.resumable(range(2), "a"))


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"checkpoints=.*cannot be written"):
        Checkpoints(tmp_path / "file", "toy", {})


def test_the_same_code_inputs_and_data_find_the_same_folder(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1")

    kept = str(tmp_path / "kept")

    def folder(digest: str = "d", **environ: str) -> Path:
        return checkpoints_for("toy", kept, {"seed": 0}, {"data": digest}, [source], environ).folder

    first = folder()
    assert first == folder()
    assert first != folder(digest="e")
    source.write_text("x = 2")
    assert first != folder()
    with pytest.raises(InputError, match="KFP_METHODS_CHECKPOINT_SECONDS"):
        folder(KFP_METHODS_CHECKPOINT_SECONDS="soon")
