"""What one update of one policy costs, by method, each trained alone for a moment on the run's own transitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import torch

from kfp_methods.components.control.frictional_q.choices import MethodName
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.frictional_q.training import Learner
from kfp_methods.components.control.frictional_q.variants import Settings, Variant
from kfp_methods.components.control.replay import Batch

CYCLES = 4


def update_seconds(
    methods: Iterable[MethodName], settings: Settings, kinds: Sequence[Variant], batch: Batch, device: str
) -> dict[MethodName, float]:
    """Mean seconds of an update of one policy, its actor's share included; after one cycle that is not counted.

    batch: of one member.
    """
    found: dict[MethodName, float] = {}
    for method in methods:
        own = [kind for kind in kinds if kind.method == method]
        learner = ProposalLearner(settings, own, [0], device) if own else TD3(settings, [0], device)
        _cycle(learner, batch)
        started = time.perf_counter()
        for _ in range(CYCLES):
            _cycle(learner, batch)
        found[method] = (time.perf_counter() - started) / CYCLES / settings.policy_frequency
    return found


def _cycle(learner: Learner, batch: Batch) -> None:
    """Updates from one step of the actor to the next."""
    for step in range(1, learner.settings.policy_frequency + 1):
        learner.update(batch, step)
    if learner.device == "cuda":
        torch.cuda.synchronize()
