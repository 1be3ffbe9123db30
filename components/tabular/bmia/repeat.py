"""Audits repeated over seeds, so that claims rest on paired differences and not on one number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from kfp_methods.components.tabular.bmia.audit import Audit, Settings, audit
from kfp_methods.components.tabular.bmia.references import train_references
from kfp_methods.components.tabular.bmia.sample import Split
from kfp_methods.components.tabular.bmia.training import Recipe, accuracy, derived_seed, outputs, train


@dataclass(frozen=True)
class SeedAudit:
    """One of several audits: a target trained in the run, its data and its audit.

    Attributes:
        seed: of split, training and attacks.
        split: the data.
        target: the audited model.
        train_accuracy: of the target on its members.
        test_accuracy: of the target on the non-members.
        target_seconds: training it.
        audit: what was found.
    """

    seed: int
    split: Split
    target: nn.Sequential
    train_accuracy: float
    test_accuracy: float
    target_seconds: float
    audit: Audit


def audit_seeds(
    split: Callable[[int], Split],
    seeds: Iterable[int],
    recipe: Recipe,
    settings: Settings,
    *,
    n_references: int,
    reference_recipe: Recipe | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> Iterator[SeedAudit]:
    """Yields, for each seed, the audit of a freshly split and trained target.

    Args:
        split: the data of a seed.
        seeds: one audit each; they replace `settings.seed`.
        recipe: of the target.
        settings: what is asked.
        n_references: references K of each target.
        reference_recipe: of the references; None for the target's.
        on_epoch: called after every epoch of every training.
    """
    for seed in seeds:
        data, device = split(seed), settings.device
        started = time.perf_counter()
        target = train(
            data.members, data.n_classes, recipe, seed=derived_seed(seed, 0), device=device, on_epoch=on_epoch
        )
        seconds = time.perf_counter() - started
        references = train_references(
            data.reference, n_references, data.n_classes, reference_recipe or recipe,
            seed=derived_seed(seed, 1), device=device, on_epoch=on_epoch,
        )  # fmt: skip
        on_members, on_others = (outputs(target, part.x)[1].cpu() for part in (data.members, data.nonmembers))
        found = audit(
            torch.cat([on_members, on_others]),
            data.audit,
            list(references),
            replace(settings, seed=seed),
            member=data.member,
            validation=data.validation,
            validation_logits=outputs(target, data.validation.x)[1],
        )
        in_training, in_test = accuracy(on_members, data.members.y), accuracy(on_others, data.nonmembers.y)
        yield SeedAudit(seed, data, target, in_training, in_test, seconds, found)
