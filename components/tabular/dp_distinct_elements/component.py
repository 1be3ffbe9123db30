"""Private distinct counting over a stream: how many users are present now, published at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.dp_distinct_elements.choices import (
    Calibration,
    FrequencyMode,
    MechanismName,
)
from kfp_methods.components.tabular.dp_distinct_elements.claims import CLAIMS
from kfp_methods.components.tabular.dp_distinct_elements.combinations import problems
from kfp_methods.contract import (
    Dataset,
    Inputs,
    Method,
    Metrics,
    Outputs,
    artifact,
    by_preset,
    metric,
    output,
    parameter,
)
from kfp_methods.errors import InputError
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.dp_distinct_elements.user_data import UserData
    from kfp_methods.context import Context

MOST_STEPS = 2**24
Cap = Annotated[int, Field(ge=1, le=1_000_000)]
Budget = Annotated[float, Field(gt=0, le=1e4)]
Length = Annotated[int, Field(ge=16, le=2**22)]


class DpDistinctElementsInputs(Inputs):
    """Which stream is counted, by which mechanisms, under which budget, and whether the counts are to be published."""

    events: Dataset | None = artifact(
        "Events (CSV, Parquet, JSONL): t (whole number or timestamp), user, op (1/-1 or insert/delete)."
    )
    mechanism: list[MechanismName] = parameter(
        ["tree_linear", "sample_hold", "nocap", "counter"], "Mechanisms to compare; one to publish.", min_length=1
    )
    epsilon: float = parameter(
        1.0, "Budget of the whole sequence of counts, for all that one user does.", gt=0, le=10_000
    )
    delta: float = parameter(1e-6, "Delta beside it.", gt=0, lt=1)
    calibration: Calibration = parameter(
        "zcdp", "zcdp: noise by zero-concentrated privacy; exact: a little less, by the exact law of Gaussian noise."
    )
    cap_w: int | Literal["t23"] = parameter(
        4, "Changes of one user that are counted, chosen without looking at the data; t23: horizon^(2/3)."
    )
    caps: list[Cap] = parameter([2, 4, 8, 16, 32], "Caps to compare.", min_length=1, max_length=100)
    compare_epsilons: list[Budget] = parameter(
        [0.5, 1.0, 2.0, 5.0, 10.0], "Budgets to compare.", min_length=1, max_length=50
    )
    horizon: int | None = parameter(None, "Steps the noise is made for; by default those of the events.", ge=1)
    step: str = parameter(
        "event",
        "Clock: event (one step each), a whole number of units of t, or of timestamps 1D, 1h, 7D, ...: counts are as "
        "at the end of each.",
        max_length=50,
    )
    publish: bool = parameter(
        False, "Make one release with secure randomness, and write nothing that it does not cover."
    )
    secret_noise: bool = parameter(False, "Take coins and noise from the operating system instead of the seed.")
    memory_budget_entries: int | None = parameter(None, "Users that hard_budget remembers at most.", ge=0)
    frequency_mode: FrequencyMode = parameter(
        "binary",
        "binary: insertions and deletions of a user alternate; multiset: counts may exceed 1 (present while above 0).",
    )
    iblt_capacity: int | Literal["auto"] = parameter(
        "auto",
        "Users that a table of sample_hold in multiset mode gives back; auto: 20 standard deviations of its noise.",
    )
    release_every: int = parameter(1, "Publish every so manieth step; the noise is the same.", ge=1)
    audit: bool = parameter(True, "Attack the mechanisms.")
    audit_trials: int = by_preset(
        "Releases with a user and as many without, of which the attack proves a lower bound on epsilon.",
        smoke=200,
        sample=2_000,
        gpu=20_000,
        ge=0,
        le=1_000_000,
    )
    game: bool = parameter(True, "Play the lower bound's game (on the embedded sample).")
    game_heavy: int = parameter(20, "Heavy users of the game, k.", ge=1, le=10_000)
    game_light: int = parameter(20, "A third of the light users of each phase, h.", ge=1, le=10_000)
    game_phases: int = parameter(60, "Phases of the game, w.", ge=1, le=10_000)
    reveal_truth: bool = parameter(False, "Write true counts and errors too, for the owner's eyes only.")
    lengths: list[Length] = by_preset(
        "Lengths T of made streams for memory against T.",
        smoke=[256, 512, 1024],
        sample=[1024, 2048, 4096, 8192, 16384],
        gpu=[4096, 16384, 65536, 262144, 1048576],
        min_length=2,
        max_length=20,
    )
    n_streams: int = by_preset(
        "Seeds of made streams, of games and of noise.", smoke=3, sample=5, gpu=64, ge=1, le=10_000
    )

    @model_validator(mode="after")
    def _fits_together(self) -> DpDistinctElementsInputs:
        if found := [*problems(self)]:
            raise InputError(found)
        return self


class DpDistinctElementsMetrics(Metrics):
    """Of the first private mechanism that was asked for; what the data tell is None where it is published."""

    rho: float = metric("Budget as zero-concentrated differential privacy.")
    sigma_node: float = metric("Standard deviation of the noise of each node of the tree.")
    noise_rms: float = metric("Root mean square of the published counts' noise.")
    relative_noise: float | None = metric("The same / the median published count; None where that is not above 0.")
    rmse: float | None = metric("Root mean squared error of the published counts.", optional=True)
    max_abs_error: float | None = metric("Their largest error.", optional=True)
    peak_bits: float | None = metric("Peak memory in bits, by the written rule.", optional=True)
    audit_mu: float | None = metric(
        "How many standard deviations the worst user moves the attack's score.", optional=True
    )
    audit_delta_at_eps: float | None = metric("Least delta for that user at the promised epsilon.", optional=True)
    audit_epsilon: float | None = metric(
        "Lower bound on epsilon (95% confidence) that the attack's trials prove.", optional=True
    )
    audit_pass: float | None = metric("1 where the promise holds against the attack, else 0.", optional=True)
    heavy_share_ratio: float | None = metric(
        "Heavy users' share of what the mechanism's counts give away in the game / of all.", optional=True
    )


class DpDistinctElementsOutputs(Outputs):
    """What a run leaves. Only that of a run with publish=true may be published."""

    metrics: InstanceOf[DpDistinctElementsMetrics] = output("Scalar results.")
    private_counts: InstanceOf[Table] = output(
        "Published counts with their noise's standard deviation.", format="parquet"
    )
    frontier: InstanceOf[Table] = output("Memory and error of each mechanism and cap; empty where published.")
    budgets: InstanceOf[Table] = output("Error by budget and cap; empty where published.")
    attacks: InstanceOf[Table] = output("What the attack makes of each mechanism; empty where published.")
    privacy_report: str = output("The privacy statement, Markdown.")


def load(inputs: DpDistinctElementsInputs, context: Context) -> UserData | None:
    """The user's checked stream; None for the embedded sample."""
    if inputs.events is None:
        return None
    from kfp_methods.components.tabular.dp_distinct_elements import user_data

    return user_data.load(inputs, context)


def run(inputs: DpDistinctElementsInputs, data: UserData | None, context: Context) -> DpDistinctElementsOutputs:
    """Compares mechanisms, caps and budgets, or makes one release."""
    from kfp_methods.components.tabular.dp_distinct_elements import outputs, running

    if inputs.publish:
        assert data is not None  # noqa: S101 (the contract requires it)
        return outputs.published(inputs, data, running.publish(inputs, data))
    return outputs.compared(inputs, running.compare(inputs, data, context))


METHOD = Method("dp_distinct_elements", DpDistinctElementsInputs, DpDistinctElementsOutputs, load, run, CLAIMS)
