"""What Frictional Q-Learning's parts cost, each beside its alternative in the same process, on one core.

    python benchmarks/frictional_q.py

(a) the normals of a batch of actions: by Householder reflections, all at once, and by a singular value decomposition of
each, as the released code makes them; (b) an update of twelve policies: in one stack, and one by one; (c) an update at
full size: Frictional Q-Learning, and TD3.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.linalg import null_space

from kfp_methods.components.control.frictional_q.choices import MethodName
from kfp_methods.components.control.frictional_q.learner import ProposalLearner
from kfp_methods.components.control.frictional_q.normals import normal_rows
from kfp_methods.components.control.frictional_q.td3 import TD3
from kfp_methods.components.control.frictional_q.variants import Settings, variants
from kfp_methods.components.control.replay import Batch
from kfp_methods.networks import one_core

STACK: tuple[MethodName, ...] = ("fql_perturb", "fql_remap", "plain_vae", "bcq")


def seconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each repetition, after two that are not counted."""
    found = []
    for number in range(repeats + 2):
        started = time.perf_counter()
        work()
        if number > 1:
            found.append(time.perf_counter() - started)
    return found


def show(name: str, slow: list[float], fast: list[float], slow_name: str, fast_name: str) -> None:
    """One line: medians with least and greatest, and their ratio."""
    words = [
        f"{label} {statistics.median(values) * 1e3:.3g} ms ({min(values) * 1e3:.3g} to {max(values) * 1e3:.3g})"
        for label, values in ((slow_name, slow), (fast_name, fast))
    ]
    print(f"{name}: {'; '.join(words)}; ratio {statistics.median(slow) / statistics.median(fast):.1f}")


def batch(settings: Settings, members: int, rows: int) -> Batch:
    """Random transitions."""
    shape, S, D = (members, rows), settings.n_states, settings.n_actions
    states, following = torch.randn(*shape, S), torch.randn(*shape, S)
    return Batch(states, torch.rand(*shape, D) * 2 - 1, torch.randn(shape), following, torch.zeros(shape))


def learner(settings: Settings, methods: tuple[MethodName, ...], seeds: list[int], n_target: int) -> ProposalLearner:
    """One member of each method a seed."""
    kinds = variants(
        methods, settings, phi=0.1, beta=2.0, latent_clip=1.0, n_target=n_target, n_target_bcq=min(10, n_target)
    )
    return ProposalLearner(settings, kinds, seeds, "cpu")


def null_spaces(actions: np.ndarray) -> list[np.ndarray]:
    """An orthogonal basis of each action's complement, one after the other."""
    return [null_space(action[None]) for action in actions]


def normals(repeats: int) -> None:
    for D in (2, 6, 17):
        actions = torch.randn(256, D)
        singly = seconds(partial(null_spaces, actions.numpy()), repeats)
        at_once = seconds(partial(normal_rows, actions, 1.0), repeats)
        show(f"normals of 256 actions, D = {D}", singly, at_once, "one by one", "batched")


def stacking(repeats: int) -> None:
    settings = Settings(4, 2, latent=4, hidden=64, cvae_hidden=64)
    whole = learner(settings, STACK, [0, 1, 2], 5)
    alone = [learner(settings, (method,), [seed], 5) for method in STACK for seed in range(3)]
    many, one = batch(settings, 12, 100), batch(settings, 1, 100)

    def singly() -> None:
        for single in alone:
            single.update(one, 2)

    stacked = seconds(lambda: whole.update(many, 2), repeats)
    show("an update of 12 policies of the sample's size", seconds(singly, repeats), stacked, "one by one", "stacked")


def full_size(repeats: int) -> None:
    settings = Settings(17, 6, latent=12)
    ours, td3, given = learner(settings, ("fql_remap",), [0], 16), TD3(settings, [0], "cpu"), batch(settings, 1, 256)
    slow = seconds(lambda: ours.update(given, 2), repeats)
    show("an update at full size (S = 17, D = 6)", slow, seconds(lambda: td3.update(given, 2), repeats), "FQL", "TD3")


@one_core()
def main() -> None:
    """Measures and prints one line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="repetitions of each")
    repeats = parser.parse_args().repeats
    print(f"median (least to greatest) of {repeats} repetitions")
    normals(repeats)
    stacking(repeats)
    full_size(repeats)


if __name__ == "__main__":
    main()
