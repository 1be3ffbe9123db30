"""The estimate on analytic scores: invariances, the memorised limit, both noise processes, and models that are none."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kfp_methods.components.science.lhsd import estimate
from kfp_methods.components.science.lhsd.estimate import Quadrature, eigenvalues, spectra
from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.score_models import CallableScore, EmpiricalScore, Level
from kfp_methods.errors import InputError
from tests.components.science.lhsd.conftest import GaussianPlane

F = Filter()


def exact(model: CallableScore | EmpiricalScore, x: Tensor, sigma: float) -> Tensor:
    H = eigenvalues(model, x, sigma, Quadrature())[:, 0]
    assert H is not None
    return F(H, sigma).sum(1)


@pytest.fixture
def cloud() -> Tensor:
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def test_the_quadrature_is_the_mean_over_probes_of_exact_forms() -> None:
    plane = GaussianPlane(D=50, d=7)
    quadrature = Quadrature(probes=6, steps=2, seed=4)
    found = spectra(plane.model(), plane.points(3), 0.1, quadrature)
    estimates, stderr = found.dimension(F)
    H = plane.precision(1.0, 0.1)
    values, vectors = torch.linalg.eigh(H)
    for row in range(3):
        v = estimate.rademacher(4, row, 6, 50).double()
        forms = ((v @ vectors).square() * F(values, 0.1)).sum(1)
        assert float(estimates[row]) == pytest.approx(float(forms.mean()), abs=1e-8)
        assert float(stderr[row]) == pytest.approx(float(forms.std()) / 6**0.5, abs=1e-8)
    assert found.products == 6 * 2 * 2


def test_results_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = GaussianPlane(D=20, d=3)
    whole = spectra(plane.model(), plane.points(7), 0.2, Quadrature(probes=4, steps=3)).dimension(F)
    monkeypatch.setattr(estimate, "_VALUES_AT_ONCE", 1)
    blocks = spectra(plane.model(), plane.points(7), 0.2, Quadrature(probes=4, steps=3)).dimension(F)
    torch.testing.assert_close(whole, blocks, rtol=1e-12, atol=1e-12)


def test_rotation_translation_and_joint_scaling_change_nothing(cloud: Tensor) -> None:
    Q = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.double))[0]
    before = exact(EmpiricalScore(cloud), cloud[:5], 0.7)
    moved = cloud @ Q + 3
    torch.testing.assert_close(exact(EmpiricalScore(moved), moved[:5], 0.7), before, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(exact(EmpiricalScore(5 * cloud), 5 * cloud[:5], 3.5), before, rtol=1e-6, atol=1e-6)


def test_the_empirical_score_and_hessian_are_those_of_the_smoothed_data(cloud: Tensor) -> None:
    sigma, model, y = 0.8, EmpiricalScore(cloud), cloud[:3] + 0.1

    def log_density(point: Tensor) -> Tensor:
        return torch.logsumexp(-(point - cloud).square().sum(1) / (2 * sigma**2), 0)

    level = model.level(sigma)
    score = torch.stack([torch.autograd.functional.jacobian(log_density, row) for row in y])
    torch.testing.assert_close(model.score(y, level), score, rtol=1e-8, atol=1e-8)
    H = eigenvalues(model, y, sigma, Quadrature())[:, 0]
    assert H is not None
    by_hand = torch.stack([-torch.autograd.functional.hessian(log_density, row) for row in y])
    torch.testing.assert_close(H, torch.linalg.eigvalsh(by_hand), rtol=1e-8, atol=1e-8)
    weights = torch.softmax(-torch.cdist(y, cloud).square() / (2 * sigma**2), 1)
    centred = cloud - (weights @ cloud)[:, None]
    covariance = torch.einsum("rn,rni,rnj->rij", weights, centred, centred)
    analytic = torch.eye(6, dtype=torch.double) / sigma**2 - covariance / sigma**4
    torch.testing.assert_close(by_hand, analytic, rtol=1e-8, atol=1e-8)


def test_a_memorised_point_has_dimension_zero_but_for_the_leak(cloud: Tensor) -> None:
    assert exact(EmpiricalScore(cloud), cloud[:4], 0.01).tolist() == pytest.approx([6 / 626] * 4, rel=1e-6)


def test_both_processes_count_the_same() -> None:
    plane = GaussianPlane(D=30, d=4)
    for process in ("ve", "vp"):
        assert exact(plane.model(process), plane.points(2), 0.1).tolist() == pytest.approx([4.04] * 2, abs=0.02)


def test_noised_copies_of_a_point_average() -> None:
    plane = GaussianPlane(D=30, d=4)
    found = spectra(plane.model(), plane.points(2), 0.1, Quadrature(probes=4, steps=2, n_noise=3))
    assert found.lanczos.alpha.shape == (2, 12, 2)
    assert found.products == 4 * 3 * 2 * 2
    # The Hessian of a Gaussian is the same everywhere.
    H = F(torch.linalg.eigvalsh(plane.precision(1.0, 0.1)), 0.1).sum()
    estimates, stderr = found.dimension(F)
    assert (estimates - H).abs().max() < 4 * stderr.max()


def test_the_standard_error_over_noised_copies_is_that_of_other_noise(cloud: Tensor) -> None:
    """Probes at one noised copy share its noise, so they are no independent evidence."""
    model, x = EmpiricalScore(cloud, torch.zeros(6), 1.0), cloud[:3]
    drawn = [
        spectra(model, x, 0.5, Quadrature(probes=64, steps=6, n_noise=8, seed=seed)).dimension(F) for seed in range(40)
    ]
    values, errors = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    assert (errors.square().mean(0).sqrt() / values.std(0)).tolist() == pytest.approx([1.0] * 3, rel=0.35)


def test_all_eigenvalues_are_taken_at_the_same_noised_copies(cloud: Tensor) -> None:
    model, quadrature = EmpiricalScore(cloud, torch.zeros(6), 1.0), Quadrature(probes=4000, steps=6, n_noise=2)
    H = eigenvalues(model, cloud[:2], 0.5, quadrature)
    assert H is not None
    assert H.shape == (2, 2, 6)
    found, _ = spectra(model, cloud[:2], 0.5, quadrature).dimension(F)
    assert found.tolist() == pytest.approx(F(H, 0.5).sum(2).mean(1).tolist(), abs=0.1)


def test_evaluation_points_have_the_level_s_mean_and_spread() -> None:
    x, level = torch.full((2, 400), 5.0), Level(0.6, 0.8, 0.8)
    assert torch.equal(estimate.evaluation_points(x, torch.tensor([0, 1]), level, Quadrature()), 0.6 * x)
    y = estimate.evaluation_points(x, torch.tensor([0, 1]), level, Quadrature(n_noise=50))
    assert y.shape == (100, 400)
    assert float(y.mean()) == pytest.approx(3.0, abs=0.02)
    assert float(y.std()) == pytest.approx(0.8, abs=0.02)
    assert not torch.equal(y[:50], y[50:])


def test_asymmetry_is_estimated_from_the_probes() -> None:
    J = torch.randn(40, 40, generator=torch.Generator().manual_seed(0))
    model = CallableScore(lambda y, sigma: y @ J.T)
    found = spectra(model, torch.randn(3, 40), 0.5, Quadrature(probes=200, steps=2))
    assert found.asymmetry == pytest.approx(float((J - J.T).norm() / (J + J.T).norm()), rel=0.05)
    plane = GaussianPlane(D=30, d=4)
    assert spectra(plane.model(), plane.points(2), 0.1, Quadrature(probes=4)).asymmetry < 1e-10


def test_the_paper_s_form_uses_half_the_products() -> None:
    plane = GaussianPlane(D=30, d=4)
    quadrature = Quadrature(probes=4, steps=3)
    ours = spectra(plane.model(), plane.points(2), 0.1, quadrature)
    papers = spectra(plane.model(), plane.points(2), 0.1, dataclasses.replace(quadrature, symmetrise=False))
    assert (ours.products, papers.products) == (24, 12)
    torch.testing.assert_close(ours.dimension(F), papers.dimension(F))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda y, sigma: torch.ones_like(y), "does not depend on the points"),
        (lambda y, sigma: (-y).detach(), "does not depend on the points"),
        (lambda y, sigma: y[:, :2], "has shape (2, 2)"),
        (lambda y, sigma: y * float("nan"), "is not finite"),
    ],
)
def test_a_function_that_is_no_score_is_refused(function: object, words: str) -> None:
    with pytest.raises(InputError, match="model") as caught:
        spectra(CallableScore(function), torch.randn(3, 4), 0.5, Quadrature(probes=2, steps=2))  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_above_256_features_there_are_no_dense_eigenvalues() -> None:
    plane = GaussianPlane(D=257, d=2)
    assert eigenvalues(plane.model(), plane.points(1), 0.1, Quadrature()) is None
