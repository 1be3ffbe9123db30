"""Hedging on the frontier: which of many models to take for a new task, from their benchmarks and a few labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.weak_monotonicity.choices import LEARNERS, SAMPLE_TASKS, LearnerName, PoolSize
from kfp_methods.components.tabular.weak_monotonicity.claims import CLAIMS
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
from kfp_methods.errors import InputError, Problem
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.weak_monotonicity.user_data import UserData
    from kfp_methods.context import Context

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Scale = Annotated[float, Field(gt=0, le=1e12)]


class WeakMonotonicityInputs(Inputs):
    """Benchmarks of the models, evidence of the new task, and which rules pick."""

    benchmarks: Dataset | None = artifact("Table (CSV, Parquet): model, and one column of risks for each source task.")
    target_losses: Dataset | None = artifact(
        "Losses on labelled examples of the new task: a column for each model, values 0 to 1."
    )
    target_predictions: Dataset | None = artifact(
        "Instead: NPZ with pred (M, n) or (M, n, C), y (n), models (M); also for aggregation."
    )
    higher_is_better: bool = parameter(False, "The benchmarks are scores; their risk is 1 - score.")
    task_max: dict[str, Scale] = parameter({}, "Scale of tasks that do not go up to 1: {task: largest}.")
    drop_incomplete: bool = parameter(False, "Leave out models with missing cells instead of refusing the table.")
    learners: list[LearnerName] = parameter(list(LEARNERS), "Rules to compare.", min_length=1)
    cover_t: float | Literal["auto"] = parameter("auto", "Radius of the cover; auto: by the bound, for the labels.")
    delta: float = parameter(0.1, "Probability with which the bound behind cover_t=auto may fail.", gt=0, lt=1)
    tie_fix: bool = parameter(True, "Let models with margin 0 off the frontier in, in their turn; false: as printed.")
    n_grid: list[Count] = parameter(
        [1, 2, 4, 8, 16, 32, 64, 128], "Numbers of labels of the learning curve.", min_length=1
    )
    n_subsamples: int = by_preset(
        "Subsamples of each number of labels.", smoke=20, sample=50, gpu=500, ge=1, le=100_000
    )
    n_choices: int = by_preset(
        "Choices of source tasks and a target tried, for each number of sources.",
        smoke=16,
        sample=120,
        gpu=200,
        ge=1,
        le=100_000,
    )
    k_sources: list[Count] = by_preset(
        "Numbers of source tasks in the sample's protocol.", smoke=[1, 2], sample=[1, 2, 4], gpu=[1, 2, 4], min_length=1
    )
    pool: PoolSize = by_preset("Classifiers of the sample: 18 or 60.", smoke="small", sample="whole", gpu="whole")

    @model_validator(mode="after")
    def _fits_together(self) -> WeakMonotonicityInputs:
        problems = []
        if self.target_losses is not None and self.target_predictions is not None:
            problem, remedy = "target_losses is given too, and both say how models do on the target", "Leave one out"
            problems.append(Problem("target_predictions", None, problem, remedy))
        if self.benchmarks is None and (self.target_losses or self.target_predictions):
            problems.append(Problem("benchmarks", None, "is missing", "Give the models' risks on other tasks"))
        if self.benchmarks is None and max(self.k_sources) >= SAMPLE_TASKS:
            problem = f"leaves none of the sample's {SAMPLE_TASKS} tasks as a target"
            problems.append(Problem("k_sources", max(self.k_sources), problem, f"Give {SAMPLE_TASKS - 1} at most"))
        if isinstance(self.cover_t, float) and self.cover_t < 0:
            problems.append(Problem("cover_t", self.cover_t, "is negative", "Give 0 or more, or auto"))
        if problems:
            raise InputError(problems)
        return self


class WeakMonotonicityMetrics(Metrics):
    """Of the selection; excess risks are of the learning curve at the most source tasks."""

    frontier_size: float = metric("Models on the frontier.")
    cover_number_t: float = metric("Models in the cover that is used.")
    monotone_pair_rate: float | None = metric("Share of dominating pairs that the target orders alike.", optional=True)
    upper_modulus_0: float | None = metric("W(0): how far the target contradicts dominance (99%).", optional=True)
    picked_loss: float | None = metric("Mean loss of the adaptive rule's pick on the labels.", optional=True)
    picked_again: float | None = metric("Share of resamples of the labels with the same pick.", optional=True)
    excess_adaptive_fewest: float | None = metric("Excess risk of the adaptive rule, fewest labels.", optional=True)
    excess_erm_all_fewest: float | None = metric("Excess risk of ERM over all, fewest labels.", optional=True)
    excess_erm_pareto_fewest: float | None = metric(
        "Excess risk of ERM over the frontier, fewest labels.", optional=True
    )
    excess_adaptive_most: float | None = metric("Excess risk of the adaptive rule, most labels.", optional=True)
    excess_erm_all_most: float | None = metric("Excess risk of ERM over all, most labels.", optional=True)
    excess_erm_pareto_most: float | None = metric("Excess risk of ERM over the frontier, most labels.", optional=True)


class WeakMonotonicityOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[WeakMonotonicityMetrics] = output("Scalar results.")
    selection: InstanceOf[Table] = output("What each rule picks, with weights, loss and how sure that is.")
    frontier: InstanceOf[Table] = output("Every model: on the frontier or by how much it is dominated, and by whom.")
    curve: InstanceOf[Table] = output("Excess risk by number of labels and rule.")
    modulus: InstanceOf[Table] = output("Moduli of monotonicity and covering numbers.")


def load(inputs: WeakMonotonicityInputs, context: Context) -> UserData | None:
    """The user's checked tables; None for the embedded sample."""
    if inputs.benchmarks is None:
        return None
    from kfp_methods.components.tabular.weak_monotonicity import user_data

    return user_data.load(inputs, context)


def run(inputs: WeakMonotonicityInputs, data: UserData | None, context: Context) -> WeakMonotonicityOutputs:
    """Picks for the user's target, or tries the rules on the sample's tasks."""
    from kfp_methods.components.tabular.weak_monotonicity import outputs, running

    return outputs.outputs(
        running.on_sample(inputs, context) if data is None else running.on_users(inputs, data, context)
    )


METHOD = Method("weak_monotonicity", WeakMonotonicityInputs, WeakMonotonicityOutputs, load, run, CLAIMS)
