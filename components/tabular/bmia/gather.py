"""Target and references give their verdicts on the records: the evidence of every attack."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kfp_methods.components.tabular.bmia.architectures import last_layer
from kfp_methods.components.tabular.bmia.attacks import Evidence, Part
from kfp_methods.components.tabular.bmia.parallel import Trained
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import ScoredReference, score_logits, score_reference
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.components.tabular.bmia.training import derived_seed
from kfp_methods.errors import InputError, Problem


def check_classes(C: int, references: Sequence[Trained]) -> None:
    """Raises InputError unless the target and the references have the same classes."""
    for reference in references:
        of_reference = last_layer(reference.model).out_features
        if of_reference != C:
            problem = f"the target has {C} classes, the references have {of_reference}"
            remedy = "Give logits and reference data of the same classes"
            raise InputError(Problem("target_logits", None, problem, remedy))


def score(
    reference: Trained, number: int, parts: Sequence[tuple[Records, Tensor]], settings: Settings
) -> ScoredReference:
    """A reference's verdicts; the first also draws the samples that the sweep needs."""
    swept = settings.sweep if number == 0 else ()
    return score_reference(
        reference,
        [records for records, _ in parts],
        n_samples=settings.n_samples,
        further_samples=max((0, *(size - settings.n_samples for size in swept))),
        score_name=settings.score,
        hessian=settings.hessian,
        prior_precision=settings.prior_precision,
        seed=derived_seed(settings.seed, number),
    )


def evidence_of(
    parts: Sequence[tuple[Records, Tensor]], scored: Sequence[ScoredReference], C: int, settings: Settings
) -> Evidence:
    """What attacks may look at, from the audited records and perhaps the validation records, with target's logits."""
    audited, *validated = (
        Part(records, score_logits(logits, records.y, settings.score), [one.verdicts[number] for one in scored])
        for number, (records, logits) in enumerate(parts)
    )
    validation = validated[0] if validated else None
    return Evidence(audited, validation, scored, C, settings.n_samples, settings.seed, settings.device)
