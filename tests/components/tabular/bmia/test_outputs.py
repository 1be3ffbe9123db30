"""Metrics, tables, claims and words of a run agree with the audits that they tell of."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from kfp_methods.claims import Verdict
from kfp_methods.components.tabular.bmia import claims, leak, measures, tables
from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.choices import AttackName
from kfp_methods.components.tabular.bmia.component import BmiaInputs, BmiaOutputs
from kfp_methods.components.tabular.bmia.outputs import outputs
from kfp_methods.components.tabular.bmia.repeat import audit_seeds
from kfp_methods.components.tabular.bmia.roc import TOO_FEW, Rate
from kfp_methods.components.tabular.bmia.running import Audited
from kfp_methods.components.tabular.bmia.sample import digits, split
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.components.tabular.bmia.training import Recipe
from kfp_methods.components.tabular.bmia.uncertainty import rate_limits
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


def scores(one: Audited, name: AttackName, n_references: int) -> tuple[Floats, Floats]:
    assert one.member is not None
    found = one.found.attack(name, n_references).scores
    return found[one.member], found[~one.member]


def test_rates_are_means_over_the_targets_with_intervals(audits: list[Audited]) -> None:
    frame = tables.attacks(audits).frame.set_index("attack")
    assert len(frame) == len(audits[0].found.attacks)
    row = frame.loc[f"RMIA, {K} references"]
    rates = [one.found.attack("rmia", K).rate(0.1).tpr for one in audits]
    assert row["TPR at 10% FPR"] == pytest.approx(np.mean(rates))  # type: ignore[arg-type]
    limits = rate_limits(0.1, [scores(one, "rmia", K) for one in audits])
    assert row["TPR at 10% FPR, low"] == pytest.approx(limits.low)
    assert row["TPR at 10% FPR, high"] == pytest.approx(limits.high)
    assert row[["TPR at 0.1% FPR", "TPR at 0.1% FPR, low", "TPR at 0.1% FPR, high"]].isna().all()
    assert row["AUC, low"] < row["AUC"] < row["AUC, high"]
    assert all(frame[column].dtype.kind in "fi" for column in frame)


def test_the_compact_table_shows_what_is_asked_first_and_says_once_what_is_missing(audits: list[Audited]) -> None:
    table = tables.leaks(audits)
    assert list(table.frame) == ["attack, refs", "AUC", "TPR, %", "95% interval"]
    names = ["BMIA, 1", f"MR-BMIA, {K}", "QMIA", "Global threshold"]
    assert set(names) <= set(table.frame[tables.ATTACK])
    assert table.highlight
    found = table.frame[tables.RATE].dropna()
    assert found.is_monotonic_decreasing
    full = tables.attacks(audits).frame.set_index("attack")["TPR at 1% FPR"]
    assert found.iloc[0] == pytest.approx(100 * full.max(), abs=0.005)
    tied = table.frame.loc[table.frame[tables.RATE].isna(), tables.ATTACK].tolist()
    assert f"Attack-R, {K}" in tied
    assert table.frame.loc[table.frame[tables.ATTACK].isin(tied), tables.INTERVAL].isna().all()
    assert table.caption.count("not resolved") == 1
    [gap] = re.findall(r"not resolved: the scores of many non-members are equal \((.*)\)", table.caption)
    assert [title.removesuffix(" references") for title in gap.split("; ")] == tied


def test_exposed_records_head_the_membership_table(audits: list[Audited]) -> None:
    membership = tables.membership(audits[0])
    top = tables.exposed(membership, "the file", highlight=False)
    assert len(top.frame) == tables.EXPOSED
    assert top.frame["t"].min() >= membership.frame["t"][~membership.frame["row"].isin(top.frame["row"])].max()
    row = int(top.frame["row"].iloc[0])
    assert top.frame["label"].iloc[0] == audits[0].records.y[row]


def test_claims_are_paired_differences_by_seed(audits: list[Audited]) -> None:
    found = [one.found for one in audits]
    results = {result.claim: result for result in claims.results(found, [3, 4], K, M, users=False)}
    expected = [one.attack("bmia", 1).auc - one.attack("lira_fixed", 1).auc for one in found]  # type: ignore[operator]
    assert results[claims.AUC_GAIN].samples == pytest.approx(expected)
    assert results[claims.AUC_GAIN].seeds == (3, 4)
    assert results[claims.AUC_GAIN].over == "splits of one data set"
    own = claims.results(found[:1], [3], K, M, users=True)[0]
    assert own.over == "sets of references"
    assert "other references on your one target" in own.note
    pairs = [(one.attack("bmia", K), one.attack("lira_fixed", K)) for one in found]
    several = [claims.minus(ours.tpr(0.01), theirs.tpr(0.01)) for ours, theirs in pairs]
    assert results[claims.MR_BEATS_LIRA].samples == pytest.approx(several)
    swept = [one.sweep[M].rate(0.01).tpr - one.sweep[2].rate(0.01).tpr for one in found]  # type: ignore[operator]
    assert results[claims.MORE_SAMPLES].samples == pytest.approx(swept)
    eight = results[claims.BEATS_LIRA_8]
    assert (eight.verdict, eight.note) == (Verdict.NOT_MEASURED, "It needs at least 8 references; this run had 4.")


def test_a_claim_is_not_judged_on_some_of_the_targets(audits: list[Audited]) -> None:
    found = [audits[0].found, replace(audits[1].found, attacks=())]
    verdicts = {result.claim: result.verdict for result in claims.results(found, [3, 4], K, M, users=False)}
    assert verdicts[claims.AUC_GAIN] is Verdict.NOT_MEASURED
    assert verdicts[claims.MORE_SAMPLES] is not Verdict.NOT_MEASURED


def run(audits: list[Audited], context: Context) -> BmiaOutputs:
    return outputs(BmiaInputs.parse({"n_samples": M, "hidden": [64], "epochs": 3}), audits, context)


def test_the_summary_says_who_is_flagged_and_what_the_papers_attack_finds(
    audits: list[Audited], context: Context
) -> None:
    found = run(audits, context)
    words = found.report.summary
    assert words.startswith(
        f"{found.metrics.flagged} of 719 records of the first of 2 targets are above the calibrated"
    )
    assert f"{found.metrics.type1_calibrated:.2%} of the non-members are flagged; 1% were intended" in words
    limits = rate_limits(0.01, [scores(one, "bmia", K) for one in audits])
    rate = found.metrics.tpr_at_1pct_mr_bmia
    interval = f"{limits.low:.1%} to {max(limits.high, rate or 0):.1%}"
    assert f"MR-BMIA with {K} references finds {rate:.1%} (95% interval: {interval})." in words


def test_the_strongest_other_attack_is_said_to_be_chosen_and_its_interval_allows_for_it(audits: list[Audited]) -> None:
    words = leak.headline(audits)
    frame = tables.attacks(audits).frame.dropna(subset="TPR at 1% FPR").set_index("attack")["TPR at 1% FPR"]
    others = frame.drop(f"MR-BMIA, {K} references")
    best, k = others.idxmax(), len(others)
    [result] = [one for one in audits[0].found.attacks if one.title == best]
    pairs = [scores(one, result.name, result.n_references) for one in audits]
    limits, alone = rate_limits(0.01, pairs, 1 - 0.05 / k), rate_limits(0.01, pairs)
    assert (
        f"{best.replace(', ', ' with ')}, the strongest of the {k} other attacks, chosen after seeing them all, finds"
        in words
    )
    assert f"95% for all {k} together: {limits.low:.1%} to {max(limits.high, others.max()):.1%}" in words
    assert limits.high > alone.high


def test_without_the_papers_attack_only_the_chosen_one_is_named(audits: list[Audited]) -> None:
    others = [only(one, "lira_fixed", "rmia") for one in audits]
    words = leak.headline(others)
    assert "BMIA" not in words
    assert "the strongest of the 4 attacks, chosen after seeing them all" in words
    assert leak.headline([only(one, "bmia") for one in audits]).count("interval") == 2
    assert leak.headline([only(one) for one in audits]) == ""
    assert leak.headline([replace(audits[0], member=None)]) == ""


def only(one: Audited, *names: AttackName) -> Audited:
    kept = tuple(result for result in one.found.attacks if result.name in names)
    return replace(one, found=replace(one.found, attacks=kept))


def test_too_few_non_members_for_a_rate_leave_the_auc(audits: list[Audited], context: Context) -> None:
    few = [replace(one, found=replace(one.found, attacks=tuple(
        replace(result, rates=tuple(Rate(rate.fpr, None, None, None, None, TOO_FEW) for rate in result.rates))
        for result in one.found.attacks
    ))) for one in audits]  # fmt: skip
    found = run(few, context)
    assert f"MR-BMIA with {K} references has an AUC of 0." in found.report.summary
    assert found.metrics.tpr_at_1pct_bmia is None
    assert f"— not resolved: {TOO_FEW} (every attack)." in tables.leaks(few).caption


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
