"""Memory, error and attacks of mechanisms on one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.dp_distinct_elements import attacks, mechanisms, releasing, sketches, tree
from kfp_methods.components.tabular.dp_distinct_elements.attacks import Attack
from kfp_methods.components.tabular.dp_distinct_elements.choices import CAPPED, MechanismName
from kfp_methods.components.tabular.dp_distinct_elements.mechanisms import Counted
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Budget, Released
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Stream
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dp_distinct_elements.component import DpDistinctElementsInputs

ATTACKED: tuple[MechanismName, ...] = ("tree_linear", "sample_hold", "hard_budget", "nocap")


@dataclass(frozen=True)
class Settings:
    """What the inputs say about one stream; W: the cap. every: publish every so manieth step."""

    mechanisms: tuple[MechanismName, ...]
    W: int
    caps: tuple[int, ...]
    budget: Budget
    epsilons: tuple[float, ...]
    entries: int
    every: int
    capacity: int | None = None

    @classmethod
    def of(cls, inputs: DpDistinctElementsInputs, stream: Stream) -> Settings:
        """With the horizon of the inputs, or the stream's length."""
        horizon = inputs.horizon or stream.T
        return cls(
            mechanisms=tuple(dict.fromkeys(inputs.mechanism)),
            W=two_thirds(horizon) if inputs.cap_w == "t23" else int(inputs.cap_w),
            caps=tuple(sorted(set(inputs.caps))),
            budget=Budget(inputs.epsilon, inputs.delta, horizon, inputs.calibration),
            epsilons=tuple(sorted(set(inputs.compare_epsilons))),
            entries=inputs.memory_budget_entries or 0,
            every=inputs.release_every,
            capacity=inputs.iblt_capacity if isinstance(inputs.iblt_capacity, int) else None,
        )


def two_thirds(T: int) -> int:
    """The cap at which noise and memory of sample and hold both grow like T^(1/3)."""
    return max(1, round(T ** (2 / 3)))


def count(stream: Stream, name: MechanismName, W: int, settings: Settings, randomness: Randomness) -> Counted:
    """What a mechanism (other than tree_linear_auto) counts."""
    if name in ("sample_hold", "hard_budget"):
        coins = randomness.coins(stream)
        if name == "sample_hold":
            return mechanisms.sample_hold(stream, W, settings.budget.delta, coins)
        return mechanisms.hard_budget(stream, W, settings.budget.delta, coins, settings.entries)
    if name == "tree_linear":
        return mechanisms.tree_linear(stream, W)
    plain = {
        "exact": mechanisms.exact,
        "counter": mechanisms.counter,
        "nocap": mechanisms.nocap,
        "hyperloglog": mechanisms.hyperloglog,
    }
    return plain[name](stream)


def publish(stream: Stream, name: MechanismName, settings: Settings, randomness: Randomness) -> Released:
    """What a mechanism publishes with the cap of the settings; each mechanism has noise of its own."""
    if name == "tree_linear_auto":
        return releasing.tree_linear_auto(stream, settings.budget, randomness)
    if name == "sample_hold" and stream.multiset:
        return _sketched(stream, settings, randomness)
    counted = count(stream, name, settings.W, settings, randomness)
    return releasing.release(counted, settings.budget, randomness, _TREES[name])


def _sketched(stream: Stream, settings: Settings, randomness: Randomness) -> Released:
    """Raises InputError where the tables are too small for their noise, or for the users."""
    least = sketches.default_capacity(settings.W, settings.budget)
    capacity = settings.capacity or least
    if 2 * capacity < least:
        problem = "is below 20 standard deviations of the noise"
        raise InputError(Problem("iblt_capacity", capacity, problem, f"Give {least // 2} or more, or auto"))
    try:
        return sketches.sample_hold(stream, settings.W, settings.budget, randomness, capacity)
    except sketches.UndecodableError as error:
        problem = f"is too few for the users present at {error}"
        raise InputError(Problem("iblt_capacity", capacity, problem, f"Give {2 * capacity} or more")) from None


_TREES: dict[MechanismName, int] = {"tree_linear": 101, "sample_hold": 102, "hard_budget": 103, "nocap": 104,
                                    "exact": 0, "counter": 0, "hyperloglog": 0}  # fmt: skip


