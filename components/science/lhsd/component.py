"""Local Hessian spectral dimension: how many directions a diffusion model leaves free at each data point."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.science.lhsd.choices import BandWidth, BaselineName, GapRule, Law, ModelKind, SamplePart
from kfp_methods.components.science.lhsd.claims import CLAIMS
from kfp_methods.components.science.score_choices import EMPIRICAL_SIGMAS, TRAINED_SIGMAS, Prediction
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
    from kfp_methods.components.science.lhsd.user_data import UserData
    from kfp_methods.context import Context

_FILE = "NPZ with x (n, features…), or a table of numeric columns (Parquet, CSV)"
_KNOWN = "and, to measure with, lid_true (n) and is_memorised (n)"


class LhsdInputs(ModelInputs):
    """Whose points are scored, by which score model, and how."""

    data: Dataset | None = artifact(f"Points that the score model is trained on, 50 or more: {_FILE}; {_KNOWN}.")
    points: Dataset | None = artifact(f"Points to score: {_FILE}; {_KNOWN}. By default, n_points of data.")
    model: Model | None = artifact(
        "A score model instead of training one: a folder in this method's own format, or of diffusers' UNet2DModel."
    )
    model_kind: ModelKind = parameter(
        "train",
        "train: a small network on data; empirical: the exact score of data, which memorised all of it; edm_mlp: model "
        "is in this method's own format; diffusers: model is a UNet2DModel with its scheduler_config.json.",
    )
    prediction: Literal["auto"] | Prediction = parameter(
        "auto", "What a diffusers model's output stands for; auto: as its scheduler_config.json says."
    )
    sigma: float | Literal["auto"] = parameter(
        "auto", "Noise level, in standard deviations of the data (diffusers: sqrt(1 - abar)); auto: the spectrum tells."
    )
    cutoff_c: float = parameter(0.2, "Eigenvalues below cutoff_c / sigma^2 count as tangent directions.", gt=0, lt=1)
    hill_p: float = parameter(4.0, "Steepness of the filter.", ge=1, le=64)
    delta: float = parameter(
        0.2, "Half width of the band around the cut in which no eigenvalue should lie.", gt=0, lt=1
    )
    band: BandWidth = parameter(
        "relative", "relative: delta is a share of the cut; absolute: of eigenvalues, as in the paper."
    )
    lanczos_steps: int = parameter(5, "Lanczos steps m; at most the number of features.", ge=1, le=1_000)
    probes: int = by_preset("Random probes K for each point.", smoke=8, sample=32, gpu=32, ge=2, le=100_000)
    symmetrise: bool = parameter(True, "Use (J + J^T)/2 of the score's Jacobian; false: J^T alone, as in the paper.")
    n_noise: int = parameter(
        0, "Average over so many noised copies of each point; 0: the point itself.", ge=0, le=1_000
    )
    search_levels: int = by_preset("Noise levels tried for sigma=auto.", smoke=6, sample=12, gpu=12, ge=2, le=200)
    baselines: list[BaselineName] = by_preset(
        "Other estimates of the same points.",
        smoke=["flipd", "nb"],
        sample=["flipd", "nb", "mle", "twonn", "lpca"],
        gpu=["flipd", "nb", "mle", "twonn", "lpca"],
        max_length=6,
    )
    nb_points: int = by_preset(
        "First so many points that get the normal-bundle estimate, which costs most.", smoke=6, sample=30, gpu=9, ge=1
    )
    nb_gap: GapRule = parameter("difference", "Where the normal-bundle method sees the gap between singular values.")
    n_points: int = by_preset(
        "Points scored when points is not given.", smoke=12, sample=90, gpu=900, ge=2, le=1_000_000
    )
    train_steps: int = by_preset(
        "Training steps of the score model.", smoke=100, sample=1_200, gpu=20_000, ge=1, le=10_000_000
    )
    batch_size: int = parameter(128, "Points in a training step.", ge=1, le=1_000_000)
    learning_rate: float = parameter(1e-3, "Adam's initial rate; falls to 0 along a cosine.", gt=0, le=1)
    network: Literal["auto", "mlp", "unet"] = parameter(
        "auto", "Network that is trained; auto: a U-Net for images of 28 pixels or more on a GPU, else an MLP."
    )
    width: int = by_preset("Width of the MLP's layers.", smoke=64, sample=256, gpu=2_048, ge=1, le=65_536)
    channels: int = parameter(64, "Channels of the U-Net at full resolution.", ge=1, le=4_096)
    blocks: int = parameter(3, "Residual blocks of the MLP, or resolutions of the U-Net.", ge=1, le=64)
    n_seeds: int = by_preset("Repetitions on the embedded sample.", smoke=2, sample=3, gpu=3, ge=1, le=1_000)
    sample_parts: list[SamplePart] = by_preset(
        "Parts of the embedded sample.",
        smoke=["manifolds_64", "digits"],
        sample=["manifolds_64", "digits"],
        gpu=["manifolds_1024", "manifolds_3072", "fashion_mnist"],
        min_length=1,
    )
    sample_size: int = by_preset(
        "Points of each mixture of the sample.", smoke=600, sample=6_000, gpu=20_000, ge=90, le=1_000_000
    )
    sample_law: Law = parameter(
        "gaussian", "Law of the sample's points: gaussian or laplace on d-planes, or nonlinear: bent ones."
    )
    cost_dimensions: list[Annotated[int, Field(ge=64, le=16_384)]] = by_preset(
        "Rising dimensions at which the costs of the estimates are timed on the sample.",
        smoke=[],
        sample=[64, 128, 256],
        gpu=[256, 512, 1_024],
        max_length=10,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> LhsdInputs:
        if problems := [*self._model_problems(), *self._choice_problems()]:
            raise InputError(problems)
        return self

    def _model_problems(self) -> list[Problem]:
        own = self.model_kind in ("edm_mlp", "diffusers")
        problems = []
        if own and self.model is None:
            remedy = "Give the model's folder, or model_kind=train"
            problems.append(Problem("model_uri", None, f"model_kind={self.model_kind} needs it", remedy))
        if self.model is not None and not own:
            remedy = "Give model_kind=edm_mlp or model_kind=diffusers"
            problems.append(
                Problem("model_kind", self.model_kind, "a model is given, which this would not use", remedy)
            )
        if own and self.points is None and self.data is None:
            problems.append(Problem("points_uri", None, "is missing", "Give the points to score"))
        if not own and self.points is not None and self.data is None:
            problems.append(Problem("data_uri", None, "is missing", "Give the points that the model is to learn"))
        if self.prediction != "auto" and self.model_kind != "diffusers":
            remedy = "Leave it out: what the other kinds predict is known"
            problems.append(Problem("prediction", self.prediction, "is for model_kind=diffusers", remedy))
        return problems

    def _choice_problems(self) -> list[Problem]:
        problems = []
        # A model of the user's has noise levels of its own, which `load` knows.
        own = {"train": TRAINED_SIGMAS, "empirical": EMPIRICAL_SIGMAS}.get(self.model_kind, (0.0, float("inf")))
        if isinstance(self.sigma, float) and not (self.sigma > 0 and own[0] <= self.sigma <= own[1]):
            problem = "is outside the noise levels that the score model knows" if self.sigma > 0 else "is not positive"
            remedy = f"Give {own[0]:g} to {own[1]:g}, or auto" if own[0] else "Give more than 0, or auto"
            problems.append(Problem("sigma", self.sigma, problem, remedy))
        if sorted(set(self.cost_dimensions)) != self.cost_dimensions:
            problems.append(
                Problem("cost_dimensions", self.cost_dimensions, "do not rise", "Give them in rising order")
            )
        return problems


class LhsdMetrics(Metrics):
    """Means over the seeds of the sample; None where the truth is unknown or a method was left out."""

    mae_lhsd: float | None = metric("Mean absolute error of LHSD.", optional=True)
    mae_lhsd_exact: float | None = metric(
        "The same from all eigenvalues instead of probes (up to 256 features).", optional=True
    )
    mae_noise_floor: float | None = metric(
        "Mean absolute error that the probes' randomness alone causes, by the formula for a projector.", optional=True
    )
    mae_flipd: float | None = metric("Mean absolute error of FLIPD.", optional=True)
    mae_nb: float | None = metric(
        "Mean absolute error of the normal-bundle method, on the points it scored.", optional=True
    )
    mae_lhsd_best_level: float | None = metric(
        "Mean absolute error of LHSD at the best noise level of the search, which only the truth tells; first seed.",
        optional=True,
    )
    mae_flipd_best_level: float | None = metric("The same for FLIPD.", optional=True)
    mae_nb_best_level: float | None = metric(
        "The same for the normal-bundle method, by the better rule.", optional=True
    )
    mae_mle: float | None = metric("Mean absolute error of the MLE from 20 neighbours.", optional=True)
    mae_twonn: float | None = metric("Mean absolute error of TwoNN on 100 neighbours.", optional=True)
    mae_lpca: float | None = metric("Mean absolute error of local PCA on 100 neighbours.", optional=True)
    mae_ess: float | None = metric("Mean absolute error of ESS on 100 neighbours.", optional=True)
    auroc_memorised: float | None = metric("How well low LHSD tells memorised points from others.", optional=True)
    auroc_memorised_flipd: float | None = metric("The same for FLIPD.", optional=True)
    median_lid: float = metric("Median LHSD of the points of the first part.")
    sigma_used: float = metric("Noise level, in the score model's units (standard deviations of the data).")
    sigma_used_raw: float = metric("The same in the units of the points.")
    transition_mass: float = metric(
        "Share of the eigenvalues in the band around the cut, as the search saw it; small is good."
    )
    no_spectral_gap: int | None = metric(
        "1 when no noise level was found at which the cut lies in a gap; not said when sigma was given.", optional=True
    )
    asymmetry: float = metric("|J - J^T| / |J + J^T| of the score's Jacobian; 0 for an exact gradient.")
    mean_stderr: float = metric("Mean standard error of LHSD over probes, or over noised copies.")
    hvp_per_point: int = metric("Derivative products for each point.")
    lhsd_point_seconds: float = metric("Seconds of LHSD for a point.")
    flipd_point_seconds: float | None = metric("Seconds of FLIPD for a point.", optional=True)
    nb_point_seconds: float | None = metric("Seconds of the normal-bundle method for a point.", optional=True)


class LhsdOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[LhsdMetrics] = output("Means over the seeds.")
    lid: InstanceOf[Table] = output(
        "Each scored point: LHSD with its standard error, the other estimates, its rank from the lowest.",
        format="parquet",
    )
    dimension_model: InstanceOf[FittedModel] = output("The score model, which gives further points their dimension.")


def load(inputs: LhsdInputs, context: Context) -> UserData | None:
    """The user's files, checked; None for the embedded sample."""
    from kfp_methods.components.science.lhsd import sample, user_data

    if inputs.uses_sample:
        sample.check_files(inputs.sample_parts)
        return None

    return user_data.load(inputs, context)


def run(inputs: LhsdInputs, data: UserData | None, context: Context) -> LhsdOutputs:
    """Trains or takes a score model and counts the flat directions of its log-density at each point."""
    from kfp_methods.components.science.lhsd import running
    from kfp_methods.components.science.lhsd.outputs import outputs

    found = running.sample(inputs, context) if data is None else running.user(inputs, data, context)
    return outputs(inputs, found, data, context)


def load_model(folder: Path) -> FittedModel:
    """What `DimensionModel.save` wrote."""
    from kfp_methods.components.science.lhsd.model import DimensionModel

    return DimensionModel.load(folder)


METHOD = Method("lhsd", LhsdInputs, LhsdOutputs, load, run, CLAIMS, load_model)
