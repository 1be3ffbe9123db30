"""A user's files become the records, target logits and reference pool of an audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.tabular.bmia.arrays import Flags
from kfp_methods.components.tabular.bmia.columns import logit_columns
from kfp_methods.components.tabular.bmia.feasible import check_references
from kfp_methods.components.tabular.bmia.reading import RecordsFile, aligned, read_records
from kfp_methods.components.tabular.bmia.records import (
    Records,
    check_disjoint,
    check_labels,
    check_population,
    without,
)
from kfp_methods.components.tabular.bmia.target import target_logits
from kfp_methods.components.tabular.bmia.training import derived_seed
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.component import BmiaInputs
    from kfp_methods.context import Context

VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class UserData:
    """What an audit of a user's own target starts from; inputs are scaled for the references.

    Attributes:
        audit: records to audit.
        member: true membership [n]; None when unknown.
        target_logits: the target's logits on `audit` [n, C].
        reference: pool that references are trained on.
        validation: known non-members; None when there are none with logits.
        validation_logits: the target's logits on them [v, C].
        n_classes: number of classes C.
        center: what was subtracted from every record's inputs.
        scale: what they were divided by.
        features: names of the feature columns, in the order of the inputs; () for arrays.
    """

    audit: Records
    member: Flags | None
    target_logits: Tensor
    reference: Records
    validation: Records | None
    validation_logits: Tensor | None
    n_classes: int
    center: Tensor
    scale: Tensor
    features: tuple[str, ...]


def load(inputs: BmiaInputs, context: Context) -> UserData:
    """Reads and checks every file that was given.

    Raises:
        InputError: a file cannot be used, or the files do not fit together.
    """
    assert inputs.audit  # noqa: S101 (the contract requires both)
    assert inputs.reference  # noqa: S101
    audit = read_records(context.fetch(inputs.audit), inputs.audit.field)
    pool = aligned(read_records(context.fetch(inputs.reference), inputs.reference.field), audit)
    given = None
    if inputs.validation is not None:
        given = aligned(read_records(context.fetch(inputs.validation), inputs.validation.field), audit)
    validation, reference = _validation(pool.records, given, runnable=inputs.target is not None, seed=inputs.seed)
    asked = [audit.records] if validation is None else [audit.records, validation]
    logits = target_logits(inputs, context, asked)
    C = logits[0].shape[1]
    _check(inputs, audit, pool, given, C)
    _warn_of_membership(audit.member, context)
    center, scale = _scaling(reference) if inputs.standardise else (torch.zeros(()), torch.ones(()))

    def scaled(records: Records) -> Records:
        return Records((records.x - center) / scale, records.y)

    return UserData(
        audit=scaled(audit.records),
        member=audit.member,
        target_logits=logits[0],
        reference=scaled(reference),
        validation=None if validation is None else scaled(validation),
        validation_logits=None if validation is None else logits[1],
        n_classes=C,
        center=center,
        scale=scale,
        features=audit.features,
    )


def _validation(
    pool: Records, given: RecordsFile | None, *, runnable: bool, seed: int
) -> tuple[Records | None, Records]:
    """Known non-members, and what references may be trained on.

    The non-members are the user's or, for a target that can be run on them, a share of the pool; a record that
    occurs twice in the pool then does not stay on both sides.
    """
    if given is not None or not runnable:
        return None if given is None else given.records, pool
    rows = np.random.default_rng(derived_seed(seed, 2)).permutation(len(pool))
    cut = round(VALIDATION_SHARE * len(rows))
    validation = pool.take(rows[:cut])
    return validation, without(pool.take(rows[cut:]), validation)


def _check(inputs: BmiaInputs, audit: RecordsFile, pool: RecordsFile, given: RecordsFile | None, C: int) -> None:
    """Raises InputError unless the files fit together and references can be trained on them."""
    _check_classes(inputs, audit.records, pool.records, C)
    if taken := sorted({*audit.features} & {*logit_columns(C)}):
        problem = f"a feature column is named {taken[0]!r}, as the fitted attack names the target's outputs"
        raise InputError(Problem(audit.field, None, problem, "Rename it"))
    for file in (audit, pool, given):
        if file is not None:
            check_labels(file.field, file.records, C)
    check_population(pool.field, pool.records, C)
    check_disjoint(pool.field, pool.records, audit.records)
    if given is not None:
        check_disjoint(given.field, given.records, audit.records)
        check_disjoint(given.field, given.records, pool.records, "reference")
    check_references(inputs, audit.records.x.shape[1:], C)


def _warn_of_membership(member: Flags | None, context: Context) -> None:
    """Attacks are measured with members and non-members."""
    only = "scores and decisions only, no ROC"
    if member is None:
        context.warn(f"the audit records have no member column: {only}")
    elif member.all() or not member.any():
        other = "non-members" if member.all() else "members"
        context.warn(f"the member column holds one value only, there are no {other} to compare with: {only}")


def _check_classes(inputs: BmiaInputs, audit: Records, pool: Records, C: int) -> None:
    """Raises InputError where the labels of both files tell of other classes than the target's outputs."""
    of_audit, of_pool = (int(records.y.max()) + 1 for records in (audit, pool))
    if max(of_audit, of_pool) < C or min(of_audit, of_pool) > C:
        target = inputs.target or inputs.target_logits
        assert target is not None  # noqa: S101 (the contract requires one)
        labels = f"to {of_audit - 1} (audit) and {of_pool - 1} (reference)"
        problem = f"its output has {C} classes, but the labels run {labels}"
        remedy = "Number the target's classes from 0 as in its output, and give reference records of each"
        raise InputError(Problem(target.field, None, problem, remedy))


def _scaling(reference: Records) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each input over the pool; constant inputs are only centred."""
    x = reference.x.double()
    varies = x.amax(0) > x.amin(0)
    scale = torch.where(varies, x.std(0, correction=0), torch.ones_like(x[0]))
    return x.mean(0).float(), scale.float()
