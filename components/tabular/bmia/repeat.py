"""Audits repeated over seeds, so that claims rest on paired differences and not on one number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kfp_methods.checkpoints import Resumable, uninterrupted
from kfp_methods.components.tabular.bmia.audit import Audit, audit
from kfp_methods.components.tabular.bmia.parallel import Job, Trained, train_all
from kfp_methods.components.tabular.bmia.references import reference_jobs
from kfp_methods.components.tabular.bmia.sample import Split
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.components.tabular.bmia.training import Recipe, accuracy, derived_seed, outputs


@dataclass(frozen=True)
class SeedAudit:
    """One of several audits: a target trained in the run, its data and its audit.

    Attributes:
        seed: of split, training and attacks.
        split: the data.
        target: the audited model.
        references: the trained references.
        audit_logits: the target's logits on the audit records [n, C].
        train_accuracy: of the target on its members.
        test_accuracy: of the target on the non-members.
        audit: what was found.
    """

    seed: int
    split: Split
    target: Trained
    references: tuple[Trained, ...]
    audit_logits: Tensor
    train_accuracy: float
    test_accuracy: float
    audit: Audit


def audit_seeds(
    split: Callable[[int], Split],
    seeds: Iterable[int],
    recipe: Recipe,
    settings: Settings,
    *,
    n_references: int,
    reference_recipe: Recipe | None = None,
    resumable: Resumable = uninterrupted,
) -> Iterator[SeedAudit]:
    """Yields, for each seed, the audit of a freshly split and trained target.

    Args:
        split: the data of a seed.
        seeds: one audit each; they replace `settings.seed`.
        recipe: of the target.
        settings: what is asked.
        n_references: references K of each target.
        reference_recipe: of the references; None for the target's.
        resumable: the loop over the 1 + K trainings of a seed.
    """
    for seed in seeds:
        data = split(seed)
        target_job = Job(data.members, data.n_classes, recipe, derived_seed(seed, 0))
        others = reference_jobs(
            data.reference, n_references, data.n_classes, reference_recipe or recipe, derived_seed(seed, 1)
        )
        label = f"training the target and its references, seed {seed}"
        jobs = [target_job, *others]
        target, *references = train_all(jobs, device=settings.device, label=label, resumable=resumable)
        yield _audited(seed, data, target, references, settings)


def _audited(seed: int, data: Split, target: Trained, references: list[Trained], settings: Settings) -> SeedAudit:
    on_members, on_others, on_validation = (
        outputs(target.model, part.x)[1].cpu() for part in (data.members, data.nonmembers, data.validation)
    )
    on_audit = torch.cat([on_members, on_others])
    found = audit(
        on_audit,
        data.audit,
        references,
        replace(settings, seed=seed),
        member=data.member,
        validation=data.validation,
        validation_logits=on_validation,
    )
    in_training, in_test = accuracy(on_members, data.members.y), accuracy(on_others, data.nonmembers.y)
    return SeedAudit(seed, data, target, tuple(references), on_audit, in_training, in_test, found)