def rms(values: Floats) -> float:
    """Root mean square; 0 of nothing."""
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0


def frontier(stream: Stream, settings: Settings, randomness: Randomness, *, truth: bool) -> pd.DataFrame:
    """Memory and error of each mechanism at each cap; errors of the count itself only where the truth may be shown.

    rmse is the expected one: of the noise and of what caps leave out, together; max_error is of one release.
    """
    rows = []
    for name in settings.mechanisms:
        one_cap = name not in CAPPED or (name == "sample_hold" and stream.multiset)  # sketches take long
        for W in (None,) if one_cap else settings.caps:
            released = publish(stream, name, settings if W is None else replace(settings, W=W), randomness)
            counted, noise = released.counted, rms(released.sd)
            row = {
                "mechanism": name,
                "T": stream.T,
                "W": W,
                "noise_cap": counted.cap or None,
                "remembered_with": counted.start if name in ("sample_hold", "hard_budget") else None,
                "peak_bits": counted.bits,
                "entries": counted.entries,
                "blocked_users": counted.blocked,
                "noise_rms": noise,
            }
            if truth:
                left_out = _left_out(released, stream)
                row |= {
                    "left_out_rms": rms(left_out),
                    "rmse": float(np.hypot(noise, rms(left_out))),
                    "max_error": float(np.abs(released.counts - stream.present).max(initial=0)),
                }
            rows.append(row)
    return pd.DataFrame(rows)


def _left_out(released: Released, stream: Stream) -> Floats:
    if released.name == "tree_linear_auto":  # its copies come one after the other
        return np.asarray(mechanisms.tree_linear(stream, released.counted.cap).counts - stream.present, np.float64)
    return np.asarray(released.counted.counts - stream.present, np.float64)


def budgets(stream: Stream, settings: Settings, *, truth: bool) -> pd.DataFrame:
    """Error of the tree with every user remembered, by budget and cap."""
    roots = np.sqrt(tree.popcounts(stream.T))
    counted = {W: mechanisms.tree_linear(stream, W) for W in settings.caps}
    rows = []
    for epsilon in settings.epsilons:
        for W in settings.caps:
            noise = replace(settings.budget, epsilon=epsilon).node_sd(counted[W]) * rms(roots)
            row = {"epsilon": epsilon, "W": W, "noise_rms": noise}
            if truth:
                left_out = rms(np.asarray(counted[W].counts - stream.present, np.float64))
                row |= {"left_out_rms": left_out, "rmse": float(np.hypot(noise, left_out))}
            rows.append(row)
    return pd.DataFrame(rows)


def best_caps(budgets: pd.DataFrame) -> pd.DataFrame:
    """The cap of least error for each budget."""
    return budgets.loc[budgets.groupby("epsilon")["rmse"].idxmin()]


def attack(stream: Stream, name: MechanismName, settings: Settings, trials: int, randomness: Randomness) -> Attack:
    """The worst user's; where users depend on each other, the effect is found by leaving the user out."""
    counted = count(stream, name, settings.W, settings, randomness)
    if name == "hard_budget":
        effects = [
            counted.counts - count(stream.without(int(user)), name, settings.W, settings, randomness).counts
            for user in attacks.heaviest(stream)
        ]
        effect = max(effects, key=lambda s: attacks.distance(s, 1.0))
    else:
        effect = attacks.worst_effect(counted, stream)
    return attacks.attack(counted, effect, settings.budget, trials, randomness)


def error_by_cap(
    stream: Stream, caps: Sequence[int], inputs: DpDistinctElementsInputs, seeds: Sequence[int], draws: int
) -> Floats:
    """RMSE over the steps of `draws` releases, with noise of its own for each cap and seed [seeds, caps]."""
    budget = Budget(inputs.epsilon, inputs.delta, stream.T, inputs.calibration)
    found = np.empty((len(seeds), len(caps)))
    for j, W in enumerate(caps):
        counted = mechanisms.tree_linear(stream, W)
        sd = budget.node_sd(counted)
        for i, seed in enumerate(seeds):
            nodes = np.random.default_rng([seed, W, 5]).standard_normal((draws, stream.T))
            found[i, j] = rms((counted.counts + sd * tree.sums(nodes) - stream.present).ravel())
    return found
