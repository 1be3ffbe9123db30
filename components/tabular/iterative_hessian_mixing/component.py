"""Iterative Hessian mixing: least squares whose coefficients may be published, with an (epsilon, delta) guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.iterative_hessian_mixing.choices import (
    METHODS,
    AdaSSPVariant,
    MethodName,
    SamplePart,
    SketchMode,
)
from kfp_methods.components.tabular.iterative_hessian_mixing.claims import CLAIMS
from kfp_methods.components.tabular.iterative_hessian_mixing.combinations import problems
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
from kfp_methods.errors import InputError
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.iterative_hessian_mixing.user_data import UserData
    from kfp_methods.context import Context

_TABLE = "a table (CSV, Parquet) of numeric columns, one row for each person"
Range = Annotated[list[float], Field(min_length=2, max_length=2)]
Budget = Annotated[float, Field(gt=0, le=1e6)]


class IterativeHessianMixingInputs(ModelInputs):
    """Which table is fitted, under which budget, and whether the result is to be published."""

    data: Dataset | None = artifact(f"Rows to fit, 50 or more: {_TABLE}.")
    test_data: Dataset | None = artifact("Rows with the same columns to test on; by default, a fifth of data.")
    target: str = parameter("", "Column to predict; empty: the last one.", max_length=500)
    person: str = parameter(
        "", "Column that names the person of a row: not fitted, only looked at for repeats.", max_length=500
    )
    feature_bounds: dict[str, Range] = parameter(
        {}, "Public bounds of every feature, known without the data: {column: [low, high]}.", max_length=10_000
    )
    target_bounds: list[float] = parameter([], "Public bounds [low, high] of the target.", max_length=2)
    row_clip: float | Literal["off"] = parameter(
        "off", "Public radius that rows, scaled by their bounds, are divided by and clipped to; off: sqrt(columns)."
    )
    data_dependent_scaling: bool = parameter(
        False, "Instead of bounds, scale by the data as the paper's experiments do: what comes out is not private."
    )
    fit_intercept: bool = parameter(True, "Add a constant column where bounds are given.")
    epsilon: list[Budget] = parameter(
        [0.1, 0.25119, 0.63096, 1.58489, 3.98107, 10.0],
        "Total budgets to compare; one to release.",
        min_length=1,
        max_length=50,
    )
    delta: float | Literal["1/n^2"] = parameter("1/n^2", "Total delta, above 0 and below 0.1; n counts fitted rows.")
    iterations: int = parameter(3, "Newton steps T.", ge=1, le=20)
    sketch_factor: float = parameter(6.0, "Rows of a sketch for each column, at least.", ge=1.5, le=1_000)
    sketch: SketchMode = parameter(
        "covariance",
        "covariance: draw a sketch from its exact law, which needs X'X only; explicit: multiply the rows by noise.",
    )
    strict: bool = parameter(
        True, "Count every Gaussian release exactly; false: by the paper's code, valid for small budgets only."
    )
    methods: list[MethodName] = parameter(list(METHODS), "Mechanisms to compare; ihm and ols always are.", max_length=6)
    adassp_variant: AdaSSPVariant = parameter(
        "official", "How AdaSSP lowers its eigenvalue: as the paper's code or as its author (wang)."
    )
    wanted_share: float = parameter(
        0.5, "Share of least squares' R2 on the test part that 9 of 10 releases must keep to be worth one.", gt=0, lt=1
    )
    n_noise_seeds: int = by_preset(
        "Simulated releases for each budget and mechanism.", smoke=20, sample=200, gpu=50, ge=1, le=100_000
    )
    audit_trials: int = by_preset(
        "Simulated releases on each of two neighbouring data sets, with which an attack tests the promise; 0: none.",
        smoke=1_000,
        sample=20_000,
        gpu=100_000,
        ge=0,
        le=10_000_000,
    )
    release: bool = parameter(
        False, "Make one release with secure randomness from all rows, and write nothing that it does not cover."
    )
    sample_parts: list[SamplePart] = by_preset(
        "Parts of the embedded sample.",
        smoke=["boston"],
        sample=["boston", "diabetes", "diamonds", "dimensions"],
        gpu=["boston", "diabetes", "diamonds", "dimensions", "large"],
        min_length=1,
    )
    large_rows: int = parameter(2_000_000, "Rows of the sample's part large.", ge=1_000, le=100_000_000)
    large_columns: int = parameter(200, "Columns of the sample's part large.", ge=1, le=10_000)

    @model_validator(mode="after")
    def _fits_together(self) -> IterativeHessianMixingInputs:
        if found := [*problems(self)]:
            raise InputError(found)
        return self


class IterativeHessianMixingMetrics(Metrics):
    """At `epsilon_reported`, of the first data set; what is measured on data is None for a release."""

    epsilon_recommended: float | None = metric(
        "Smallest budget at which 9 of 10 releases keep the wanted share; None: none of those tried.", optional=True
    )
    epsilon_reported: float = metric("The recommended budget, else the largest: what the other metrics are at.")
    delta: float = metric("The delta beside it.")
    gamma: float = metric("Least eigenvalue that the sketched matrix must have.")
    eta: float = metric("Standard deviation of the noise on the least eigenvalue.")
    sigma_grad: float = metric("Standard deviation of the noise on each gradient.")
    k: int = metric("Rows of a sketch.")
    excess_ratio_adassp_ihm: float | None = metric(
        "Training error above least squares', AdaSSP's / that of iterative Hessian mixing.", optional=True
    )
    train_mse_ihm: float | None = metric("Mean squared training error, scaled, mean over releases.", optional=True)
    train_mse_ols: float | None = metric("The same of least squares.", optional=True)
    rmse_ihm: float | None = metric(
        "Root mean squared test error in the target's units, median over releases.", optional=True
    )
    rmse_ols: float | None = metric("The same of least squares.", optional=True)
    r2_ihm: float | None = metric("Share of the test part's variance explained, median over releases.", optional=True)
    r2_ihm_p10: float | None = metric("The same that 9 of 10 releases exceed.", optional=True)
    r2_ols: float | None = metric("The same of least squares.", optional=True)
    audit_epsilon: float | None = metric(
        "Lower bound on epsilon (95% confidence) that the strongest attack proves; above the promise is a leak.",
        optional=True,
    )
    explicit_covariance_time_ratio: float | None = metric(
        "Seconds of releases with explicit sketches / with sketches drawn from their law.", optional=True
    )
    ihm_adassp_time_ratio: float | None = metric("Seconds of releases / of AdaSSP's.", optional=True)


class IterativeHessianMixingOutputs(Outputs):
    """What a run leaves. Only that of a run with release=true may be published."""

    metrics: InstanceOf[IterativeHessianMixingMetrics] = output("At one budget, of the first data set.")
    results: InstanceOf[Table] = output("Each data set, mechanism and budget: errors with their intervals.")
    privacy_report: str = output(
        "The privacy statement, Markdown: every mechanism, its share, its noise; also beside the coefficients."
    )
    coefficients: InstanceOf[FittedModel] = output("The fitted coefficients in the table's units.")


def load(inputs: IterativeHessianMixingInputs, context: Context) -> UserData | None:
    """The user's tables, checked and with their scaling; None for the embedded sample."""
    if inputs.uses_sample:
        return None
    from kfp_methods.components.tabular.iterative_hessian_mixing import user_data

    return user_data.load(inputs, context)


def run(inputs: IterativeHessianMixingInputs, data: UserData | None, context: Context) -> IterativeHessianMixingOutputs:
    """Compares what each budget buys, or makes one release."""
    from kfp_methods.components.tabular.iterative_hessian_mixing import outputs, running

    if inputs.release:
        assert data is not None  # noqa: S101 (the contract requires it)
        return outputs.released(inputs, data, running.release(inputs, data))
    return outputs.compared(inputs, running.compare(inputs, data, context), context)


def load_model(folder: Path) -> FittedModel:
    """What `Coefficients.save` wrote."""
    from kfp_methods.components.tabular.iterative_hessian_mixing.model import Coefficients

    return Coefficients.load(folder)


METHOD = Method(
    "iterative_hessian_mixing",
    IterativeHessianMixingInputs,
    IterativeHessianMixingOutputs,
    load,
    run,
    CLAIMS,
    load_model,
)
