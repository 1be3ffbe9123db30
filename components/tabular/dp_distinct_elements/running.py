"""From validated inputs to what was measured, or to one release."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kfp_methods.components.tabular.dp_distinct_elements import game, measuring, mechanisms, sample, streams
from kfp_methods.components.tabular.dp_distinct_elements.attacks import Attack
from kfp_methods.components.tabular.dp_distinct_elements.game import Outcome
from kfp_methods.components.tabular.dp_distinct_elements.measuring import Settings
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.releasing import Released
from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Ints, Stream
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dp_distinct_elements.component import DpDistinctElementsInputs
    from kfp_methods.components.tabular.dp_distinct_elements.user_data import UserData
    from kfp_methods.context import Context

_REMEMBERED = (0.0, 0.2, 0.4, 0.8, 1.6)  # ids for each heavy user
_ERROR_CAPS = (4, 8, 16, 32, 64, 128, 256)
_ERROR_DRAWS = 20
_ATTACKED = 1024  # steps of the made stream that the sample's attack is on


@dataclass(frozen=True)
class Case:
    """One stream with what was published of it.

    shows_truth: whether errors may be shown.
    """

    name: str
    stream: Stream
    labels: NDArray[np.generic]
    released: list[Released]
    frontier: pd.DataFrame
    budgets: pd.DataFrame
    shows_truth: bool


@dataclass(frozen=True)
class Scaling:
    """Memory by length [seeds x lengths], by mechanism; and RMSE by cap [seeds x caps]."""

    lengths: Ints
    bits: dict[str, Ints]
    caps: Ints
    rmse: Floats


@dataclass(frozen=True)
class Found:
    """cases: the first is the one that metrics are of. attacked: name of the stream of the attacks. avoided: share
    ratios by number of ids remembered [games]. scaling: None for a user's events.
    """

    settings: Settings
    cases: list[Case]
    attacks: list[Attack] = field(default_factory=list)
    attacked: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    avoided: dict[int, list[float]] = field(default_factory=dict)
    scaling: Scaling | None = None


def randomness_of(inputs: DpDistinctElementsInputs) -> Randomness:
    """Secret where asked for or to be published."""
    secret = inputs.publish or inputs.secret_noise
    return Randomness.secure() if secret else Randomness.seeded(inputs.seed)


def publish(inputs: DpDistinctElementsInputs, data: UserData) -> tuple[Settings, Released]:
    """One release, with the operating system's randomness whatever the seed."""
    settings = Settings.of(inputs, data.stream)
    return settings, measuring.publish(data.stream, inputs.mechanism[0], settings, randomness_of(inputs))


def compare(inputs: DpDistinctElementsInputs, data: UserData | None, context: Context) -> Found:
    """Measures a user's stream, or the sample's, games and lengths."""
    randomness = randomness_of(inputs)
    if data is not None:
        settings = Settings.of(inputs, data.stream)
        case = _case("Your events", data.stream, data.labels, settings, randomness, context, inputs.reveal_truth)
        found = _attacks(data.stream, settings, inputs, randomness, context)
        return Found(settings, [case], found, "your events")
    by_event, by_year = sample.by_event(), sample.by_year()
    settings = Settings.of(inputs, by_event)
    steps, years = np.arange(1, by_event.T + 1), 1871 + np.arange(by_year.T)
    cases = [
        _case("Baseball, event by event", by_event, steps, settings, randomness, context, True),
        _case("Baseball, year by year", by_year, years, Settings.of(inputs, by_year), randomness, context, True),
    ]
    made = streams.made(_ATTACKED, inputs.seed)
    found = _attacks(made, Settings.of(inputs, made), inputs, randomness, context)
    outcomes, avoided = _games(inputs, randomness, context) if inputs.game else ([], {})
    return Found(
        settings,
        cases,
        found,
        f"a made stream of {_ATTACKED} events",
        outcomes,
        avoided,
        _scaling(inputs, context),
    )


def _case(
    name: str,
    stream: Stream,
    labels: NDArray[np.generic],
    settings: Settings,
    randomness: Randomness,
    context: Context,
    shows_truth: bool,
) -> Case:
    names = list(context.progress(settings.mechanisms, f"{name}: mechanisms"))
    released = [measuring.publish(stream, mechanism, settings, randomness) for mechanism in names]
    frontier = measuring.frontier(stream, settings, randomness, truth=shows_truth)
    budgets = measuring.budgets(stream, settings, truth=shows_truth)
    context.keep(Table(f"frontier-{stream.T}", f"Memory and error: {name}", frontier))
    context.keep(Table(f"budgets-{stream.T}", f"Error by budget and cap: {name}", budgets))
    return Case(name, stream, labels, released, frontier, budgets, shows_truth)


def _attacks(
    stream: Stream,
    settings: Settings,
    inputs: DpDistinctElementsInputs,
    randomness: Randomness,
    context: Context,
) -> list[Attack]:
    if not inputs.audit or not stream.users:
        return []
    attacked = [name for name in measuring.ATTACKED if name != "sample_hold" or not stream.multiset]
    names = [name for name in settings.mechanisms if name in attacked]
    return [
        measuring.attack(stream, name, settings, inputs.audit_trials, randomness)
        for name in context.progress(names, "attacks")
    ]


def _games(
    inputs: DpDistinctElementsInputs, randomness: Randomness, context: Context
) -> tuple[list[Outcome], dict[int, list[float]]]:
    k, h, w = inputs.game_heavy, inputs.game_light, inputs.game_phases
    outcomes: list[Outcome] = []
    avoided: dict[int, list[float]] = {round(share * k): [] for share in _REMEMBERED}
    for seed in context.progress(range(inputs.seed, inputs.seed + inputs.n_streams), "games"):
        played = game.play(k, h, w, seed)
        settings = Settings.of(inputs, played.stream)
        for name in settings.mechanisms:
            if name != "hyperloglog":
                released = measuring.publish(played.stream, name, settings, Randomness.seeded(seed, 7))
                outcomes.append(game.outcome(played, released, seed))
        for B, ratios in avoided.items():
            ratios.append(game.avoidance(k, h, w, B, seed))
    return outcomes, avoided


def _scaling(inputs: DpDistinctElementsInputs, context: Context) -> Scaling:
    lengths = sorted(set(inputs.lengths))
    seeds = range(inputs.seed, inputs.seed + inputs.n_streams)
    bits: dict[str, list[list[int]]] = {"sample_hold": [], "tree_linear": [], "counter": []}
    for seed in context.progress(seeds, "memory by length"):
        rows: dict[str, list[int]] = {name: [] for name in bits}
        for T in lengths:
            stream, W = streams.made(T, seed), measuring.two_thirds(T)
            coins = Randomness.seeded(seed, T).coins(stream)
            rows["sample_hold"].append(mechanisms.sample_hold(stream, W, inputs.delta, coins).bits)
            rows["tree_linear"].append(mechanisms.tree_linear(stream, W).bits)
            rows["counter"].append(mechanisms.counter(stream).bits)
        for name, row in rows.items():
            bits[name].append(row)
    rmse = measuring.error_by_cap(sample.light(4), _ERROR_CAPS, inputs, seeds, _ERROR_DRAWS)
    return Scaling(
        np.array(lengths), {name: np.array(rows) for name, rows in bits.items()}, np.array(_ERROR_CAPS), rmse
    )
