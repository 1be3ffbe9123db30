"""The paper's claims, and the number that each seed contributes to each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfp_methods.claims import Claim, ClaimResult, judge, not_measured

if TYPE_CHECKING:
    from kfp_methods.components.control.frictional_q.choices import MethodName
    from kfp_methods.components.control.frictional_q.running import Experiment, Outcome

ENOUGH_UPDATES = 3_000
CURVE_POINTS, CURVE_END, CURVE_SEEDS = 20, 10, 3
TRAININGS = "trainings on one log"

LESS_BIAS = Claim(
    id="less-overestimation-than-td3",
    statement="On a fixed buffer FQL misjudges its policy's value less than TD3",
    paper="the normal component of the actions is the dominant source of extrapolation error",
    measure="|mean Q1 - mean discounted return| of FQL (perturb) minus that of TD3, from the same first states, "
    "paired over seeds",
    direction="less",
    threshold=0.0,
)
REMAP_BIAS = Claim(
    id="released-actor-less-overestimation-than-td3",
    statement="The released actor, which maps proposals anew, misjudges its value less than TD3 on a fixed buffer",
    paper="the released code's actor; nothing but its input ties it to the data",
    measure="|mean Q1 - mean discounted return| of FQL (remap) minus that of TD3, paired over seeds",
    direction="less",
    threshold=0.0,
)
BEATS_TD3 = Claim(
    id="return-above-td3",
    statement="On a fixed buffer FQL earns more than TD3",
    paper="D4RL, normalised: halfcheetah-medium-expert 85.25, hopper-medium-expert 90.29",
    measure="mean return of FQL (perturb) minus that of TD3, from the same first states, paired over seeds",
    direction="greater",
    threshold=0.0,
)
BEATS_BCQ = Claim(
    id="return-above-bcq",
    statement="On a fixed buffer FQL earns more than BCQ",
    paper="the paper extends BCQ and reports higher returns than the compared methods",
    measure="mean return of FQL (perturb) minus that of BCQ with the same networks, paired over seeds",
    direction="greater",
    threshold=0.0,
)
KEEPS_BEHAVIOUR = Claim(
    id="return-near-the-logged-policy",
    statement="FQL does not lose what the logged policy earns",
    paper="robust and stable performance",
    measure="mean return of FQL (perturb) minus that of the logged policy on the point mass, paired over seeds; a loss "
    "of less than 0.5 is allowed",
    direction="greater",
    threshold=-0.5,
)
CONTRAST = Claim(
    id="proposals-follow-the-data",
    statement="The contrastive VAE proposes actions along the logged ones, not at right angles to them",
    paper="supported actions are encoded as tangent directions",
    measure="share of FQL's proposals that are closer in angle to the logged action than to any of its normals",
    direction="greater",
    threshold=0.7,
)
CONTRAST_HELPS = Claim(
    id="contrast-sharpens-proposals",
    statement="The contrast makes the proposals follow the logged actions more closely",
    paper="the contrastive VAE separates tangent and normal components",
    measure="that share of FQL (perturb) minus the share without contrast, both with latents clamped to ±0.5, paired "
    "over seeds",
    direction="greater",
    threshold=0.0,
)
STEADIER = Claim(
    id="steadier-than-td3",
    statement="FQL's returns vary less from one evaluation to the next than TD3's",
    paper="robust and stable performance over 5 million steps, 5 seeds",
    measure="standard deviation / |mean| of the last 10 evaluation returns of FQL minus that of TD3, paired over at "
    "least 3 seeds",
    direction="less",
    threshold=0.0,
)
CLAIMS = (LESS_BIAS, REMAP_BIAS, BEATS_TD3, BEATS_BCQ, KEEPS_BEHAVIOUR, CONTRAST, CONTRAST_HELPS, STEADIER)

_OFFLINE_ONLY = "It is about a fixed buffer; this run learned online."
_NO_ARENA = "Returns need an environment: give env_id."
_NOT_RUN = "One of the compared methods was not run."
_ONE_LOG = "All seeds learned from one log: the interval says nothing of other logs."
_DIVERGED = "A compared value is not finite: that training diverged."


def results(found: Experiment, mode: str, updates: int) -> list[ClaimResult]:
    """Each claim judged over the seeds."""
    offline = mode == "offline"
    return [
        _paired(LESS_BIAS, found, "fql_perturb", "td3", "value_bias", offline, size=True),
        _paired(REMAP_BIAS, found, "fql_remap", "td3", "value_bias", offline, size=True),
        _paired(BEATS_TD3, found, "fql_perturb", "td3", "return_mean", offline),
        _paired(BEATS_BCQ, found, "fql_perturb", "bcq", "return_mean", offline),
        _keeps_behaviour(found, updates),
        _judged(CONTRAST, found, [one.numbers["preference"] for one in found.of(found.main)], _beside_chance(found)),
        _paired(CONTRAST_HELPS, found, "fql_perturb", "plain_vae", "preference_at_equal_clip", offline),
        _steadier(found),
    ]


def _paired(
    claim: Claim,
    found: Experiment,
    ours: MethodName,
    theirs: MethodName,
    name: str,
    offline: bool,
    *,
    size: bool = False,
) -> ClaimResult:
    """Judges differences of one number, or of its size, between two methods."""
    if not offline:
        return not_measured(claim, _OFFLINE_ONLY)
    first, second = found.of(ours), found.of(theirs)
    if not second:
        return not_measured(claim, _NOT_RUN)
    if not found.measured and not name.startswith("preference"):
        return not_measured(claim, _NO_ARENA)
    pairs = [(a.numbers[name], b.numbers[name]) for a, b in zip(first, second, strict=True)]
    return _judged(claim, found, [abs(a) - abs(b) if size else a - b for a, b in pairs])


def _judged(claim: Claim, found: Experiment, values: Sequence[float], note: str = "") -> ClaimResult:
    """Over seeds; where all of them learned from one log, the interval says nothing of other logs."""
    if not all(map(math.isfinite, values)):
        return not_measured(claim, _DIVERGED)
    if not found.one_log:
        return judge(claim, values, note, found.seeds)
    return judge(claim, values, f"{note} {_ONE_LOG}".strip(), found.seeds, over=TRAININGS)


def _beside_chance(found: Experiment) -> str:
    """What the share of preferred proposals is to be read against."""
    both = _mean(found.of(found.main), "preference_both_signs")
    words = (
        f"Directions at random score {1 / found.n_actions:.2f}. Against negated normals too: {both:.2f} (at random "
        f"{0.5 / found.n_actions:.2f})."
    )
    if not (plain := found.of("plain_vae")):
        return words
    share = _mean(plain, "preference")
    return f"{words} Without contrast: {share:.2f}{', passed as well' if share > CONTRAST.threshold else ''}."


def _mean(outcomes: Sequence[Outcome], name: str) -> float:
    return sum(one.numbers[name] for one in outcomes) / len(outcomes)


def _keeps_behaviour(found: Experiment, updates: int) -> ClaimResult:
    if found.best is None:
        return not_measured(KEEPS_BEHAVIOUR, "Its allowance is for the point mass's rewards.")
    if updates < ENOUGH_UPDATES:
        return not_measured(KEEPS_BEHAVIOUR, f"It needs {ENOUGH_UPDATES:,} updates; this run made {updates:,}.")
    pairs = zip(found.of("fql_perturb"), found.behaviour, strict=True)
    values = [one.numbers["return_mean"] - logged for one, logged in pairs if logged is not None]
    return _judged(KEEPS_BEHAVIOUR, found, values)


def _steadier(found: Experiment) -> ClaimResult:
    if not found.of("td3"):
        return not_measured(STEADIER, _NOT_RUN)
    if not found.measured:
        return not_measured(STEADIER, _NO_ARENA)
    if len(found.seeds) < CURVE_SEEDS or len({point["step"] for point in found.watched.curve}) < CURVE_POINTS:
        needed = f"{CURVE_SEEDS} seeds and {CURVE_POINTS} evaluations, so that the last {CURVE_END} are a late part"
        return not_measured(STEADIER, f"It needs {needed}.")
    pairs = [(_variation(found, found.main, seed), _variation(found, "td3", seed)) for seed in found.seeds]
    return _judged(STEADIER, found, [ours - theirs for ours, theirs in pairs])


def _variation(found: Experiment, method: MethodName, seed: int) -> float:
    """Coefficient of variation of the last evaluations; NaN where the mean is 0."""
    points = [p["return"] for p in found.watched.curve if p["method"] == method and p["seed"] == seed][-CURVE_END:]
    mean = sum(points) / len(points)
    deviation = math.sqrt(sum((point - mean) ** 2 for point in points) / (len(points) - 1))
    return deviation / abs(mean) if mean else math.nan
