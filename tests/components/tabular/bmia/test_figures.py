"""The plots show the audits' numbers, in words too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kfp_methods.components.tabular.bmia import figures
from kfp_methods.components.tabular.bmia.arrays import Flags
from kfp_methods.components.tabular.bmia.attacks import AttackResult, measure
from kfp_methods.components.tabular.bmia.audit import Audit
from kfp_methods.components.tabular.bmia.decision import decide, t_test

N = 400
MEMBER = np.arange(N) < N // 2


def audit(seed: int) -> Audit:
    """An audit of synthetic scores, members one standard deviation up."""
    rng = np.random.default_rng(seed)
    scores, samples = rng.normal(MEMBER, 1.0), rng.normal(size=(2, N, 20))
    decisions = {K: decide(t_test(scores, samples[:K]), None, 0.01, "t") for K in (1, 2)}
    plain = AttackResult("bmia", 1, decisions[1].test.t, 1.0, 1.0)
    attacks = [plain, replace(plain, name="lira_fixed", scores=scores), replace(plain, n_references=2)]
    sweep = {M: t_test(scores, samples[:1, :, :M]).t for M in (2, 20)}
    return Audit(
        target_scores=scores,
        decisions=decisions,
        attacks=tuple(measure(result, MEMBER, (0.01, 0.1)) for result in attacks),
        skipped={},
        sweep={M: measure(replace(plain, scores=t), MEMBER, (0.01, 0.1)) for M, t in sweep.items()},
        two_sample_mean=None,
        ablation={},
        prior_precisions=(1.0, 1.0),
        scale_ratio=None,
        warnings=(),
        member_known=True,
    )


@pytest.fixture(scope="module")
def audits() -> list[Audit]:
    return [audit(0), audit(1)]


@pytest.fixture(scope="module")
def members() -> list[Flags]:
    return [MEMBER, MEMBER]


def test_the_roc_says_every_attacks_rate(audits: list[Audit], members: list[Flags]) -> None:
    figure = figures.roc_figure(audits, members)
    assert figure is not None
    for index, result in enumerate(audits[0].attacks):
        rates = [one.attacks[index].rate(0.01).tpr for one in audits]
        assert f"{result.title} {np.mean(rates):.3f}" in figure.alt  # type: ignore[arg-type]
        assert result.title in str(figure.image)
    assert "guessing" in str(figure.image)
    assert "Mean over 2 audited targets" in figure.caption


def test_a_curve_never_exceeds_its_false_positive_rate() -> None:
    scores = np.array([3.0, 1.0, 2.0, 0.0])
    curve = figures._curve(scores, np.array([True, True, False, False]))
    assert curve[0] == 0.5, "one member outscores every non-member"
    assert curve[-1] == 1
    assert figures._curve(np.zeros(4), np.array([True, True, False, False]))[0] == 0, "equal scores find nobody"


def test_the_sweep_shows_the_difference_attack_and_the_caveat_of_two_samples(audits: list[Audit]) -> None:
    figure = figures.sweep_figure(audits)
    assert figure is not None
    at_two = np.mean([one.sweep[2].rate(0.01).tpr for one in audits])  # type: ignore[arg-type]
    lira = np.mean([one.attack("lira_fixed", 1).rate(0.01).tpr for one in audits])  # type: ignore[arg-type]
    assert f"{at_two:.3f} at M = 2" in figure.alt
    assert at_two < lira
    assert f"worse ({at_two:.3f}) than the difference attack" in figure.caption
    assert "of 2 draws" in str(figure.image), "a label of the axis, which no line can cross"


def test_a_sweep_that_cannot_be_resolved_is_left_out(audits: list[Audit]) -> None:
    assert figures.sweep_figure(audits, fpr=0.001) is None
    assert figures.sweep_figure([replace(audits[0], sweep={})]) is None


def test_the_p_values_level_is_said_for_one_and_all_references(audits: list[Audit], members: list[Flags]) -> None:
    figure = figures.p_value_figure(audits, members)
    for K, words in ((1, "with 1 reference"), (2, "with 2 references")):
        level = np.mean([one.decisions[K].test.p_value[~MEMBER] < 0.01 for one in audits])
        assert f"{level:.1%} {words}" in figure.caption


def test_no_attack_no_curve(audits: list[Audit], members: list[Flags]) -> None:
    assert figures.roc_figure([replace(one, attacks=()) for one in audits], members) is None


def test_the_same_audits_give_the_same_bytes(audits: list[Audit], members: list[Flags]) -> None:
    first, second = (figures.roc_figure(audits, members) for _ in range(2))
    assert first == second
