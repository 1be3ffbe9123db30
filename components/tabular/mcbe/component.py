"""M-CBE: predicts through human concepts with a few readable formulas and a selector of which one decides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.mcbe.choices import Operator, SelectorKind, Task, Variant
from kfp_methods.components.tabular.mcbe.claims import CLAIMS
from kfp_methods.contract import (
    Dataset,
    FittedModel,
    Method,
    Metrics,
    ModelInputs,
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
    from kfp_methods.components.tabular.mcbe.data import Data
    from kfp_methods.context import Context

Experts = Annotated[int, Field(ge=1, le=32)]
Share = Annotated[float, Field(gt=0, lt=1)]
Size = Annotated[int, Field(gt=0, le=100_000)]


class McbeInputs(ModelInputs):
    """Rows with concepts, which formulas may be used, and how models are trained."""

    data: Dataset | None = artifact(
        "Table (CSV, Parquet): x_* inputs, c_* concepts, y or y_*, optionally split; or NPZ: x, c, y, c_names, "
        "y_names, concept_types."
    )
    variant: Variant = parameter("both", "Experts: linear, symbolic or both.")
    task: Task = parameter("auto", "auto: classification where y is text or has at most ten whole numbers.")
    n_experts: list[Experts] = by_preset(
        "Numbers of experts M to compare.", smoke=[1, 3], sample=[1, 5], gpu=[1, 2, 3, 4, 5, 10], min_length=1
    )
    operators: list[Operator] = parameter(
        ["+", "-", "*", "/"], "What formulas are made of; an empty list: the official code's.", max_length=20
    )
    max_length: int = parameter(15, "Longest formula, in operon's nodes.", ge=3, le=100)
    sr_generations: int = by_preset("Generations of a search.", smoke=10, sample=80, gpu=200, ge=1, le=10_000)
    sr_population: int = by_preset("Formulas in a generation.", smoke=100, sample=500, gpu=1_000, ge=10, le=100_000)
    sr_rows: int = parameter(5_000, "Rows of a search at most.", gt=1, le=1_000_000)
    sr_max_fits: int = parameter(100, "Searches at most; experts beyond stay constants.", ge=1, le=10_000)
    hidden: int = parameter(128, "Width of the encoder.", gt=0, le=100_000)
    latent: int = parameter(64, "Numbers between encoder and concepts.", gt=0, le=100_000)
    selector: SelectorKind = parameter("mlp", "Which network picks the expert.")
    concept_penalty: float = parameter(1.0, "Weight of the concepts' loss.", ge=0, le=1e6)
    task_penalty: float = parameter(1.0, "Weight of the target's loss.", ge=0, le=1e6)
    weight_reg: float = parameter(1e-4, "Weight of the size of linear formulas.", ge=0, le=1e6)
    threshold: float = parameter(1e-3, "Weights of linear formulas below are dropped, in standardised units.", ge=0)
    balance_weight: float = parameter(0.0, "Weight of using experts evenly; the paper has none.", ge=0, le=1e6)
    int_prob: float = parameter(
        0.25, "Share of rows trained on true concepts, where training is not disjoint.", ge=0, le=1
    )
    disjoint_training: bool = parameter(True, "Train formulas on true concepts, and predict with predicted ones.")
    tau_start: float = parameter(2.0, "First temperature of the selector.", gt=0, le=100)
    tau_end: float = parameter(0.05, "Last temperature.", gt=0, le=100)
    epochs: int = by_preset("Passes over the training rows.", smoke=8, sample=80, gpu=500, ge=1, le=100_000)
    lr: float = parameter(5e-4, "Learning rate.", gt=0, le=1)
    batch_size: int = parameter(128, "Rows of a step.", gt=0, le=1_000_000)
    restarts: int = by_preset(
        "Starts of a mixture; the best by validation is kept, for some collapse.",
        smoke=1,
        sample=2,
        gpu=3,
        ge=1,
        le=100,
    )
    n_seeds: int = by_preset("Seeds to repeat all with, from seed on.", smoke=1, sample=3, gpu=5, ge=1, le=1_000)
    split_fractions: list[Share] = parameter(
        [0.7, 0.15, 0.15], "Shares of training, validation and test rows, where there is no column split.",
        min_length=3, max_length=3,
    )  # fmt: skip
    clip_to_range: bool = parameter(False, "Keep predicted numbers within the training rows' range.")

    @model_validator(mode="after")
    def _fits_together(self) -> McbeInputs:
        problems = []
        if abs(sum(self.split_fractions) - 1) > 1e-6:
            problems.append(
                Problem("split_fractions", self.split_fractions, "do not sum to 1", "Give shares of all rows")
            )
        if self.tau_end > self.tau_start:
            problems.append(Problem("tau_end", self.tau_end, "is above tau_start", "Let the temperature fall"))
        if self.data is None and self.task == "classification":
            problems.append(Problem("data_uri", None, "is missing: the sample is a regression", "Give your rows"))
        if problems:
            raise InputError(problems)
        return self


class McbeMetrics(Metrics):
    """Of the shown mixture (best validation loss), and of what it is compared with; R2, or accuracy of classes."""

    score: float = metric("On test rows, with predicted concepts.")
    score_clipped: float = metric("The same with predictions clipped to the training rows' range.")
    score_true_concepts: float | None = metric("The same with true concepts.", optional=True)
    error: float = metric("Mean absolute error, or 1 - macro F1.")
    concept_score: float | None = metric("R2 or accuracy of the concepts.", optional=True)
    complexity_mean: float = metric("Nodes of the formulas that decide a row.")
    complexity_total: float = metric("Nodes of all formulas in use.")
    experts_used: float = metric("Formulas in use.")
    score_black_box: float = metric("Of the black box.")
    score_one_expert: float | None = metric("Of one linear expert, the concept bottleneck model.", optional=True)
    score_licem: float = metric("Of linear formulas of each row's own (LICEM).")
    score_tree: float = metric("Of a decision tree on true concepts.")
    formula_match: float | None = metric("Generating formulas that were found, where they are known.", optional=True)
    collapsed_starts: float = metric("Starts of mixtures that used one expert only.")
    sr_seconds_ratio: float | None = metric("Seconds of the symbolic phases / of phase 1.", optional=True)


class McbeOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[McbeMetrics] = output("Scalar results.")
    experts: InstanceOf[Table] = output("The formulas in use, with the share of rows each decides.")
    models: InstanceOf[Table] = output("Every model: accuracy, complexity, seconds.")
    predictions: InstanceOf[Table] = output("Test rows: prediction, expert, concepts, formula.", format="parquet")
    interventions: InstanceOf[Table] = output("Accuracy by share of rows with true concepts.")
    model: InstanceOf[FittedModel] = output("The shown mixture: predicts from x_*, with experts.json beside it.")


def load(inputs: McbeInputs, context: Context) -> Data | None:
    """The user's checked rows; None for the embedded sample."""
    if inputs.data is None:
        return None
    from kfp_methods.components.tabular.mcbe import user_data

    return user_data.load(inputs, context)


def run(inputs: McbeInputs, data: Data | None, context: Context) -> McbeOutputs:
    """Trains mixtures and baselines, and shows the best formulas."""
    from kfp_methods.components.tabular.mcbe import outputs, running

    return outputs.outputs(inputs, running.run(inputs, data, context))


def load_model(folder: Path) -> FittedModel:
    """What `Explained.save` wrote."""
    from kfp_methods.components.tabular.mcbe.model import Explained

    return Explained.load(folder)


METHOD = Method("mcbe", McbeInputs, McbeOutputs, load, run, CLAIMS, load_model)
