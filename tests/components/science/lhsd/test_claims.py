"""Each claim is measured by the number it names, over seeds, and is left open where that number is missing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kfp_methods.claims import Verdict
from kfp_methods.components.science.lhsd import claims, figures, measures, tables
from kfp_methods.components.science.lhsd.assessment import Assessed, Question, Settings, assess
from kfp_methods.components.science.lhsd.choices import TITLES
from kfp_methods.components.science.lhsd.costs import Cost, costs
from kfp_methods.components.science.lhsd.estimate import Quadrature
from kfp_methods.components.science.lhsd.filtering import Filter
from tests.components.science.lhsd.conftest import GaussianPlane

SETTINGS = Settings(Filter(), Quadrature(probes=16), 0.1, 4, ("flipd", "nb", "mle", "lpca"), 4, "difference")


def assessed(seed: int = 0, name: str = "manifolds_64", **changed: object) -> Assessed:
    """Twelve points of a known plane, of which every other is called memorised."""
    plane = GaussianPlane(D=24, d=6, seed=seed)
    x = plane.points(12)
    question = Question(name, x, (24,), np.arange(12), plane.points(150), np.full(12, 6.0), np.arange(12) % 2 == 0)
    return assess(question, plane.model(), dataclasses.replace(SETTINGS, **changed), seed=seed)  # type: ignore[arg-type]


def cost(n_features: int, nb: float, products: int = 320) -> Cost:
    return Cost(n_features, 1.0, 0.5, nb, products)


@pytest.fixture(scope="module")
def three() -> list[Assessed]:
    return [assessed(seed) for seed in range(3)]


def test_errors_are_means_over_known_points(three: list[Assessed]) -> None:
    one = three[0]
    assert one.error("lhsd") == pytest.approx(float(np.abs(one.lid - 6).mean()))
    assert one.error("lhsd_exact") == pytest.approx(18 * Filter().normal_leak(), abs=0.02)
    assert one.error("nb") == pytest.approx(float(np.abs(one.others["nb"][:4] - 6).mean()))
    assert one.error("lpca") == 0
    assert np.isnan(one.others["nb"]).sum() == 8
    assert one.error("twonn") is None
    assert sorted(one.sweep) == [2, 3, 5, 10, 20]
    floor = np.sqrt(2 / np.pi) * np.sqrt(2 * (6 - 6 * 8 / 26) / 16)
    assert one.noise_floor() == pytest.approx(floor)


def test_auroc_is_of_low_values(three: list[Assessed]) -> None:
    lid = np.where(np.arange(12) % 2 == 0, 1.0, 5.0)
    assert dataclasses.replace(three[0], lid=lid).memorised_auroc() == 1
    assert dataclasses.replace(three[0], lid=-lid).memorised_auroc() == 0
    one_kind = dataclasses.replace(three[0].question, memorised=np.ones(12, bool))
    assert dataclasses.replace(three[0], question=one_kind).memorised_auroc() is None


def test_claims_take_one_value_a_seed_and_costs_their_own(three: list[Assessed]) -> None:
    measured = {seed: [cost(64, 1.0), cost(128, 3.0 + seed)] for seed in range(3)}
    found = {result.claim: result for result in claims.results(three, measured)}
    assert tuple(found) == claims.CLAIMS
    assert found[claims.SMALL_ERROR].seeds == (0, 1, 2)
    assert found[claims.SMALL_ERROR].samples == tuple(one.error("lhsd") for one in three)
    assert found[claims.NB_GROWS].samples == (3.0, 4.0, 5.0)
    assert found[claims.PRODUCTS].verdict is Verdict.SUPPORTED
    for claim in (claims.FIVE_STEPS, claims.TWO_STEPS):
        assert max(map(abs, found[claim].samples)) < 1e-6  # a plane has two eigenvalues: two steps are exact
    assert found[claims.SMALL_ERROR_1024].verdict is Verdict.NOT_MEASURED
    expected = [one.error("lhsd") / one.error("flipd") for one in three]  # type: ignore[operator]
    assert found[claims.BEATS_FLIPD].samples == pytest.approx(expected)
    nb = [float((np.abs(one.others["nb"][:4] - 6) - np.abs(one.lid[:4] - 6)).mean()) for one in three]
    assert found[claims.BEATS_NB].samples == pytest.approx(nb)


def test_products_that_grow_refute_the_claim(three: list[Assessed]) -> None:
    found = claims.results(three, {seed: [cost(64, 1.0), cost(128, 1.0, 640)] for seed in range(3)})
    result = next(one for one in found if one.claim == claims.PRODUCTS)
    assert result.verdict is Verdict.NOT_SUPPORTED


def test_the_large_part_has_claims_of_its_own() -> None:
    parts = [assessed(seed, "manifolds_1024") for seed in range(2)]
    found = {result.claim: result for result in claims.results(parts, {})}
    assert found[claims.SMALL_ERROR_1024].samples == tuple(one.error("lhsd") for one in parts)
    assert found[claims.SMALL_ERROR].verdict is Verdict.NOT_MEASURED


def test_memorisation_is_not_judged_above_the_claim_s_sigma() -> None:
    found = {result.claim: result for result in claims.results([assessed(sigma=0.5)], {})}
    assert found[claims.MEMORISED].verdict is Verdict.NOT_MEASURED


def test_an_auroc_s_interval_ends_at_one(three: list[Assessed]) -> None:
    aurocs = [0.95, 1.0, 1.0]
    parts = [
        dataclasses.replace(one, lid=np.where(np.arange(12) == (0 if auroc < 1 else 99), 5.0, np.arange(12) % 2 * 4.0))
        for one, auroc in zip(three, aurocs, strict=True)
    ]
    found = {result.claim: result for result in claims.results(parts, {})}[claims.MEMORISED]
    assert found.high == 1.0
    assert found.value is not None
    assert found.value < 1.0


def test_every_method_is_also_compared_at_the_level_that_suits_it(three: list[Assessed]) -> None:
    plane, given = GaussianPlane(D=24, d=6), three[0]
    settings = dataclasses.replace(SETTINGS, sigma=None)
    one = assess(given.question, plane.model(), settings, seed=0, compare_levels=True)
    assert one.levels is not None
    assert one.search is not None
    assert one.levels.sigmas == one.search.sigmas
    assert set(one.levels.errors) == {"lhsd", "flipd", "nb, difference", "nb, ratio"}
    sigma = one.spectra.sigma
    there = one.levels.sigmas.index(sigma)
    assert one.levels.errors["lhsd"][there] == pytest.approx(one.error("lhsd"))
    assert one.levels.errors["flipd"][there] == pytest.approx(one.error("flipd"))
    least = min(*one.levels.errors["nb, difference"], *one.levels.errors["nb, ratio"])
    assert one.levels.least("nb") == (least, one.levels.least("nb")[1])  # type: ignore[index]
    assert one.levels.least("mle") is None
    found = {result.claim: result for result in claims.results([one], {})}
    assert f"{one.levels.least('flipd')[0]:.2f}" in found[claims.BEATS_FLIPD].note  # type: ignore[index]
    assert measures.metrics([one]).mae_flipd_best_level == one.levels.least("flipd")[0]  # type: ignore[index]
    figure = figures.levels_figure([one])
    assert figure is not None
    assert f"FLIPD: {min(one.levels.errors['flipd']):.2f}" in figure.alt


def test_the_products_counted_do_not_depend_on_the_dimension() -> None:
    small, large = costs([64, 96], Quadrature(probes=3, steps=4), seed=0)
    assert small.products == large.products == 3 * 4 * 2
    assert min(small.lhsd_seconds, small.flipd_seconds, large.nb_seconds) > 0


def test_tables_say_what_was_measured(three: list[Assessed]) -> None:
    frame = tables.methods(three).frame.set_index("method")
    assert frame.loc[TITLES["lpca"], "error"] == 0
    assert frame.loc[TITLES["nb"], "points"] == 4
    assert frame.loc["LHSD", "error"] == pytest.approx(np.mean([one.error("lhsd") for one in three]))
    lowest = tables.lowest(three[0]).frame
    assert lowest["lid"].is_monotonic_increasing
    everything = tables.points(three[:1]).frame
    assert everything.loc[everything["rank_from_lowest"] == 1, "lid"].item() == three[0].lid.min()
    assert tables.costs({0: [cost(64, 2.0)], 1: [cost(64, 4.0)]}).frame["normal bundle seconds"].tolist() == [3.0]


def test_metrics_are_means_over_the_seeds(three: list[Assessed]) -> None:
    found = measures.metrics(three)
    assert found.mae_lhsd == pytest.approx(np.mean([one.error("lhsd") for one in three]))
    assert found.mae_twonn is None
    assert found.sigma_used == found.sigma_used_raw == pytest.approx(0.1)
    assert found.no_spectral_gap is None  # sigma was given, so nothing was searched for
    assert found.mae_flipd_best_level is None
    assert found.hvp_per_point == 16 * 5 * 2


def test_figures_say_in_words_what_they_show(three: list[Assessed]) -> None:
    truth = figures.truth_figure(three)
    assert truth is not None
    assert f"{TITLES['lpca']}: 6" in truth.alt
    below, _, _ = three[0].spectra.mass(Filter())
    assert below == pytest.approx(6 / 24, abs=0.02)
    assert f"{below:.1%} of the eigenvalues lie below" in figures.spectrum_figure(three[0]).alt
    assert "memorised points" in figures.dimension_figure(three[0]).alt
    assert figures.search_figure(three[0]) is None
    searched = figures.search_figure(assessed(sigma=None))
    assert searched is not None
    assert "levels from" in searched.alt
    assert figures.gallery(three[0]) is None
    assert figures.loss_figure(three) is None
    unknown = dataclasses.replace(three[0], question=dataclasses.replace(three[0].question, lid_true=None), sweep={})
    assert figures.truth_figure([unknown]) is None
    assert figures.sweep_figure([unknown]) is None


def test_many_true_dimensions_are_gathered(three: list[Assessed]) -> None:
    question = dataclasses.replace(three[0].question, lid_true=np.arange(12) * 1.5)
    more = dataclasses.replace(three[0], question=dataclasses.replace(question, lid_true=np.linspace(1, 9, 12)))
    figure = figures.truth_figure([dataclasses.replace(three[0], question=question), more])
    assert figure is not None
    assert " to " in figure.alt


@pytest.mark.parametrize("shape", [(4, 6), (1, 4, 6), (3, 2, 4)])
def test_images_are_shown_by_their_dimension(three: list[Assessed], shape: tuple[int, ...]) -> None:
    question = dataclasses.replace(three[0].question, shape=shape)
    figure = figures.gallery(dataclasses.replace(three[0], question=question))
    assert figure is not None
    assert f"{three[0].lid.min():.1f} to" in figure.alt


def test_points_without_data_have_no_neighbour_estimates() -> None:
    plane = GaussianPlane(D=24, d=6)
    question = Question("points", torch.cat([plane.points(3)]), (24,), np.arange(3))
    one = assess(question, plane.model(), SETTINGS, seed=0)
    assert sorted(one.others) == ["flipd", "lhsd_exact", "nb"]
    assert one.noise_floor() is None
    assert one.sweep == {}
