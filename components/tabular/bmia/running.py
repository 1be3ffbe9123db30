"""From validated inputs to audited targets: trained on the embedded sample, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from kfp_methods.components.tabular.bmia.arrays import Flags
from kfp_methods.components.tabular.bmia.audit import Audit, audit
from kfp_methods.components.tabular.bmia.parallel import Trained, train_all
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import reference_jobs
from kfp_methods.components.tabular.bmia.repeat import SeedAudit, audit_seeds
from kfp_methods.components.tabular.bmia.sample import (
    EMBEDDED_RECORDS,
    Split,
    fashion_mnist,
    fashion_mnist_whole,
    split,
)
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.components.tabular.bmia.training import Recipe, derived_seed

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.component import BmiaInputs
    from kfp_methods.components.tabular.bmia.user_data import UserData
    from kfp_methods.context import Context

_SWEEP = (2, 5, 20, 50, 100, 200)


@dataclass(frozen=True)
class Audited:
    """One audited target with all that its report and model need.

    Attributes:
        seed: of everything random in it.
        records: the audited ones, inputs scaled for the references.
        member: true membership [n]; None when it is unknown or all records share one value.
        logits: the target's, on `records` [n, C].
        references: K trained references.
        found: what the audit found.
        train_accuracy: of a target trained here on its members.
        test_accuracy: of such a target on the non-members.
        center: what was subtracted from the user's inputs.
        scale: what they were divided by.
        features: names of the user's feature columns; () for arrays and for the sample.
    """

    seed: int
    records: Records
    member: Flags | None
    logits: Tensor
    references: Sequence[Trained]
    found: Audit
    train_accuracy: float | None = None
    test_accuracy: float | None = None
    center: Tensor | None = None
    scale: Tensor | None = None
    features: tuple[str, ...] = ()

    @classmethod
    def of_sample(cls, one: SeedAudit) -> Audited:
        """What the reports need of an audit of the embedded sample."""
        return cls(
            one.seed,
            one.split.audit,
            one.split.member,
            one.audit_logits,
            one.references,
            one.audit,
            one.train_accuracy,
            one.test_accuracy,
        )


def sample(inputs: BmiaInputs, context: Context) -> list[Audited]:
    """Trains and audits one target a seed on the embedded sample; each is kept as it is finished."""
    from kfp_methods.components.tabular.bmia import tables

    whole = fashion_mnist() if inputs.sample_size <= EMBEDDED_RECORDS else fashion_mnist_whole()

    def data(seed: int) -> Split:
        rows = np.random.default_rng(derived_seed(seed, 3)).permutation(len(whole))[: inputs.sample_size]
        return split(whole.take(rows), seed)

    seeds = range(inputs.seed, inputs.seed + inputs.n_seeds)
    recipe, asked, K = recipe_of(inputs, context.device), settings_of(inputs, context.device), inputs.n_references
    audited: list[Audited] = []
    for one in audit_seeds(data, seeds, recipe, asked, n_references=K, resumable=context.resumable):
        audited.append(Audited.of_sample(one))
        context.keep(tables.attacks(audited[-1:], name=f"attacks-seed-{one.seed}"))
        _follow(one.audit, len(audited), context)
    return audited


def user(inputs: BmiaInputs, data: UserData, context: Context) -> Audited:
    """Trains references on the user's pool and audits the user's target."""
    recipe = recipe_of(inputs, context.device)
    jobs = reference_jobs(data.reference, inputs.n_references, data.n_classes, recipe, derived_seed(inputs.seed, 1))
    known = data.member is not None and data.member.any() and not data.member.all()
    member = data.member if known else None  # attacks are measured with members and non-members
    references = train_all(jobs, device=context.device, label="training references", resumable=context.resumable)
    found = audit(
        data.target_logits,
        data.audit,
        references,
        settings_of(inputs, context.device),
        member=member,
        validation=data.validation,
        validation_logits=data.validation_logits,
    )
    return Audited(
        inputs.seed,
        data.audit,
        member,
        data.target_logits,
        references,
        found,
        center=data.center,
        scale=data.scale,
        features=data.features,
    )


def recipe_of(inputs: BmiaInputs, device: str) -> Recipe:
    """How references (and the sample's targets) are trained."""
    return Recipe(
        architecture=inputs.arch,
        hidden=tuple(inputs.hidden),
        epochs=inputs.epochs,
        learning_rate=inputs.lr,
        weight_decay=inputs.weight_decay,
        batch_size=inputs.batch_size,
        mixed_precision=device == "cuda",
    )


def settings_of(inputs: BmiaInputs, device: str) -> Settings:
    """What is asked of an audit: what the user wants, and 1% FPR and what the claims need in any case."""
    M = inputs.n_samples
    return Settings(
        n_samples=M,
        hessian=inputs.hessian,
        prior_precision=None if inputs.prior_precision == "marglik" else float(inputs.prior_precision),
        score=inputs.score,
        decision_rule=inputs.decision_rule,
        alpha=inputs.alpha,
        fprs=tuple(sorted({*inputs.fprs, 0.01})),
        attacks=tuple(dict.fromkeys(inputs.attacks)),
        sweep=tuple(sorted({size for size in _SWEEP if size <= 2 * M} | {2, max(2, M)})),
        ablation=("kron", "diag"),
        seed=inputs.seed,
        device=device,
    )


def _follow(found: Audit, step: int, context: Context) -> None:
    """Each attack's AUC as a point of its curve over the audited targets."""
    for result in found.attacks:
        if result.auc is not None:
            context.metric(f"auc_{result.name}_{result.n_references}", result.auc, step=step)
