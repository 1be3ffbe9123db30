"""A whole audit on digits: every attack from the same references, and chance level under permuted flags."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from kfp_methods.components.tabular.bmia import claims, sample
from kfp_methods.components.tabular.bmia.attacks import measure
from kfp_methods.components.tabular.bmia.audit import Audit, audit
from kfp_methods.components.tabular.bmia.choices import ATTACKS
from kfp_methods.components.tabular.bmia.parallel import Job, Trained, train_all
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.references import reference_jobs
from kfp_methods.components.tabular.bmia.repeat import SeedAudit, audit_seeds
from kfp_methods.components.tabular.bmia.sample import Split
from kfp_methods.components.tabular.bmia.settings import Settings
from kfp_methods.components.tabular.bmia.training import Recipe, outputs
from kfp_methods.errors import InputError

RECIPE = Recipe(hidden=(256,), epochs=30)
SETTINGS = Settings(n_samples=20, sweep=(2, 20, 30), ablation=("diag",), fprs=(0.001, 0.01, 0.1))


@pytest.fixture(scope="module")
def data() -> Split:
    """Digits of which 30% carry a random label: what a network learns of those it can only have memorised."""
    digits, rng = sample.digits(), np.random.default_rng(0)
    wrong = torch.from_numpy(rng.random(len(digits)) < 0.3)
    noise = torch.from_numpy(rng.integers(0, 10, len(digits)))
    return sample.split(Records(digits.x, torch.where(wrong, noise, digits.y)), 0)


@pytest.fixture(scope="module")
def models(data: Split) -> tuple[Trained, list[Trained]]:
    jobs = [Job(data.members, 10, RECIPE, 0), *reference_jobs(data.reference, 3, 10, RECIPE, 1)]
    target, *references = train_all(jobs)
    return target, references


def run(
    data: Split,
    models: tuple[Trained, list[Trained]],
    settings: Settings,
    n_references: int = 3,
    known: bool = True,
) -> Audit:
    target, references = models
    return audit(
        outputs(target.model, data.audit.x)[1],
        data.audit,
        references[:n_references],
        settings,
        member=data.member if known else None,
        validation=data.validation if known else None,
        validation_logits=outputs(target.model, data.validation.x)[1] if known else None,
    )


@pytest.fixture(scope="module")
def found(data: Split, models: tuple[Trained, list[Trained]]) -> Audit:
    return run(data, models, SETTINGS)


def test_every_attack_runs_with_one_and_with_all_references(found: Audit) -> None:
    ran = {(result.name, result.n_references) for result in found.attacks}
    assert ran == {
        ("bmia", 1), ("bmia", 3), ("global_threshold", 0), ("lira_fixed", 1), ("lira_fixed", 3),
        ("lira_per_record", 3), ("attack_r", 3), ("rmia", 1), ("rmia", 3), ("qmia", 0),
    }  # fmt: skip
    assert found.skipped == {}
    assert {result.name for result in found.attacks} == set(ATTACKS)
    assert found.attack("bmia", 3).title == "MR-BMIA, 3 references"
    assert found.attack("rmia", 1).title == "RMIA, 1 reference"


def test_bmia_ranks_by_t_and_its_costs_are_its_references(found: Audit, models: tuple[Trained, list[Trained]]) -> None:
    assert np.array_equal(found.attack("bmia", 3).scores, found.decisions[3].test.t)
    assert found.attack("lira_fixed", 3).train_seconds == sum(reference.seconds for reference in models[1])
    assert found.attack("bmia", 1).train_seconds == models[1][0].seconds
    assert found.attack("bmia", 1).score_seconds > 0
    assert found.attack("qmia", 0).train_seconds > found.attack("qmia", 0).score_seconds > 0, "it trains a regression"


def test_an_overfitted_target_leaks(found: Audit) -> None:
    assert (found.attack("bmia", 1).auc or 0) > 0.6
    assert (found.attack("rmia", 3).auc or 0) > 0.6


def test_rates_below_one_nonmember_are_unresolvable(found: Audit) -> None:
    assert found.attack("bmia", 1).rate(0.001).tpr is None
    assert found.attack("bmia", 1).rate(0.1).tpr is not None


def test_the_sweep_reuses_the_first_samples_of_one_set(
    found: Audit, data: Split, models: tuple[Trained, list[Trained]]
) -> None:
    assert np.array_equal(found.sweep[20].scores, found.attack("bmia", 1).scores)
    few = run(data, models, replace(SETTINGS, n_samples=2, sweep=(), ablation=(), attacks=("bmia",)), 1)
    np.testing.assert_allclose(found.sweep[2].scores, few.attack("bmia", 1).scores, rtol=1e-9)


def test_a_mean_of_two_samples_differs_in_the_mean_alone(
    data: Split, models: tuple[Trained, list[Trained]], found: Audit
) -> None:
    """Against the spread of two samples, whose luck is worse, it finds more members."""
    assert found.two_sample_mean is not None
    few = run(data, models, replace(SETTINGS, n_samples=2, sweep=(), ablation=(), attacks=("bmia",)), 1)
    all_samples, two = found.decisions[1].test, few.decisions[1].test
    expected = (found.target_scores - two.mean) / all_samples.sd
    np.testing.assert_allclose(found.two_sample_mean.scores, expected, rtol=1e-9)
    assert (found.two_sample_mean.auc or 0) > (found.sweep[2].auc or 1)
    assert few.two_sample_mean is None
    judged = {one.claim: one for one in claims.results([found], [0], 3, 20, users=False)}
    difference = found.sweep[20].tpr(0.01) - found.two_sample_mean.tpr(0.01)  # type: ignore[operator]
    assert judged[claims.SHARPER_MEAN].samples == (difference,)
    assert judged[claims.MORE_SAMPLES].over == "splits of one data set"


def test_samples_of_the_sweep_are_not_charged_to_the_attack(data: Split, models: tuple[Trained, list[Trained]]) -> None:
    """The same seconds within a factor, whether the sweep draws nothing or fifty times as many."""
    plain = replace(SETTINGS, n_samples=20, sweep=(), ablation=(), attacks=("bmia",))
    swept = replace(plain, sweep=(2, 20, 1_000))
    without, with_sweep = (
        min(run(data, models, settings, 1).attack("bmia", 1).score_seconds for _ in range(3))
        for settings in (plain, swept)
    )
    assert with_sweep < 10 * without


def test_the_ablation_compares_structures_on_the_same_reference(found: Audit) -> None:
    assert set(found.ablation) == {"kron", "diag"}
    assert np.array_equal(found.ablation["kron"].scores, found.attack("bmia", 1).scores)
    kron, diag = (found.ablation[name].auc or 0 for name in ("kron", "diag"))
    assert abs(kron - diag) < 0.03


def test_decisions_are_calibrated_on_validation_records(found: Audit, data: Split) -> None:
    assert found.decision is found.decisions[3]
    for made in found.decisions.values():
        assert made.rule == "calibrated"
        assert made.threshold is not None
        level = made.level_calibrated(~data.member)
        assert level is not None
        assert level < 0.05
    assert found.decisions[1].test.inter_variance is None
    assert found.decisions[3].test.inter_variance is not None


def test_target_and_references_are_on_one_scale(found: Audit) -> None:
    assert found.scale_ratio is not None
    assert 0.5 < found.scale_ratio < 2
    assert found.warnings == ()


def test_the_prior_maximises_evidence_unless_given(
    found: Audit, data: Split, models: tuple[Trained, list[Trained]]
) -> None:
    assert len(set(found.prior_precisions)) == 3
    given = run(data, models, replace(SETTINGS, prior_precision=2.5, attacks=("bmia",)), 1)
    assert given.prior_precisions == (2.5,)


def test_permuted_flags_leave_every_attack_at_chance(found: Audit, data: Split) -> None:
    shuffled = np.random.default_rng(0).permutation(data.member)
    n1, n0 = int(shuffled.sum()), int((~shuffled).sum())
    error = math.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    for result in found.attacks:
        assert abs((measure(result, shuffled, ()).auc or 0) - 0.5) < 3 * error, result.title


def test_without_flags_or_validation_there_are_scores_and_a_warning(
    data: Split, models: tuple[Trained, list[Trained]]
) -> None:
    blind = run(data, models, SETTINGS, known=False)
    assert blind.attack("bmia", 3).auc is None
    assert blind.attack("bmia", 3).rates == ()
    assert (blind.decision.rule, blind.decision.member) == ("calibrated", None)
    assert not blind.member_known
    assert blind.scale_ratio is None
    assert set(blind.skipped) == {"RMIA, 1 reference", "RMIA, 3 references", "QMIA"}
    assert "nothing to calibrate a decision on, so none is made" in blind.warnings[0]
    assert blind.sweep == {}
    assert blind.ablation == {}


def test_two_references_and_a_foreign_temperature_are_warned_of(
    data: Split, models: tuple[Trained, list[Trained]]
) -> None:
    target, references = models
    hot = audit(
        outputs(target.model, data.audit.x)[1] / 5,
        data.audit,
        references[:2],
        replace(SETTINGS, attacks=("bmia", "lira_per_record")),
        validation=data.validation,
        validation_logits=outputs(target.model, data.validation.x)[1] / 5,
    )
    assert "2 references" in hot.warnings[0]
    assert "temperature" in hot.warnings[1]
    assert hot.skipped == {
        "LiRA (per-record variance), 2 references": "a record's own variance needs at least 3 references"
    }


def test_one_sample_needs_several_references(data: Split, models: tuple[Trained, list[Trained]]) -> None:
    single = run(data, models, replace(SETTINGS, n_samples=1, sweep=(), attacks=("bmia",)))
    assert set(single.decisions) == {3}
    assert "no spread" in single.skipped["BMIA, 1 reference"]


def test_targets_of_other_classes_are_refused(data: Split, models: tuple[Trained, list[Trained]]) -> None:
    with pytest.raises(InputError, match="target_logits: the target has 9 classes, the references have 10"):
        audit(torch.zeros(len(data.audit), 9), data.audit, models[1], SETTINGS)


def test_audits_over_seeds_repeat_exactly() -> None:
    digits = sample.digits()

    def once() -> list[SeedAudit]:
        return list(
            audit_seeds(
                lambda seed: sample.split(digits, seed),
                [3, 4],
                Recipe(hidden=(32,), epochs=3),
                Settings(n_samples=5),
                n_references=1,
                reference_recipe=Recipe("linear", epochs=3),
            )
        )

    first, second = once(), once()
    assert [one.seed for one in first] == [3, 4]
    for one, other in zip(first, second, strict=True):
        for a, b in zip(one.audit.attacks, other.audit.attacks, strict=True):
            assert np.array_equal(a.scores, b.scores), a.title
    assert not np.array_equal(first[0].audit.target_scores, first[1].audit.target_scores)
    assert 0 < first[0].test_accuracy <= 1
