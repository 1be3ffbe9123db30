"""What the sample says of the paper's claims."""

from __future__ import annotations

from kfp_methods.claims import ClaimResult, judge, not_measured
from kfp_methods.components.tabular.mcbe import claims
from kfp_methods.components.tabular.mcbe.measuring import Measured
from kfp_methods.components.tabular.mcbe.running import Found
from kfp_methods.report import format_number


def results(found: Found) -> list[ClaimResult]:
    """Every claim's verdict; one value for each seed."""
    if found.data.group is None:
        why = "It is about data whose formulas are known: it is measured on the embedded sample."
        return [not_measured(claim, why) for claim in claims.CLAIMS]
    return [_more(found), _symbolic(found), _formulas(found), _front(found), _interventions(found)]


def _of(measured: list[Measured], kind: str, *, most: bool = True) -> Measured | None:
    some = [one for one in measured if one.kind == kind]
    return (max if most else min)(some, key=lambda one: one.M, default=None)


def _more(found: Found) -> ClaimResult:
    values, notes = {}, []
    for seed, measured in found.measured.items():
        one, many = _of(measured, "linear", most=False), _of(measured, "linear")
        if one is None or many is None or many.M == one.M:
            return not_measured(claims.MORE_EXPERTS, "It needs linear mixtures of two sizes.")
        values[seed] = many.score - one.score
        notes.append(f"R2 {one.score:.3f} with {one.M}, {many.score:.3f} with {many.M}")
    return judge(claims.MORE_EXPERTS, values.values(), f"{'; '.join(notes)}.", values)


def _symbolic(found: Found) -> ClaimResult:
    values, notes = {}, []
    for seed, measured in found.measured.items():
        linear, symbolic = _of(measured, "linear"), _of(measured, "symbolic")
        if linear is None or symbolic is None:
            return not_measured(claims.SYMBOLIC, "It needs variant=both.")
        values[seed] = (symbolic.with_true or 0) - (linear.with_true or 0)
        notes.append(
            f"R2 {format_number(symbolic.with_true)} against {format_number(linear.with_true)} with true concepts, "
            f"{format_number(symbolic.score)} against {format_number(linear.score)} with predicted ones, "
            f"{format_number(symbolic.clipped)} clipped to the training range"
        )
    return judge(claims.SYMBOLIC, values.values(), f"{'; '.join(notes)}.", values)


def _formulas(found: Found) -> ClaimResult:
    if not found.matched:
        return not_measured(claims.FORMULAS, "It needs symbolic experts.")
    return judge(claims.FORMULAS, found.matched.values(), seeds=found.matched)


def _front(found: Found) -> ClaimResult:
    values = {}
    for seed, measured in found.measured.items():
        mixtures = [
            one for one in (_of(measured, "linear"), _of(measured, "symbolic")) if one is not None and one.M > 1
        ]
        if not mixtures:
            return not_measured(claims.FRONT, "It needs a mixture of several experts.")
        others = [one for one in measured if one.complexity is not None and one.M == 1]
        values[seed] = sum(not any(_dominates(other, one) for other in others) for one in mixtures) / len(mixtures)
    return judge(claims.FRONT, values.values(), seeds=values)


def _dominates(one: Measured, other: Measured) -> bool:
    assert one.complexity is not None and other.complexity is not None  # noqa: S101
    better = one.score >= other.score and one.complexity <= other.complexity
    return better and (one.score > other.score or one.complexity < other.complexity)


def _interventions(found: Found) -> ClaimResult:
    values, notes = {}, []
    for seed, measured in found.measured.items():
        best = min((one for one in measured if one.total is not None), key=lambda one: one.trained.validation)
        values[seed] = min(b - a for a, b in zip(best.curve, best.curve[1:], strict=False))
        notes.append(", ".join(format_number(value) for value in best.curve))
    return judge(claims.INTERVENTIONS, values.values(), f"R2 at 0 to 100%: {'; '.join(notes)}.", values)
