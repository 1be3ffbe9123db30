"""The method as a user runs it: combinations of inputs, and what a run then says and leaves out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaOutputs, load, load_model, run
from kfp_methods.context import Context
from kfp_methods.errors import InputError

Execute = Callable[..., BmiaOutputs]
NO_VALIDATION = {"validation_uri": "", "validation_logits_uri": ""}


def problems(**parameters: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        BmiaInputs.parse(parameters)
    return [problem.field for problem in caught.value.problems]


def test_every_problem_of_the_inputs_is_named_at_once() -> None:
    assert problems(n_samples=1, n_references=1, fprs=[0.0], hidden=[0]) == ["n_samples", "fprs", "hidden"]
    assert problems(audit_uri="a.csv") == ["reference_uri", "target_uri"]
    assert problems(target_logits_uri="l.npz", validation_uri="v.npz") == [
        "audit_uri",
        "reference_uri",
        "validation_uri",
    ]
    files = {"audit_uri": "a", "reference_uri": "r", "target_uri": "t.onnx"}
    assert problems(**files, validation_logits_uri="v") == ["validation_logits_uri"]
    with pytest.raises(InputError, match="target_uri and target_logits_uri were both given"):
        BmiaInputs.parse(files | {"target_logits_uri": "l.npz"})
    assert problems(prior_precision=0.0) == ["prior_precision"]


def test_a_users_target_is_audited(execute_here: Execute, files: dict[str, Any], context: Context) -> None:
    found = execute_here(**files, epochs=10, n_references=3, n_samples=20)
    frame = found.membership.frame
    assert list(frame) == ["row", "t", "p_value", "decision", "s0", "mean_ref", "sd_ref", "label", "member"]
    assert frame["t"].is_monotonic_decreasing
    assert sorted(frame["row"]) == list(range(719))
    threshold = found.model.threshold  # type: ignore[attr-defined]
    assert (frame["decision"] == "member").tolist() == (frame["t"] > threshold).tolist()
    members = pd.read_csv(files["audit_uri"])["member"].astype(bool)
    assert frame["member"].tolist() == members[frame["row"]].tolist()
    assert found.metrics.flagged == (frame["decision"] == "member").sum()
    outsiders = frame[~frame["member"]]
    assert found.metrics.type1_at_alpha == pytest.approx((outsiders["p_value"] < 0.01).mean())
    assert found.metrics.type1_calibrated == pytest.approx((outsiders["t"] > threshold).mean())
    names = [getattr(part, "name", "") for part in found.report.parts]
    assert names == ["leaks", "roc", "samples", "p_values", "attacks", "exposed", ""]
    assert [table.name for table in found.report.highlights] == ["leaks"]
    assert found.roc.false_positive_rate[0] == 0
    assert found.roc.true_positive_rate[-1] == 1
    assert not context.warnings
    assert found.metrics.target_train_accuracy is None, "the target was not trained here"


def test_the_same_seed_gives_the_same_membership(execute_here: Execute, files: dict[str, Any]) -> None:
    first, second, other = (execute_here(**files, seed=seed).membership.frame for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert not first["mean_ref"].equals(other["mean_ref"])


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_samples": 1},
        {"n_references": 1},
        {"attacks": ["bmia"]},
        {"attacks": ["global_threshold", "rmia"]},
        {"fprs": [0.2]},
        {"score": "logit"},
        {"hessian": "full", "hidden": [16]},
        {"hessian": "diag", "prior_precision": 3.5},
        {"decision_rule": "t"},
        {"arch": "linear"},
    ],
    ids=str,
)
def test_every_choice_runs(execute_here: Execute, files: dict[str, Any], parameters: dict[str, Any]) -> None:
    found = execute_here(**files, **parameters)
    assert len(found.membership.frame) == 719
    ran = set(found.attack_results.frame["attack"])
    assert "TPR at 1% FPR" in found.attack_results.frame
    if "attacks" in parameters:
        assert all(title.startswith(("BMIA", "MR-BMIA", "Global", "RMIA")) for title in ran)
    if parameters == {"n_samples": 1}:
        assert found.metrics.auc_bmia is None
        assert found.metrics.auc_mr_bmia is not None
        assert found.metrics.intra_var == 0
    if parameters == {"n_references": 1}:
        assert found.metrics.inter_var is None
    if parameters.get("prior_precision"):
        assert found.metrics.prior_precision == pytest.approx(3.5)
    if parameters.get("decision_rule") == "t":
        frame = found.membership.frame
        assert (frame["decision"] == "member").tolist() == (frame["p_value"] < 0.01).tolist()


def test_an_alpha_that_validation_cannot_vouch_for_flags_nobody(
    execute_here: Execute, files: dict[str, Any], context: Context, tmp_path: Path
) -> None:
    found = execute_here(**files, alpha=1e-6)
    assert found.metrics.flagged == 0
    assert any("359 validation records cannot vouch for alpha=1e-06" in warning for warning in context.warnings)
    found.model.save(tmp_path)
    again = load_model(tmp_path)
    assert not again.predict(again.example())["member"].any()


def test_without_validation_nothing_is_decided_and_the_first_words_say_so(
    execute_here: Execute, files: dict[str, Any], context: Context, tmp_path: Path
) -> None:
    found = execute_here(**files | NO_VALIDATION)
    assert set(found.membership.frame["decision"]) == {"not decided"}
    assert found.metrics.flagged is None
    assert found.metrics.type1_calibrated is None
    assert found.metrics.scale_ratio is None
    assert found.metrics.type1_at_alpha is not None
    assert found.report.summary.startswith("Nobody is flagged: there are no validation records")
    expected = ["no validation records", "with 2 references", "LiRA (per-record variance)", "RMIA", "RMIA", "QMIA"]
    assert len(context.warnings) == len(expected)
    assert all(warning.startswith(words) for warning, words in zip(context.warnings, expected, strict=True))
    found.model.save(tmp_path)
    again = load_model(tmp_path)
    predicted = again.predict(again.example())
    assert predicted["member"].isna().all()
    assert predicted["t"].notna().all()


def test_without_validation_the_nominal_test_decides_if_it_was_asked_for(
    execute_here: Execute, files: dict[str, Any], context: Context
) -> None:
    found = execute_here(**files | NO_VALIDATION, decision_rule="t")
    frame = found.membership.frame
    assert (frame["decision"] == "member").tolist() == (frame["p_value"] < 0.01).tolist()
    assert "have p < 0.01" in found.report.summary
    assert not any("no validation records" in warning for warning in context.warnings)


@pytest.mark.parametrize("member", [None, 1, 0])
def test_without_known_membership_there_are_scores_and_decisions_only(
    execute_here: Execute, files: dict[str, Any], context: Context, tmp_path: Path, member: int | None
) -> None:
    audit = pd.read_csv(files["audit_uri"]).drop(columns="member")
    (audit if member is None else audit.assign(member=member)).to_csv(tmp_path / "audit.csv", index=False)
    found = execute_here(**files | {"audit_uri": str(tmp_path / "audit.csv")})
    assert "member" not in found.membership.frame
    assert found.metrics.auc_bmia is None
    assert found.metrics.type1_calibrated is None
    assert found.roc.threshold == ()
    assert {result.verdict for result in found.claims} == {Verdict.NOT_MEASURED}
    assert {result.note for result in found.claims} == {"It needs an audit set of known members and known non-members."}
    assert "known members and known non-members" in found.report.summary
    assert [table.name for table in found.report.highlights] == ["exposed"]
    assert found.attack_results.frame["AUC"].isna().all()
    words = "no member column" if member is None else "holds one value only"
    assert any(words in warning for warning in context.warnings)


def test_one_record_is_audited(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    pd.read_csv(files["audit_uri"]).head(1).to_csv(tmp_path / "one.csv", index=False)
    np.savez(tmp_path / "one.npz", logits=np.arange(10.0)[None])
    given = {"audit_uri": str(tmp_path / "one.csv"), "target_logits_uri": str(tmp_path / "one.npz")}
    found = execute_here(**files | given)
    assert len(found.membership.frame) == len(found.model.example()) == 1


def test_logits_on_another_temperature_are_noticed(
    execute_here: Execute, files: dict[str, Any], context: Context, tmp_path: Path
) -> None:
    for name in ("target_logits", "validation_logits"):
        np.savez(tmp_path / f"{name}.npz", logits=10 * np.load(files[f"{name}_uri"])["logits"])
        files = files | {f"{name}_uri": str(tmp_path / f"{name}.npz")}
    assert (execute_here(**files).metrics.scale_ratio or 0) > 2
    assert any("times the references': its logits are probably" in warning for warning in context.warnings)


def test_two_classes_are_enough(execute_here: Execute, files: dict[str, Any], tmp_path: Path) -> None:
    given = {}
    for name, reader in (("audit", pd.read_csv), ("reference", pd.read_parquet)):
        frame = reader(files[f"{name}_uri"])
        frame.assign(label=frame["label"] % 2).to_csv(tmp_path / f"{name}.csv", index=False)
        given[f"{name}_uri"] = str(tmp_path / f"{name}.csv")
    np.savez(tmp_path / "two.npz", logits=np.random.default_rng(0).normal(size=(719, 2)))
    given |= {"target_logits_uri": str(tmp_path / "two.npz"), "validation_uri": "", "validation_logits_uri": ""}
    assert execute_here(**files | given).metrics.auc_bmia == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_seeds": 3}, "n_seeds has no effect: it is for the embedded sample"),
        ({"sample_size": 700}, "sample_size has no effect: it is for the embedded sample"),
        ({"target_arch": "linear"}, "target_arch has no effect: the target is given by its logits"),
        ({"arch": "linear", "hidden": [32]}, "hidden has no effect: neither"),
        ({"attacks": ["qmia"]}, "attacks leaves out bmia: how well it tells members is not measured"),
        (
            {"attacks": ["bmia", "rmia"]},
            "attacks leaves out lira_fixed: these claims are not tried: auc-gain",
        ),
    ],
    ids=str,
)
def test_what_is_asked_for_in_vain_or_left_unmeasured_is_warned_of(
    files: dict[str, Any], context: Context, parameters: dict[str, Any], words: str
) -> None:
    load(BmiaInputs.parse(files | parameters), context)
    assert [warning for warning in context.warnings if warning.startswith(words)]


def test_what_the_sample_does_not_read_is_warned_of(context: Context) -> None:
    load(BmiaInputs.parse({"standardise": False, "target_arch": "cnn", "n_seeds": 1}), context)
    assert [warning.split(":")[0] for warning in context.warnings] == [
        "target_arch has no effect",
        "standardise has no effect",
    ]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"hessian": "full", "hidden": [512]}, r"hessian='?full'?: the last layer has 5,130 weights"),
        ({"hessian": "full", "arch": "resnet18"}, r"hessian='?full'?: the last layer has 5,130 weights"),
    ],
    ids=str,
)
def test_what_training_would_run_into_is_found_on_the_sample(
    context: Context, parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        load(BmiaInputs.parse(parameters), context)


def test_a_larger_sample_needs_its_files_before_anything_is_trained(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfp_methods.components.tabular.bmia.sample.whole_files.__defaults__", (tmp_path,))
    with pytest.raises(InputError, match=r"sample_size: above 6000 needs .*train-images"):
        load(BmiaInputs.parse({"sample_size": 7000}), context)


def test_an_architecture_for_images_is_refused_for_a_table(files: dict[str, Any], context: Context) -> None:
    with pytest.raises(InputError, match=r"arch=cnn: needs images, but a record has shape \(64,\)"):
        load(BmiaInputs.parse(files | {"arch": "cnn"}), context)


def test_claims_that_were_not_tried_say_why(execute_here: Execute, files: dict[str, Any]) -> None:
    notes = {result.claim.id: result.note for result in execute_here(**files, attacks=["bmia"]).claims}
    assert notes["auc-gain-over-lira"] == (
        "LiRA (fixed variance), 1 reference did not run: it is not among the attacks asked for."
    )
    assert notes["beats-rmia"].startswith("RMIA, 1 reference did not run")
    assert "train other references on your one target" in notes["more-samples-help"]
    few = {result.claim.id: result.note for result in execute_here(**files, n_samples=2).claims}
    assert few["more-samples-help"] == "It needs more than 2 posterior samples; this run had 2."
    assert few["several-references-beat-lira"] == "It needs at least 4 references; this run had 2."


def test_too_few_non_members_are_named_as_the_cause(
    execute_here: Execute, files: dict[str, Any], tmp_path: Path
) -> None:
    audit = pd.read_csv(files["audit_uri"])
    kept = np.r_[:360, 360:410]
    audit.iloc[kept].to_csv(tmp_path / "audit.csv", index=False)
    np.savez(tmp_path / "logits.npz", logits=np.load(files["target_logits_uri"])["logits"][kept])
    given = {"audit_uri": str(tmp_path / "audit.csv"), "target_logits_uri": str(tmp_path / "logits.npz")}
    found = execute_here(**files | given)
    notes = {result.claim.id: result.note for result in found.claims}
    assert notes["tpr-gain-over-lira"] == "The TPR at 1% FPR cannot be resolved: fewer than 1/FPR non-members."
    assert not notes["auc-gain-over-lira"].startswith("The TPR")
    assert "MR-BMIA with 2 references has an AUC of 0." in found.report.summary


def test_one_target_of_the_sample_settles_nothing_and_is_kept(context: Context) -> None:
    quick = {"n_seeds": 1, "sample_size": 600, "epochs": 2, "n_references": 1, "n_samples": 5, "hidden": [16]}
    inputs = BmiaInputs.parse({"preset": "smoke", **quick})
    found = run(inputs, load(inputs, context), context)
    measured = [result for result in found.claims if result.verdict is not Verdict.NOT_MEASURED]
    assert measured
    assert {result.verdict for result in measured} == {Verdict.INCONCLUSIVE}
    assert [getattr(part, "name", "") for part in context.parts] == ["attacks-seed-0"]
    assert {point.name for point in context.points} >= {"auc_bmia_1", "auc_lira_fixed_1"}
    assert found.metrics.target_train_accuracy is not None


def test_percentages_are_not_taken_for_logits(
    execute_here: Execute, files: dict[str, Any], context: Context, tmp_path: Path
) -> None:
    logits = np.load(files["target_logits_uri"])["logits"].astype(np.float64)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    np.savez(tmp_path / "percent.npz", logits=100 * shares / shares.sum(1, keepdims=True))
    with pytest.raises(InputError, match=r"target_logits_uri.*: the rows are percentages"):
        execute_here(**files | {"target_logits_uri": str(tmp_path / "percent.npz")})
