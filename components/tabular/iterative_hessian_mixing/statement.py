"""The privacy statement: every mechanism, its share of the budget, its noise, and what the guarantee does not cover."""

from __future__ import annotations

from kfp_methods.components.tabular.iterative_hessian_mixing.calibration import Plan
from kfp_methods.report import format_number

RELEASED = "One private release"
SIMULATED = "A simulation, not a release"
NOT_PRIVATE = "scaling not private"


def statement(plan: Plan, *, rows: int, columns: int, released: bool, public: bool, strict: bool) -> str:
    """Markdown.

    Args:
        rows: that were fitted.
        columns: of a scaled row.
        released: whether the coefficients come from secure randomness and nothing else was written.
        public: whether the scaling is known without the data.
        strict: see `calibration.plan`.
    """
    sketch, number = plan.sketch, format_number
    lines = [f"# {RELEASED if released else SIMULATED}{'' if public else f': {NOT_PRIVATE}'}", ""]
    lines += [_promise(plan, released=released, public=public), ""]
    lines += [
        "| mechanism | times | epsilon | delta | noise |",
        "|---|---|---|---|---|",
        f"| Gaussian sketch of the rows, k = {sketch.rows} | {plan.iterations} | {number(plan.epsilon / 2)} together "
        f"with the eigenvalue | {number(plan.delta / 4)} | least eigenvalue gamma = {number(sketch.gamma)} |",
        f"| least eigenvalue of X'X | 1 | in the line above | {number(plan.delta / 4)}, and as much for being an "
        f"overestimate | standard deviation eta = {number(sketch.eta)} |",
        f"| gradient with residuals clipped to {number(plan.clip)} | {plan.iterations} | {number(plan.epsilon / 2)} | "
        f"{number(plan.delta / 4)} | standard deviation sigma = {number(plan.sigma)} |",
        f"| total | | {number(plan.epsilon)} | {number(plan.delta)} | |",
        "",
        f"- Fitted: {rows:,} rows of {columns} columns; their numbers count as public.",
        "- Neighbours: one row is there or is replaced by zeros. A person with several rows is less protected.",
        "- Several releases of the same rows add their epsilons and deltas up.",
        "- Numbers are in double precision; the guarantee is that of exact arithmetic.",
    ]
    if not strict:
        lines.append("- The eigenvalue is counted by the classical formula, proved only for small budgets.")
    return "\n".join(lines) + "\n"


def _promise(plan: Plan, *, released: bool, public: bool) -> str:
    budget = f"({format_number(plan.epsilon)}, {format_number(plan.delta)})"
    if released:
        return (
            f"The coefficients are {budget}-differentially private: made once, with the operating system's secure "
            "randomness, from bounds that are taken to be known without the data."
        )
    reason = "the noise follows from a seed that is known, and the errors beside it come from the data themselves"
    scaling = "" if public else "; the scaling was taken from the data too"
    return (
        f"Nothing of this run may be published: {reason}{scaling}. A release with this plan would be {budget}-private."
    )
