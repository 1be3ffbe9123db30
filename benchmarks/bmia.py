"""What BMIA with one reference costs beside LiRA with eight: seconds of the same process, training included.

    python benchmarks/bmia.py --seeds 5

Trains one target and K references a seed on the embedded sample, and times on them (a) training one reference, its
posterior, M samples, their scores and the t-test, and (b) training all K references and LiRA's scores. Trainings run
one by one on one core, so that the seconds of both are comparable. The paper's figure is about 1/K.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch

from kfp_methods.components.tabular.bmia.repeat import SeedAudit, audit_seeds
from kfp_methods.components.tabular.bmia.sample import fashion_mnist, split
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.components.tabular.bmia.training import Recipe


def seconds(one: SeedAudit, n_references: int) -> tuple[float, float]:
    """Training and scoring seconds of BMIA with one reference, and of LiRA with all."""
    results = one.audit.attack("bmia", 1), one.audit.attack("lira_fixed", n_references)
    bmia, lira = (result.train_seconds + result.score_seconds for result in results)
    return bmia, lira


def spread(values: Sequence[float], digits: int) -> str:
    """Median, least and greatest."""
    return f"{statistics.median(values):.{digits}f}  ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    """Measures and prints one line for each quantity."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="repetitions, each with its own target and references")
    parser.add_argument("--references", type=int, default=8, help="LiRA's references K")
    parser.add_argument("--samples", type=int, default=50, help="BMIA's posterior samples M")
    parser.add_argument("--epochs", type=int, default=30, help="passes of a training")
    given = parser.parse_args()

    torch.set_num_threads(1)
    whole = fashion_mnist()
    settings = Settings(n_samples=given.samples, attacks=("bmia", "lira_fixed"))
    recipe = Recipe(epochs=given.epochs)
    # A first training loads what torch loads on first use.
    next(audit_seeds(lambda seed: split(whole, seed), [0], Recipe(epochs=1), settings, n_references=1))

    K, seeds = given.references, range(given.seeds)
    audits = audit_seeds(lambda seed: split(whole, seed), seeds, recipe, settings, n_references=K)
    pairs = [seconds(one, K) for one in audits]
    bmia, lira = zip(*pairs, strict=True)
    print(f"median (least to greatest) of {len(pairs)} repetitions")
    print(f"BMIA, 1 reference, M = {given.samples}, seconds: {spread(bmia, 2)}")
    print(f"LiRA, {K} references, seconds:        {spread(lira, 2)}")
    print(f"ratio:                             {spread([ours / theirs for ours, theirs in pairs], 3)}")
    print(f"of the trainings alone, in the paper: {1 / K:.3f}")


if __name__ == "__main__":
    main()
