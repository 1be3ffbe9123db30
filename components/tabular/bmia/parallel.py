"""Several trainings side by side, each on one CPU core."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kfp_methods.checkpoints import Resumable, uninterrupted
from kfp_methods.components.tabular.bmia.architectures import build
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.training import Recipe, train
from kfp_methods.networks import one_core


@dataclass(frozen=True)
class Job:
    """A classifier to train: data, number of classes, recipe and seed of `training.train`."""

    records: Records
    n_classes: int
    recipe: Recipe
    seed: int


@dataclass(frozen=True)
class Trained:
    """A trained classifier, what it was trained on, and the seconds that took."""

    model: nn.Sequential
    training: Records
    seconds: float


def train_all(
    jobs: Sequence[Job],
    *,
    device: str = "cpu",
    label: str = "training classifiers",
    resumable: Resumable = uninterrupted,
) -> list[Trained]:
    """Trains the jobs' classifiers, on the CPU as many at a time as torch has threads, on a GPU one by one.

    Args:
        jobs: what to train; each result depends on its own job alone.
        device: where to train.
        label: of the loop over the jobs.
        resumable: that loop; its steps end from this thread, in the jobs' order.

    Raises:
        InputError: as `training.train`.
    """
    workers = max(1, min(len(jobs), torch.get_num_threads())) if device == "cpu" else 1
    stop = threading.Event()

    def unless_stopped(epoch: int) -> None:
        if stop.is_set():
            raise InterruptedError(f"stopped after epoch {epoch}")

    def run(job: Job) -> Trained:
        started = time.perf_counter()
        model = train(job.records, job.n_classes, job.recipe, seed=job.seed, device=device, on_epoch=unless_stopped)
        return Trained(model, job.records, time.perf_counter() - started)

    done: dict[int, Trained] = {}
    kept: dict[str, Any] = {}
    running: dict[int, Future[Trained]] = {}
    with one_core(), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for number in resumable(range(len(jobs)), label, kept=kept):
                running = running or {later: pool.submit(run, jobs[later]) for later in range(number, len(jobs))}
                done[number] = trained = running[number].result()
                kept[str(number)] = {"seconds": trained.seconds, "weights": trained.model.state_dict()}
        finally:
            stop.set()  # an interruption need not wait for trainings that nobody will use
    return [done.get(number) or _restored(job, kept[str(number)], device) for number, job in enumerate(jobs)]


def _restored(job: Job, kept: dict[str, Any], device: str) -> Trained:
    """What an earlier attempt of the run trained."""
    shape, recipe = job.records.x.shape[1:], job.recipe
    model = build(recipe.architecture, shape, job.n_classes, seed=job.seed, hidden=recipe.hidden).to(device)
    model.load_state_dict(kept["weights"])
    return Trained(model.eval(), job.records, kept["seconds"])
