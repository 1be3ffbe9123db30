"""Bayesian membership inference: one reference model, turned into many by a Laplace posterior, audits a classifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import InstanceOf, model_validator

from kfp_methods.components.tabular.bmia.choices import (
    ATTACKS,
    Architecture,
    AttackName,
    DecisionRule,
    HessianName,
    ScoreName,
)
from kfp_methods.components.tabular.bmia.claims import CLAIMS
from kfp_methods.components.tabular.bmia.combinations import problems, remarks
from kfp_methods.contract import (
    Dataset,
    FittedModel,
    Method,
    Metrics,
    Model,
    ModelInputs,
    Outputs,
    RocCurve,
    artifact,
    by_preset,
    metric,
    output,
    parameter,
)
from kfp_methods.errors import InputError
from kfp_methods.report import Table

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.user_data import UserData
    from kfp_methods.context import Context

_RECORDS = "NPZ with x (n, features…), y (n)"
_TABLE = "or a table with the column label and numeric feature columns"


class BmiaInputs(ModelInputs):
    """What is audited, with which references, and how."""

    audit: Dataset | None = artifact(f"Records to audit: {_RECORDS} and, to measure the attacks, member (n); {_TABLE}.")
    reference: Dataset | None = artifact(
        f"Records of the population that the target was not trained on, 10 of each class or more: {_RECORDS}; {_TABLE}."
    )
    target: Model | None = artifact(
        "The audited model: ONNX whose first matrix output is logits or probabilities, or safetensors of target_arch."
    )
    target_logits: Dataset | None = artifact(
        "Instead of target: NPZ with its logits (n, classes) on the audit records, in their order."
    )
    validation: Dataset | None = artifact(
        f"Known non-members that calibrate the decision: {_RECORDS}; {_TABLE}. "
        "By default, a fifth of reference for a target that can be run on it."
    )
    validation_logits: Dataset | None = artifact(
        "With target_logits: NPZ with the target's logits on the validation records."
    )
    target_arch: Architecture = parameter("mlp", "Architecture of a target given as safetensors.")
    arch: Architecture = by_preset("Architecture of the references.", smoke="mlp", sample="mlp", gpu="resnet18")
    hidden: list[int] = parameter([256, 256], "Widths of an mlp's hidden layers.", min_length=1, max_length=8)
    epochs: int = by_preset("Passes over a reference's training data.", smoke=8, sample=30, gpu=30, ge=1, le=10_000)
    lr: float = parameter(0.05, "Initial learning rate of SGD; falls to 0 along a cosine.", gt=0)
    weight_decay: float = parameter(5e-4, "Weight decay of SGD.", ge=0)
    batch_size: int = parameter(128, "Records in a step of SGD.", ge=1)
    standardise: bool = parameter(True, "Scale each input of the user's records to mean 0 and sd 1 for the references.")
    n_references: int = by_preset(
        "Reference models K; BMIA with one is always reported beside BMIA with all.",
        smoke=2,
        sample=4,
        gpu=8,
        ge=1,
        le=64,
    )
    n_samples: int = by_preset("Posterior samples M of each reference.", smoke=10, sample=50, gpu=100, ge=1, le=10_000)
    hessian: HessianName = parameter("kron", "Structure of the posterior's Hessian.")
    prior_precision: float | Literal["marglik"] = parameter(
        "marglik", "Prior precision; marglik: of greatest evidence."
    )
    score: ScoreName = parameter("hinge", "Membership score of the logits.")
    decision_rule: DecisionRule = parameter(
        "calibrated",
        "calibrated: members exceed a threshold set on known non-members, and nothing is decided without such; "
        "t: the paper's p < alpha.",
    )
    alpha: float = parameter(0.01, "Intended share of non-members that are flagged.", gt=0, lt=1)
    fprs: list[float] = parameter(
        [0.001, 0.01, 0.1], "False-positive rates that are reported.", min_length=1, max_length=20
    )
    attacks: list[AttackName] = parameter(list(ATTACKS), "Attacks to run.", min_length=1)
    n_seeds: int = by_preset(
        "Targets trained on the embedded sample, one a seed.", smoke=2, sample=5, gpu=5, ge=1, le=1_000
    )
    sample_size: int = by_preset(
        "Records of the embedded sample.", smoke=1_000, sample=6_000, gpu=70_000, ge=500, le=70_000
    )

    @model_validator(mode="after")
    def _fits_together(self) -> BmiaInputs:
        if found := [*problems(self)]:
            raise InputError(found)
        return self


class BmiaMetrics(Metrics):
    """Means over the audited targets; None where membership is unknown or there are too few records."""

    auc_bmia: float | None = metric("AUC of BMIA with one reference.", optional=True)
    tpr_at_1pct_bmia: float | None = metric("TPR at 1% FPR of BMIA with one reference.", optional=True)
    auc_mr_bmia: float | None = metric("AUC of BMIA with all references.", optional=True)
    tpr_at_1pct_mr_bmia: float | None = metric("TPR at 1% FPR of BMIA with all references.", optional=True)
    tpr_gain_vs_lira1: float | None = metric(
        "TPR at 1% FPR of BMIA minus LiRA's (fixed), one reference each.", optional=True
    )
    intra_var: float = metric(
        "Median over records of the score's variance within a reference (same data, other weights)."
    )
    inter_var: float | None = metric("Median variance between references (other data); None with one.", optional=True)
    type1_at_alpha: float | None = metric(
        "Share of the audited non-members with p < alpha (all references).", optional=True
    )
    type1_calibrated: float | None = metric(
        "Share of the audited non-members above the calibrated threshold.", optional=True
    )
    scale_ratio: float | None = metric(
        "Median |target score| / median |reference score| on validation records.", optional=True
    )
    prior_precision: float = metric("Prior precision of the references, geometric mean.")
    flagged: int | None = metric(
        "Records decided to be members, in the first audited target; None where nothing is decided.", optional=True
    )
    target_train_accuracy: float | None = metric("Accuracy of the sample's targets on their members.", optional=True)
    target_test_accuracy: float | None = metric("Accuracy of the sample's targets on the non-members.", optional=True)
    bmia_time_ratio: float | None = metric(
        "Seconds of BMIA with one reference / seconds of LiRA with all, training included.", optional=True
    )


class BmiaOutputs(Outputs):
    """What an audit leaves."""

    metrics: InstanceOf[BmiaMetrics] = output("Means over the audited targets.")
    membership: InstanceOf[Table] = output(
        "Each record of the (first) audit: t, p-value, decision, scores; largest t first."
    )
    attack_results: InstanceOf[Table] = output(
        "Each attack: AUC and TPR at each FPR with their intervals, seconds, references."
    )
    roc: InstanceOf[RocCurve] = output("ROC of BMIA with all references; empty when membership is unknown.")
    model: InstanceOf[FittedModel] = output("The fitted attack, which scores further records of the same target.")


def load(inputs: BmiaInputs, context: Context) -> UserData | None:
    """The user's files, checked; None for the embedded sample."""
    from kfp_methods.components.tabular.bmia import feasible, user_data

    for remark in remarks(inputs):
        context.warn(remark)
    if inputs.uses_sample:
        feasible.check_sample(inputs)
        return None
    return user_data.load(inputs, context)


def run(inputs: BmiaInputs, data: UserData | None, context: Context) -> BmiaOutputs:
    """Audits the user's target, or targets trained on the embedded sample."""
    from kfp_methods.components.tabular.bmia import running
    from kfp_methods.components.tabular.bmia.outputs import outputs

    audits = running.sample(inputs, context) if data is None else [running.user(inputs, data, context)]
    return outputs(inputs, audits, context)


def load_model(folder: Path) -> FittedModel:
    """The attack that `MembershipAttack.save` wrote."""
    from kfp_methods.components.tabular.bmia.model import MembershipAttack

    return MembershipAttack.load(folder)


METHOD = Method("bmia", BmiaInputs, BmiaOutputs, load, run, CLAIMS, load_model)
