"""The run's numbers in rows: each method and seed, and the methods beside each other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfp_methods.components.control.frictional_q.choices import METHODS, TITLES, MethodName
from kfp_methods.components.control.frictional_q.model import FittedPolicy
from kfp_methods.components.control.frictional_q.running import Experiment, Outcome
from kfp_methods.report import Table

COLUMNS = {
    "return_mean": "mean return from the first states of the evaluation",
    "return_std": "its standard deviation over them",
    "value_bias": "mean Q1 minus the discounted return that followed",
    "q_mean": "mean Q1 of the policy's actions at logged states",
    "anisotropy": "slope of Q1 at right angles to logged actions / along them",
    "normal_deviation": "how far the policy leaves near logged actions sideways",
    "stick_fraction": "share of states where that is at most friction_mu",
    "rec_tangent": "squared error of rebuilt logged actions",
    "rec_normal": "squared error of rebuilt normal actions",
    "kl_z": "KL of the tangent latent",
    "kl_s": "KL of the shared latent",
    "disc_loss": "discriminator's loss",
    "preference": "share of proposals closer to the logged action than to its normals",
    "preference_both_signs": "the same with the negated normals too",
    "preference_at_equal_clip": "the first with latents clamped to ±0.5",
}


def method_results(found: Experiment) -> Table:
    """A row for each method and seed."""
    rows = [
        {"method": one.method, "seed": one.seed, **{name: one.numbers.get(name, np.nan) for name in COLUMNS}}
        for one in sorted(found.outcomes, key=lambda one: (METHODS.index(one.method), one.seed))
    ]
    caption = "; ".join(f"{name}: {words}" for name, words in COLUMNS.items())
    return Table("method_results", "Every method and seed", pd.DataFrame(rows), f"{caption}.")


def comparison(found: Experiment) -> Table:
    """The methods beside each other, means over seeds with the range of the returns."""
    rows = [_row(TITLES[method], found.of(method)) for method in METHODS if found.of(method)]
    logged = [value for value in found.behaviour if value is not None]
    if logged:
        rows.append({"policy": "logged policy", "return": np.mean(logged), "range over seeds": _range(logged)})
    if found.best is not None:
        rows.append({"policy": "best linear policy", "return": found.best})
    # Where returns are measured, the mean Q at logged states, the only word on them elsewhere, says less.
    frame = pd.DataFrame(rows).drop(columns="mean Q" if found.measured else []).dropna(axis="columns", how="all")
    caption = (
        "Value bias: what the critic promised minus what came. Normal deviation: how far a policy leaves near logged "
        "actions sideways, in largest actions. Follows the data: share of proposals closer in angle to the logged "
        f"action than to its normals. {_repeats(len(found.seeds))}"
    )
    return Table("comparison", "The policies beside each other", frame, caption, highlight=True)


def _repeats(n: int) -> str:
    return "One seed." if n == 1 else f"Means over {n} seeds."


def _row(title: str, outcomes: list[Outcome]) -> dict[str, object]:
    def mean(name: str) -> float:
        return float(np.mean([one.numbers.get(name, np.nan) for one in outcomes]))

    return {
        "policy": title,
        "return": mean("return_mean"),
        "range over seeds": _range([one.numbers.get("return_mean", np.nan) for one in outcomes]),
        "value bias": mean("value_bias"),
        "mean Q": mean("q_mean"),
        "normal deviation": mean("normal_deviation"),
        "follows the data": mean("preference"),
    }


def _range(values: list[float]) -> str | None:
    """None where there is no range to show."""
    return f"{min(values):.2f} to {max(values):.2f}" if len(set(values)) > 1 and np.isfinite(values).all() else None


def learning_curve(found: Experiment) -> Table:
    """Mean returns on the way."""
    frame = pd.DataFrame(found.watched.curve, columns=["step", "method", "seed", "return"])
    return Table("learning_curve", "Mean return on the way", frame)


def actions(fitted: FittedPolicy, states: np.ndarray | None) -> Table:
    """The policy's actions and their values, beside the states."""
    frame = fitted.example()
    if states is not None:
        frame = pd.DataFrame(states, columns=frame.columns)
    where = "the given states" if states is not None else "a few logged states"
    caption = "value: Q1, the critic's estimate of the discounted return from there."
    return Table("actions", f"FQL's actions in {where}", pd.concat([frame, fitted.predict(frame)], axis=1), caption)


def mean_over_seeds(found: Experiment, method: MethodName, name: str) -> float | None:
    """A number's mean over seeds; None where it was not measured or is not finite."""
    values = [one.numbers.get(name, np.nan) for one in found.of(method)]
    mean = float(np.mean(values)) if values else np.nan
    return mean if np.isfinite(mean) else None
