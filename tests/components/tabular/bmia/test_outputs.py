"""Metrics, tables, claims and words of a run agree with the audits that they tell of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.bmia import claims, measures, tables
from kfp_methods.components.tabular.bmia.audit import Settings
from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaOutputs
from kfp_methods.components.tabular.bmia.outputs import outputs
from kfp_methods.components.tabular.bmia.repeat import audit_seeds
from kfp_methods.components.tabular.bmia.running import Audited
from kfp_methods.components.tabular.bmia.sample import digits, split
from kfp_methods.components.tabular.bmia.training import Recipe
from kfp_methods.context import Context

K, M = 4, 10


@pytest.fixture(scope="module")
def audits() -> list[Audited]:
    """Two targets, trained on digits, each with four references."""
    settings = Settings(n_samples=M, sweep=(2, M), ablation=("kron", "diag"))
    recipe = Recipe(epochs=3, hidden=(64,))
    found = audit_seeds(lambda seed: split(digits(), seed), (3, 4), recipe, settings, n_references=K)
    return [Audited.of_sample(one) for one in found]


def test_metrics_are_means_over_the_targets(audits: list[Audited]) -> None:
    metrics = measures.metrics(audits, K)
    attacks = [one.found.attack("bmia", 1) for one in audits]
    assert metrics.auc_bmia == pytest.approx(np.mean([result.auc for result in attacks]))
    gains = [
        one.found.attack("bmia", 1).rate(0.01).tpr - one.found.attack("lira_fixed", 1).rate(0.01).tpr for one in audits
    ]  # type: ignore[operator]
    assert metrics.tpr_gain_vs_lira1 == pytest.approx(np.mean(gains))
    priors = [prior for one in audits for prior in one.found.prior_precisions]
    assert metrics.prior_precision == pytest.approx(stats.gmean(priors))
    assert metrics.flagged == audits[0].found.decision.member.sum()
    assert metrics.inter_var == pytest.approx(
        np.mean([np.median(one.found.decision.test.inter_variance) for one in audits])
    )  # type: ignore[arg-type]
    assert 0 < (metrics.bmia_time_ratio or 0) < 1


def test_a_number_that_one_target_lacks_is_none(audits: list[Audited]) -> None:
    without = replace(audits[1], member=None, train_accuracy=None)
    metrics = measures.metrics([audits[0], without], K)
    assert metrics.type1_at_alpha is None
    assert metrics.target_train_accuracy is None
    assert metrics.auc_bmia is not None


def test_rates_are_pooled_with_exact_intervals(audits: list[Audited]) -> None:
    frame = tables.attacks(audits).frame.set_index("attack")
    assert len(frame) == len(audits[0].found.attacks)
    rates = [one.found.attack("rmia", K).rate(0.1).tpr for one in audits]
    n = int(audits[0].member.sum())  # type: ignore[union-attr]
    hits = round(sum(rate * n for rate in rates))  # type: ignore[operator]
    row = frame.loc[f"RMIA, {K} references"]
    assert row["TPR at 10% FPR"] == pytest.approx(hits / (2 * n))
    exact = stats.binomtest(hits, 2 * n).proportion_ci(0.95, "exact")
    low, _, high = row["TPR at 10% FPR, 95% interval"].partition(" to ")
    assert (float(low), float(high)) == pytest.approx((exact.low, exact.high), abs=1e-4)
    assert np.isnan(row["TPR at 0.1% FPR"])
    assert row["TPR at 0.1% FPR, 95% interval"] == "unresolvable: fewer than 1/FPR non-members"
    numbers = [column for column in frame if "interval" not in column]
    assert all(frame[column].dtype.kind in "fi" for column in numbers)


def test_exposed_records_head_the_membership_table(audits: list[Audited]) -> None:
    membership = tables.membership(audits[0])
    top = tables.exposed(membership, "the file")
    assert len(top.frame) == tables.EXPOSED
    assert top.frame["t"].min() >= membership.frame["t"][~membership.frame["row"].isin(top.frame["row"])].max()
    row = int(top.frame["row"].iloc[0])
    assert top.frame["label"].iloc[0] == audits[0].records.y[row]


def test_claims_are_paired_differences_by_seed(audits: list[Audited]) -> None:
    found = [one.found for one in audits]
    results = {result.claim: result for result in claims.results(found, [3, 4], K, M)}
    expected = [one.attack("bmia", 1).auc - one.attack("lira_fixed", 1).auc for one in found]  # type: ignore[operator]
    assert results[claims.AUC_GAIN].samples == pytest.approx(expected)
    assert results[claims.AUC_GAIN].seeds == (3, 4)
    pairs = [(one.attack("bmia", K), one.attack("lira_fixed", K)) for one in found]
    several = [claims.minus(ours.tpr(0.01), theirs.tpr(0.01)) for ours, theirs in pairs]
    assert results[claims.MR_BEATS_LIRA].samples == pytest.approx(several)
    swept = [one.sweep[M].rate(0.01).tpr - one.sweep[2].rate(0.01).tpr for one in found]  # type: ignore[operator]
    assert results[claims.MORE_SAMPLES].samples == pytest.approx(swept)
    eight = results[claims.BEATS_LIRA_8]
    assert (eight.verdict, eight.note) == (Verdict.NOT_MEASURED, "It needs at least 8 references; this run had 4.")


def test_a_claim_is_not_judged_on_some_of_the_targets(audits: list[Audited]) -> None:
    found = [audits[0].found, replace(audits[1].found, attacks=())]
    verdicts = {result.claim: result.verdict for result in claims.results(found, [3, 4], K, M)}
    assert verdicts[claims.AUC_GAIN] is Verdict.NOT_MEASURED
    assert verdicts[claims.MORE_SAMPLES] is not Verdict.NOT_MEASURED


def test_the_summary_says_what_was_found(audits: list[Audited], context: Context) -> None:
    inputs = BmiaInputs.parse({"n_samples": M, "hidden": [64], "epochs": 3})
    found = outputs(inputs, audits, context)
    words = found.report.summary
    assert words.startswith(
        f"{found.metrics.flagged} of 719 records of the first of 2 targets are above the calibrated"
    )
    assert f"flags {found.metrics.type1_calibrated:.2%} of the non-members; 1% were intended" in words
    best = found.attack_results.frame["TPR at 1% FPR"].max()
    assert f"finds {best:.1%} of the members (guessing: 1%)" in words


def test_too_few_non_members_for_a_rate_leave_the_auc(audits: list[Audited], context: Context) -> None:
    few = [replace(one, found=replace(one.found, attacks=tuple(
        replace(result, rates=tuple(replace(rate, tpr=None) for rate in result.rates)) for result in one.found.attacks
    ))) for one in audits]  # fmt: skip
    found = outputs(BmiaInputs.parse({"n_samples": M, "hidden": [64]}), few, context)
    assert "has an AUC of 0." in found.report.summary
    assert found.metrics.tpr_at_1pct_bmia is None


def test_the_curve_is_that_of_the_membership_table(found: BmiaOutputs) -> None:
    frame, roc = found.membership.frame, found.roc
    for index in (1, len(roc.threshold) // 2):
        flagged = frame["t"] >= roc.threshold[index]
        assert roc.true_positive_rate[index] == pytest.approx(flagged[frame["member"]].mean())
        assert roc.false_positive_rate[index] == pytest.approx(flagged[~frame["member"]].mean())


def test_the_fitted_attack_keeps_the_samples_of_the_audit(found: BmiaOutputs) -> None:
    references = found.model.references  # type: ignore[attr-defined]
    assert [tuple(reference.samples.shape) for reference in references] == [(20, 10, 65)] * 2
    assert not torch.equal(references[0].samples, references[1].samples)
