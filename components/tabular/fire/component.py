"""FIRE: a surrogate of a costly quantity from few costly rows and many cheap ones, with error bars, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.fire.choices import (
    BackendName,
    ConditioningName,
    Mode,
    ProblemName,
    QuantileMode,
    StrategyName,
)
from kfp_methods.components.tabular.fire.claims import CLAIMS
from kfp_methods.components.tabular.fire.combinations import problems
from kfp_methods.contract import (
    Dataset,
    FittedModel,
    Method,
    Metrics,
    Model,
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
    from kfp_methods.components.tabular.fire.user_data import UserData
    from kfp_methods.context import Context

Level = Annotated[float, Field(gt=0, lt=1)]
Budget = Annotated[int, Field(ge=3, le=100_000)]


class FireInputs(ModelInputs):
    """The rows of all fidelities, what is to be predicted, and which regressor does it."""

    table: Dataset | None = artifact(
        "Rows (CSV, Parquet): feature columns, y, fidelity (whole numbers; the largest is predicted), and if wanted "
        "split (train or test)."
    )
    query: Dataset | None = artifact("Rows with the same features to predict.")
    tfm_checkpoint: Model | None = artifact("Checkpoint of a TabPFN (safetensors, ckpt) or TabICL (ckpt) regressor.")
    backend: BackendName = parameter(
        "gp", "Regressor: a Gaussian process, the network shipped here (pfn), or your own checkpoint's package."
    )
    mode: Mode = parameter("auto", "Predict, or compare all methods; auto: predict with a table, else compare.")
    test_fraction: float = parameter(
        0.2, "Share of the highest fidelity's rows that are held out where there is no column split.", ge=0, le=0.5
    )
    lf_strategy: StrategyName = parameter("pooled", "Lower levels as one context, or level by level.")
    conditioning: ConditioningName = parameter(
        "full", "What the residual model is shown of the lower one: mean, variance and quantiles; the mean; nothing."
    )
    quantile_levels: list[Level] = parameter(
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], "Which quantiles, rising.", min_length=1, max_length=99
    )
    quantile_mode: QuantileMode = parameter(
        "normal", "Quantiles of the sum: of a normal law with its moments, or by draws of both parts."
    )
    max_context: int = parameter(
        0,
        "Most rows of a context, beyond which a random part is taken; 0: 256 (pfn), 1000 (gp), 2000 (others).",
        ge=0,
        le=100_000,
    )
    n_estimators: int = by_preset(
        "Passes averaged in an answer; 0: 16 (pfn), 8 (tabpfn, tabicl).", smoke=4, sample=0, gpu=0, ge=0, le=1_000
    )
    problems: list[ProblemName] = by_preset(
        "Problems of the embedded sample.",
        smoke=["forrester", "currin"],
        sample=["forrester", "currin", "park91a", "borehole", "branin", "hd10", "diabetes"],
        gpu=["forrester", "currin", "park91a", "borehole", "branin", "hd10", "hd20", "hd50", "diabetes"],
        min_length=1,
    )
    n_low: int = by_preset("Cheap rows of a problem.", smoke=40, sample=120, gpu=1_000, ge=3, le=1_000_000)
    hf_budgets: list[Budget] = by_preset(
        "Numbers of costly rows to compare at.", smoke=[10], sample=[10, 40], gpu=[4, 8, 10, 20, 40, 50], min_length=1
    )
    n_test: int = by_preset("Test rows of a problem.", smoke=50, sample=100, gpu=500, ge=2, le=1_000_000)
    n_seeds: int = by_preset("Draws of each problem.", smoke=1, sample=3, gpu=5, ge=1, le=1_000)

    @model_validator(mode="after")
    def _fits_together(self) -> FireInputs:
        if found := [*problems(self)]:
            raise InputError(found)
        return self


class FireMetrics(Metrics):
    """FIRE's own scores: means over problems, budgets and seeds, or on a table's held-out rows."""

    error_ratio: float | None = metric(
        "FIRE's error / that of the same regressor on the costly rows alone; below 1 the cheap rows helped.",
        optional=True,
    )
    nrmse: float | None = metric("Root mean squared error / range of the test targets.", optional=True)
    nrmse_costly_alone: float | None = metric("The same without the cheap rows.", optional=True)
    r2: float | None = metric("Share of the test targets' variance explained.", optional=True)
    nll: float | None = metric("Negative log likelihood, targets in test standard deviations.", optional=True)
    nll_mean_only: float | None = metric("The same when the residual model is shown the mean alone.", optional=True)
    coverage_80: float | None = metric("Share of test rows within their 80% interval.", optional=True)
    rank_nrmse: float | None = metric("Mean rank in NRMSE among all methods, 1 for the best.", optional=True)
    rank_nll: float | None = metric("Mean rank in likelihood.", optional=True)
    fit_predict_seconds: float | None = metric("Seconds for context and predictions.", optional=True)
    nargp_time_ratio: float | None = metric("Seconds / those of NARGP.", optional=True)


class FireOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[FireMetrics] = output("Scalar results.")
    scores: InstanceOf[Table] = output("Every method's scores.")
    predictions: InstanceOf[Table] = output("Mean, variance and quantiles for each row asked about.")
    surrogate: InstanceOf[FittedModel] = output("The rows and settings, which predict again without fitting.")


def load(inputs: FireInputs, context: Context) -> tuple[UserData | None, Path | None]:
    """The user's checked tables (None for the embedded sample) and checkpoint."""
    checkpoint = _checkpoint(inputs, context)
    if inputs.table is None:
        return None, checkpoint
    from kfp_methods.components.tabular.fire import user_data

    return user_data.load(inputs, context), checkpoint


def _checkpoint(inputs: FireInputs, context: Context) -> Path | None:
    if inputs.tfm_checkpoint is None:
        return None
    from kfp_methods.components.tabular.fire import foundation

    path = context.fetch(inputs.tfm_checkpoint)
    try:
        foundation.check(inputs.backend, path)
    except foundation.UnusableCheckpointError as error:
        raise InputError(Problem(inputs.tfm_checkpoint.field, str(path), error.problem, error.remedy)) from None
    return path


def run(inputs: FireInputs, data: tuple[UserData | None, Path | None], context: Context) -> FireOutputs:
    """Compares all methods, or predicts."""
    from kfp_methods.components.tabular.fire import outputs, running

    table, checkpoint = data
    if table is not None and inputs.mode != "benchmark":
        return outputs.predicted(inputs, table, running.predict(inputs, table, checkpoint, context), checkpoint)
    return outputs.benchmarked(inputs, table, running.benchmark(inputs, table, checkpoint, context), checkpoint)


def load_model(folder: Path) -> FittedModel:
    """What `MultiFidelityModel.save` wrote."""
    from kfp_methods.components.tabular.fire.model import MultiFidelityModel

    return MultiFidelityModel.load(folder)


METHOD = Method("fire", FireInputs, FireOutputs, load, run, CLAIMS, load_model)
