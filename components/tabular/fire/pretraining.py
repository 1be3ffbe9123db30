"""Trains the network on its prior: `python -m kfp_methods.components.tabular.fire.pretraining --output FOLDER`.

Half an hour on one core makes the weights that are shipped. What was interrupted goes on at the next start.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kfp_methods.components.tabular.fire.bars import Bars
from kfp_methods.components.tabular.fire.functions import Source
from kfp_methods.components.tabular.fire.network import BINS, PriorFittedNetwork, standardise
from kfp_methods.components.tabular.fire.prior import Tasks, tasks

BATCH, RATE, DECAY, CLIP, WARM_UP = 32, 1e-3, 1e-2, 1.0, 0.05
LARGEST_TARGET = 10.0
_BORDER_BATCHES = 100
_LOGGED, _SAVED = 100, 250
_TRAINING, _BORDERS = 1, 2  # streams of random numbers


def source(seed: int, stream: int, number: int, device: str) -> Source:
    """The random numbers of one batch; they depend on nothing that came before."""
    return Source(int(np.random.SeedSequence((seed, stream, number)).generate_state(1, np.uint64)[0] >> 1), device)


def standardised(batch: Tasks) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Context x, its y, queries x, their y, as the network is shown them (targets clamped to 10)."""
    n = batch.n
    context, queries = standardise(batch.x[:, :n], batch.x[:, n:])
    mean, sd = batch.y[:, :n].mean(1, keepdim=True), batch.y[:, :n].std(1, correction=0, keepdim=True).clamp_min(1e-9)
    y = (batch.y - mean) / sd
    return context, y[:, :n], queries, y[:, n:].clamp(-LARGEST_TARGET, LARGEST_TARGET)


def borders_of_prior(seed: int, device: str) -> Tensor:
    """The 1% to 99% quantiles of standardised query targets, float64 [BINS - 1]."""
    targets = [
        standardised(tasks(source(seed, _BORDERS, i, device), BATCH))[3].flatten() for i in range(_BORDER_BATCHES)
    ]
    levels = torch.arange(1, BINS, dtype=torch.float64, device=device) / BINS
    return torch.quantile(torch.cat(targets).double(), levels)


def loss(net: nn.Module, bars: Bars, batch: Tasks) -> Tensor:
    """Mean negative log density of the queries' standardised targets."""
    context, y, queries, wanted = standardised(batch)
    return -bars.log_density(net(context, y, queries), wanted).mean()


def rate(step: int, steps: int) -> float:
    """Share of the learning rate: a linear warm-up, then a cosine to 0."""
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class Training:
    """A network, its optimiser and its log, at a step."""

    def __init__(self, steps: int, seed: int, device: str) -> None:
        torch.manual_seed(seed)
        self.steps, self.seed, self.device = steps, seed, device
        self.step, self.seconds = 0, 0.0
        self.log: list[dict[str, float]] = []
        self.net = PriorFittedNetwork().to(device)
        self.adam = torch.optim.AdamW(self.net.parameters(), lr=RATE, weight_decay=DECAY)
        self.bars = Bars(borders_of_prior(seed, device))

    def run(self) -> Iterator[float]:
        """The loss of each step."""
        while self.step < self.steps:
            for group in self.adam.param_groups:
                group["lr"] = RATE * rate(self.step, self.steps)
            value = loss(self.net, self.bars, tasks(source(self.seed, _TRAINING, self.step, self.device), BATCH))
            self.adam.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
            self.adam.step()
            self.step += 1
            yield float(value.detach())

    def state(self) -> dict[str, Any]:
        """What goes on from here."""
        parts = {"net": self.net.state_dict(), "adam": self.adam.state_dict(), "borders": self.bars.borders}
        return parts | {"step": self.step, "steps": self.steps, "seconds": self.seconds, "log": self.log}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        if state["steps"] != self.steps:
            raise ValueError(f"the checkpoint is of {state['steps']} steps, not {self.steps}: give another folder")
        self.net.load_state_dict(state["net"])
        self.adam.load_state_dict(state["adam"])
        self.bars = Bars(state["borders"])
        self.step, self.seconds, self.log = state["step"], state["seconds"], state["log"]


def train(folder: Path, steps: int, seed: int, device: str) -> Training:
    """Trains, or goes on; leaves weights.safetensors and training.json in `folder`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, training = folder / "checkpoint.pt", Training(steps, seed, device)
    if checkpoint.exists():
        training.restore(torch.load(checkpoint, weights_only=True, map_location=device))
    losses, started = [], time.perf_counter() - training.seconds
    for value in training.run():
        losses.append(value)
        if training.step % _LOGGED == 0 or training.step == steps:
            training.seconds = time.perf_counter() - started
            training.log.append({"step": training.step, "loss": round(float(np.mean(losses)), 4)})
            print(f"step {training.step}/{steps}: loss {training.log[-1]['loss']:.4f}, {training.seconds:.0f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
            losses = []
        if training.step % _SAVED == 0:
            torch.save(training.state(), checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in training.net.state_dict().items()}
    save_file(tensors | {"borders": training.bars.borders.cpu()}, folder / "weights.safetensors")
    about = {"steps": steps, "seed": seed, "batch": BATCH, "seconds": round(training.seconds), "losses": training.log}
    (folder / "training.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return training


def main() -> None:
    """Trains into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint, the weights and the log")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    train(options.output, options.steps, options.seed, options.device)


if __name__ == "__main__":
    main()
