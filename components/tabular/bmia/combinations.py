"""Which inputs go together: what is missing or contradicts itself, and what has no effect or leaves a gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfp_methods.components.tabular.bmia.claims import OF_ATTACK
from kfp_methods.errors import Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.component import BmiaInputs


def problems(inputs: BmiaInputs) -> Iterator[Problem]:
    """What makes a run impossible, one problem for each field."""
    if not inputs.uses_sample:
        yield from _data_problems(inputs)
    if inputs.n_samples * inputs.n_references < 2:
        problem = "a single sample of one reference has no spread"
        yield Problem("n_samples", inputs.n_samples, problem, "Give at least 2, or more references")
    if isinstance(inputs.prior_precision, float) and inputs.prior_precision <= 0:
        yield Problem("prior_precision", inputs.prior_precision, "is not positive", "Give more than 0 or marglik")
    if wrong := [fpr for fpr in inputs.fprs if not 0 < fpr < 1]:
        yield Problem("fprs", wrong[0], "is not between 0 and 1", "Give rates such as 0.001,0.01")
    if wrong_widths := [width for width in inputs.hidden if not 1 <= width <= 100_000]:
        yield Problem("hidden", wrong_widths[0], "is not a width", "Give whole numbers from 1 to 100000")


def _data_problems(inputs: BmiaInputs) -> Iterator[Problem]:
    """A user's audit needs the records, a reference pool and the target in one of its forms."""
    for name in ("audit", "reference"):
        if getattr(inputs, name) is None:
            remedy = f"Give the {name} records too, or no file at all for the sample"
            yield Problem(f"{name}_uri", None, "is missing", remedy)
    if inputs.target and inputs.target_logits:
        problem = "target_uri and target_logits_uri were both given"
        yield Problem("target_uri", None, problem, "Give the model or its logits")
    if not inputs.target and not inputs.target_logits:
        yield Problem("target_uri", None, "either target_uri or target_logits_uri is needed", "Give one of the two")
    if inputs.target_logits and (inputs.validation is None) != (inputs.validation_logits is None):
        yield Problem("validation_uri", None, "validation and validation_logits go together", "Give both, or neither")
    if inputs.target and inputs.validation_logits:
        yield Problem("validation_logits_uri", None, "the target itself is given", "Leave it out")


def remarks(inputs: BmiaInputs) -> Iterator[str]:
    """What was asked for in vain, and what the choice of attacks leaves unmeasured."""
    for name, reason in _without_effect(inputs).items():
        kind = inputs.kinds()[name]
        if getattr(inputs, name) != (kind.presets[inputs.preset] if kind.presets else kind.default):
            yield f"{name} has no effect: {reason}"
    if "bmia" not in inputs.attacks:
        yield "attacks leaves out bmia: how well it tells members is not measured, and its metrics stay empty"
    for attack, claims in OF_ATTACK.items():
        if attack not in inputs.attacks:
            yield f"attacks leaves out {attack}: these claims are not tried: {', '.join(claims)}"


def _without_effect(inputs: BmiaInputs) -> dict[str, str]:
    """Fields that this run does not read, and why."""
    reasons: dict[str, str] = {}
    if inputs.uses_sample:
        reasons |= dict.fromkeys(("target_arch", "standardise"), "it is for your own data")
    else:
        reasons |= dict.fromkeys(("n_seeds", "sample_size"), "it is for the embedded sample")
    if inputs.target_logits:
        reasons["target_arch"] = "the target is given by its logits"
    if "mlp" not in (inputs.arch, inputs.target_arch if inputs.target else inputs.arch):
        reasons["hidden"] = "neither the references nor the target are of arch=mlp"
    return reasons
