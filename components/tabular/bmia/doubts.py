"""What the reader of an audit should doubt, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kfp_methods.components.tabular.bmia.attacks import Evidence
from kfp_methods.components.tabular.bmia.settings import Settings


def doubts(evidence: Evidence, settings: Settings, ratio: float | None) -> Iterator[str]:
    """One sentence for each doubt; `ratio` is how the target's scores are scaled against the references'."""
    if settings.decision_rule == "calibrated":
        yield from _calibration(evidence, settings.alpha)
    if len(evidence.references) == 2:
        yield "with 2 references the p-values are too small where the references differ; use 1, or 4 and more"
    if ratio is not None and not 0.5 <= ratio <= 2:
        yield (
            f"the target's scores are {ratio:.2g} times the references': its logits are probably on another "
            "temperature, or its training differs"
        )


def _calibration(evidence: Evidence, alpha: float) -> Iterator[str]:
    if evidence.validation is None:
        yield (
            "no validation records with the target's logits: nothing to calibrate a decision on, so none is made; give "
            "validation and validation_logits, or decision_rule=t, which flags more non-members than alpha"
        )
        return
    n, needed = len(evidence.validation.records), math.ceil(1 / alpha - 1 - 1e-9)
    if n < needed:
        yield f"{n} validation records cannot vouch for alpha={alpha:g}: nobody is flagged; {needed} can"
