"""Several trainings side by side, each on one CPU core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn

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
    jobs: Sequence[Job], *, device: str = "cpu", on_trained: Callable[[], None] | None = None
) -> list[Trained]:
    """Trains the jobs' classifiers, on the CPU as many at a time as torch has threads, on a GPU one by one.

    Args:
        jobs: what to train; each result depends on its own job alone.
        device: where to train.
        on_trained: called from this thread, in the jobs' order, as each is done.

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

    done = []
    with one_core(), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for trained in pool.map(run, jobs):
                done.append(trained)
                if on_trained:
                    on_trained()
        finally:
            stop.set()  # an interruption need not wait for trainings that nobody will use
    return done
