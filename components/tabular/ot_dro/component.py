"""OT-DRO: a portfolio or regression that stays good under sampling error, with an ambiguity set shaped for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.ot_dro.choices import Gradient, InputKind, Problem, SamplePart, UpperObjective
from kfp_methods.components.tabular.ot_dro.claims import CLAIMS
from kfp_methods.components.tabular.ot_dro.combinations import problems
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
    from kfp_methods.components.tabular.ot_dro.user_data import UserData
    from kfp_methods.context import Context

Bootstraps = Annotated[int, Field(ge=2, le=500)]
Rows = Annotated[int, Field(ge=10, le=2_000)]


class OtDroInputs(ModelInputs):
    """Which decision is made on which table, and how the set around it is learned."""

    data: Dataset | None = artifact(
        "Returns or prices (CSV, Parquet; one column for each asset, optionally a date), or a regression table."
    )
    test_data: Dataset | None = artifact("Rows with the same columns to test on; by default, the last of data.")
    problem: Problem = parameter(
        "po_mean",
        "po_mean: portfolio by worst expected return; po_cvar: by worst mean of the worst share beta; reg_abs, reg_sq: "
        "linear regression by worst absolute or squared error.",
    )
    input_kind: InputKind = parameter(
        "auto", "What a portfolio's columns hold; prices become simple returns. auto: returns, or a regression table."
    )
    target_column: str = parameter("y", "Column that a regression predicts.", min_length=1, max_length=500)
    date_column: str = parameter("date", "Column of dates, if there is one: rows are put in its order.", max_length=500)
    intercept: bool = parameter(True, "Centre a regression's columns by their means, which are taken as known.")
    return_horizon: int = parameter(1, "Rows that are summed to one return, without overlap.", ge=1, le=10_000)
    test_fraction: float = parameter(0.5, "Share of the rows, the last ones, to test on; 0: none.", ge=0, le=0.9)
    wasserstein_p: int | None = parameter(
        None, "Order of the distance: 1 or 2; by default 2 for po_cvar and reg_sq (which need it), else 1.", ge=1, le=2
    )
    gamma: float = parameter(0.1, "Share of bootstraps that may lie outside the set.", gt=0, lt=1)
    beta: float = parameter(0.05, "Tail share of po_cvar.", gt=0, lt=1)
    n_bootstrap: int = parameter(50, "Bootstraps B that the set is learned on.", ge=2, le=500)
    lambda_pen: float = parameter(10.0, "Weight of the penalty on coverage.", gt=0, le=1e6)
    eta: float = parameter(100.0, "Steepness of the smoothed count of bootstraps outside.", gt=0, le=1e6)
    lr: float = parameter(0.01, "Step of Adam.", gt=0, le=1)
    max_iter: int = by_preset("Steps at most.", smoke=20, sample=200, gpu=1_000, ge=0, le=1_000_000)
    tol: float = parameter(1e-6, "Stop when 20 steps improve the objective by less than this share.", ge=0, le=1)
    gradient: Gradient = parameter(
        "envelope",
        "How the certificate is differentiated; conic: through the cone program's solution, slower, the same.",
    )
    upper_objective: UpperObjective = parameter(
        "certificate", "What the set is learned for; validation_loss: the loss on the last 30% of the rows to fit."
    )
    standardise: bool = parameter(True, "Learn in units of each column's standard deviation.")
    max_weight: float = parameter(1.0, "Largest weight of an asset.", gt=0, le=1)
    short_allowed: bool = parameter(False, "Let weights be negative, down to -max_weight.")
    sample_parts: list[SamplePart] = by_preset(
        "Parts of the embedded sample.",
        smoke=["discrete"],
        sample=["discrete", "stocks", "regression"],
        gpu=["discrete", "stocks", "regression"],
        min_length=1,
    )
    n_seeds: int = by_preset("Draws of the discrete law.", smoke=2, sample=10, gpu=20, ge=1, le=1_000)
    n_years: int = by_preset("Years of stocks, the last ones.", smoke=1, sample=12, gpu=12, ge=1, le=12)
    sample_sizes: list[Rows] = by_preset(
        "Rows of each draw of the discrete law.", smoke=[50], sample=[50], gpu=[20, 50, 100, 250], min_length=1
    )
    sample_bootstraps: list[Bootstraps] = by_preset(
        "Numbers of bootstraps on the discrete law.", smoke=[10], sample=[10, 50], gpu=[10, 50, 100], min_length=1
    )

    @model_validator(mode="after")
    def _fits_together(self) -> OtDroInputs:
        if found := [*problems(self)]:
            raise InputError(found)
        return self


class OtDroMetrics(Metrics):
    """Of the user's table; of the sample, of its last year of stocks. Certificates and losses: lower is better."""

    certificate: float = metric("Worst case over the learned set.")
    certificate_calibrated: float = metric("The same where exactly gamma of the bootstraps lie outside.")
    certificate_round: float = metric("Worst case over the round ball of the same radius.")
    certificate_mahalanobis: float = metric(
        "Worst case over the Mahalanobis ball that as many bootstraps lie outside of."
    )
    certificate_saa: float = metric("Loss on its own rows of the decision that knows no ball.")
    oos_loss: float | None = metric("Loss on the test rows of the learned set's decision.", optional=True)
    oos_loss_round: float | None = metric("The same of the round ball's.", optional=True)
    oos_loss_saa: float | None = metric("The same of the decision that knows no ball.", optional=True)
    violation_share: float = metric("Share of bootstraps outside the learned set.")
    fresh_violation_share: float = metric("The same of bootstraps that it was not learned on.")
    radius: float = metric("Radius of all balls, in the distance's units.")
    iterations: float = metric("Steps of learning.")
    condition_number: float = metric("Of the learned metric L, in the columns' units.")
    seconds_per_iteration_ratio: float = metric("Seconds of a step of learning / of one solution with the round ball.")


class OtDroOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[OtDroMetrics] = output("Scalar results.")
    decisions: InstanceOf[Table] = output("Each set's certificate and loss on the test rows.")
    weights: InstanceOf[Table] = output("What each decides: weights of assets, or coefficients.")
    transport: InstanceOf[Table] = output("The learned metric L, named; the model holds it as L.npy.")
    history: InstanceOf[Table] = output(
        "Certificate, penalised objective and share outside, by step.", format="parquet"
    )
    runs: InstanceOf[Table] = output("The sample's draws, years and regressions.")
    decision: InstanceOf[FittedModel] = output("The learned set's decision: predicts returns, or the target.")


def load(inputs: OtDroInputs, context: Context) -> UserData | None:
    """The user's checked table; None for the embedded sample."""
    if inputs.data is None:
        return None
    from kfp_methods.components.tabular.ot_dro import user_data

    return user_data.load(inputs, context)


def run(inputs: OtDroInputs, data: UserData | None, context: Context) -> OtDroOutputs:
    """Learns the set on the user's table, or tries it on the sample."""
    from kfp_methods.components.tabular.ot_dro import outputs, running

    found = running.on_sample(inputs, context) if data is None else running.on_users(inputs, data, context)
    return outputs.outputs(inputs, found)


def load_model(folder: Path) -> FittedModel:
    """What `LinearDecision.save` wrote."""
    from kfp_methods.components.tabular.ot_dro.model import LinearDecision

    return LinearDecision.load(folder)


METHOD = Method("ot_dro", OtDroInputs, OtDroOutputs, load, run, CLAIMS, load_model)
