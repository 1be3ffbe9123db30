"""The last-layer posterior: reference numbers on iris, laplace-torch, sampling, the prior's limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor, nn

from kfp_methods.components.tabular.bmia import scores as membership_scores
from kfp_methods.components.tabular.bmia.architectures import last_layer_weights
from kfp_methods.components.tabular.bmia.choices import HessianName
from kfp_methods.components.tabular.bmia.decision import t_test
from kfp_methods.components.tabular.bmia.posterior import (
    POSTERIORS,
    LastLayerLaplace,
    with_bias,
)
from kfp_methods.components.tabular.bmia.scores import sample_scores
from kfp_methods.errors import InputError

HESSIANS: list[HessianName] = ["full", "kron", "diag"]


def covariance_factor(posterior: LastLayerLaplace, prior_precision: float) -> Tensor:
    """L with Sigma = L L': the linear map from standard normal draws to weight offsets, column by column."""
    size = posterior.mean.numel()
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *posterior.mean.shape)
    return posterior.offsets(basis, prior_precision).reshape(size, size).T


@pytest.fixture(scope="module")
def iris() -> tuple[Tensor, Tensor, Tensor]:
    """Standardised features with a trailing 1 [150, 5], labels, MAP weights [3, 5] under a unit prior."""
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    phi = with_bias(torch.from_numpy((x - x.mean(0)) / x.std(0)))
    target = nn.functional.one_hot(torch.from_numpy(y), 3).double()
    weights = torch.zeros(3, 5, dtype=torch.float64)
    for _ in range(30):  # Newton's method on the penalised likelihood
        p = torch.softmax(phi @ weights.T, -1)
        gradient = (p - target).T @ phi + weights
        curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        hessian = torch.einsum("nij,nk,nl->ikjl", curvature, phi, phi).reshape(15, 15) + torch.eye(15)
        weights = weights - torch.linalg.solve(hessian, gradient.reshape(15)).reshape(3, 5)
    return phi, torch.from_numpy(y), weights


def fit(hessian: HessianName, iris: tuple[Tensor, Tensor, Tensor]) -> LastLayerLaplace:
    phi, _, weights = iris
    return POSTERIORS[hessian].fit(phi, torch.softmax(phi @ weights.T, -1), weights)


@pytest.mark.parametrize(
    ("hessian", "trace", "log_determinant"),
    [("full", 8.7435390, 15.2700854), ("kron", 8.1024785, 18.4188663), ("diag", 2.7043527, 27.7199597)],
)
def test_covariance_on_iris(
    hessian: HessianName, trace: float, log_determinant: float, iris: tuple[Tensor, Tensor, Tensor]
) -> None:
    factor = covariance_factor(fit(hessian, iris), 1.0)
    assert (factor**2).sum().item() == pytest.approx(trace, abs=1e-6)
    assert -2 * torch.linalg.slogdet(factor).logabsdet.item() == pytest.approx(log_determinant, abs=1e-6)


@pytest.mark.parametrize(
    ("hessian", "evidence", "best_prior"),
    [("full", -42.199108, 0.306662), ("kron", -43.773498, 0.323011), ("diag", -48.424045, 0.533415)],
)
def test_evidence_on_iris_and_the_prior_that_maximises_it(
    hessian: HessianName, evidence: float, best_prior: float, iris: tuple[Tensor, Tensor, Tensor]
) -> None:
    phi, labels, weights = iris
    posterior = fit(hessian, iris)
    log_likelihood = -nn.functional.cross_entropy(phi @ weights.T, labels, reduction="sum").item()
    assert weights.square().sum().item() == pytest.approx(25.0849880, abs=1e-6)
    assert posterior.evidence(log_likelihood, 1.0) == pytest.approx(evidence, abs=1e-5)
    found = posterior.optimal_prior_precision()
    assert found == pytest.approx(best_prior, abs=1e-6)
    search = optimize.minimize_scalar(
        lambda log_prior: -posterior.evidence(log_likelihood, float(np.exp(log_prior))),
        bounds=(-12, 12),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert np.log(found) == pytest.approx(search.x, abs=1e-5)


def test_zero_weights_put_the_prior_at_the_end_of_its_range() -> None:
    phi = with_bias(torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    flat = POSTERIORS["kron"].fit(phi, torch.full((30, 2), 0.5, dtype=torch.float64), torch.zeros(2, 4))
    assert flat.optimal_prior_precision() == pytest.approx(np.exp(12))


@pytest.fixture(scope="module")
def small_network() -> tuple[nn.Sequential, Tensor, Tensor]:
    """A trained network of which only the last layer is Bayesian: model, inputs [60, 4], labels in 0..2."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    for parameter in model.parameters():
        parameter.data.uniform_(-0.6, 0.6, generator=generator)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.eval(), x, y


@pytest.mark.slow
@pytest.mark.parametrize("hessian", HESSIANS)
def test_last_layer_posterior_equals_laplace_torch(
    hessian: HessianName, small_network: tuple[nn.Sequential, Tensor, Tensor]
) -> None:
    laplace = pytest.importorskip("laplace")
    model, x, y = small_network
    with torch.no_grad():
        phi, logits = with_bias(model[:-1](x)), model(x)
    ours = POSTERIORS[hessian].fit(phi, torch.softmax(logits, -1), last_layer_weights(model))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=60)
    theirs = laplace.Laplace(
        model,
        "classification",
        subset_of_weights="last_layer",
        hessian_structure=hessian,
        prior_precision=0.7,
    )
    theirs.fit(data)
    theirs_precision = {
        "full": lambda: theirs.posterior_precision,
        "kron": lambda: theirs.posterior_precision.to_matrix(),
        "diag": lambda: torch.diag(theirs.posterior_precision),
    }[hessian]().double()
    order = [c * 6 + j for c in range(3) for j in range(5)] + [
        c * 6 + 5 for c in range(3)
    ]  # weights first, then biases
    factor = covariance_factor(ours, 0.7)[order]
    precision = torch.linalg.inv(factor @ factor.T)
    if hessian == "kron":  # laplace-torch drops the curvature between weights and bias; the blocks themselves agree
        precision[:15, 15:] = precision[15:, :15] = 0
    torch.testing.assert_close(theirs_precision, precision, rtol=1e-4, atol=1e-6)
    if hessian != "kron":
        log_likelihood = -nn.functional.cross_entropy(logits, y, reduction="sum").item()
        assert float(theirs.log_marginal_likelihood()) == pytest.approx(ours.evidence(log_likelihood, 0.7), rel=1e-5)


@pytest.mark.parametrize("hessian", HESSIANS)
def test_empirical_covariance_of_samples_is_the_posteriors(
    hessian: HessianName, iris: tuple[Tensor, Tensor, Tensor]
) -> None:
    posterior = fit(hessian, iris)
    draws = posterior.sample(20_000, np.random.default_rng(0), 1.0).reshape(20_000, 15)
    factor = covariance_factor(posterior, 1.0)
    covariance = factor @ factor.T
    error = torch.linalg.norm(torch.cov(draws.T) - covariance) / torch.linalg.norm(covariance)
    assert error < 0.05
    spread = covariance.diagonal().sqrt()
    assert ((draws.mean(0) - posterior.mean.reshape(15)).abs() / spread).max() < 4 / np.sqrt(20_000)


def test_fewer_samples_are_the_first_of_more(iris: tuple[Tensor, Tensor, Tensor]) -> None:
    posterior = fit("kron", iris)
    many = posterior.sample(100, np.random.default_rng(5), 1.0)
    few = posterior.sample(7, np.random.default_rng(5), 1.0)
    assert torch.equal(many[:7], few)


def _equal_probabilities(n: int) -> Tensor:
    return torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).expand(n, 3)


def _one_row(n: int) -> Tensor:
    return torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)


@pytest.mark.parametrize(("n", "probabilities"), [(40, _equal_probabilities), (1, _one_row)])
def test_kron_equals_full_when_rows_share_their_probabilities(n: int, probabilities: Callable[[int], Tensor]) -> None:
    phi = with_bias(torch.randn(n, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    factors = [
        covariance_factor(POSTERIORS[hessian].fit(phi, probabilities(n), torch.zeros(3, 4)), 0.4)
        for hessian in ("kron", "full")
    ]
    torch.testing.assert_close(factors[0] @ factors[0].T, factors[1] @ factors[1].T)


def test_an_overwhelming_prior_leaves_the_difference_attack_scaled_by_the_feature_norm() -> None:
    generator = torch.Generator().manual_seed(2)
    phi = with_bias(torch.randn(400, 8, generator=generator, dtype=torch.float64).relu())
    weights = torch.randn(5, 9, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (400,), generator=generator)
    posterior = POSTERIORS["kron"].fit(phi, torch.softmax(phi @ weights.T, -1), weights)
    draws = posterior.sample(200, np.random.default_rng(0), 1e12)
    s1 = sample_scores(phi, labels, weights[None], "hinge")[:, 0]
    samples = sample_scores(phi, labels, draws, "hinge")
    s0 = s1 + np.random.default_rng(1).normal(size=400)
    assert np.abs(samples - s1[:, None]).max() < 1e-3
    assert stats.spearmanr(s0 - samples.mean(1), s0 - s1).statistic > 0.9999
    t = t_test(s0, samples[None]).t
    assert stats.spearmanr(t, (s0 - s1) / torch.linalg.norm(phi, dim=1).numpy()).statistic > 0.99


def test_the_prior_scales_only_the_spread_of_linear_scores(iris: tuple[Tensor, Tensor, Tensor]) -> None:
    """A logit difference is linear in the weights, so its posterior mean is the MAP one under any prior."""
    phi, _, weights = iris
    posterior = fit("kron", iris)
    spreads = []
    for prior in (0.1, 10.0):
        draws = posterior.sample(20_000, np.random.default_rng(2), prior)
        margins = torch.einsum("nd,md->nm", phi[::30], draws[:, 0] - draws[:, 1])
        expected = phi[::30] @ (weights[0] - weights[1])
        assert ((margins.mean(1) - expected).abs() / margins.std(1)).max() < 4 / np.sqrt(20_000)
        spreads.append(margins.std(1))
    assert (spreads[0] > spreads[1]).all()


def test_cached_features_give_the_logits_of_a_full_forward_pass(
    small_network: tuple[nn.Sequential, Tensor, Tensor],
) -> None:
    model, x, y = small_network
    with torch.no_grad():
        phi = with_bias(model[:-1](x))
        posterior = POSTERIORS["kron"].fit(phi, torch.softmax(model(x), -1), last_layer_weights(model))
        draws = posterior.sample(5, np.random.default_rng(0), 1.0)
        cached = sample_scores(phi, y, draws, "hinge")
        for m, weights in enumerate(draws):
            state = {"2.weight": weights[:, :-1], "2.bias": weights[:, -1]}
            logits = torch.func.functional_call(model, state, (x,))
            torch.testing.assert_close(phi @ weights.T, logits, rtol=0, atol=1e-5)
            others = logits.scatter(-1, y[:, None], -torch.inf).amax(-1)
            expected = logits.gather(-1, y[:, None])[:, 0] - others
            np.testing.assert_allclose(cached[:, m], expected.numpy(), atol=1e-5)


def test_scores_streamed_in_blocks_equal_those_in_one(
    iris: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    phi, labels, _ = iris
    draws = fit("full", iris).sample(9, np.random.default_rng(0), 1.0)
    whole = sample_scores(phi, labels, draws, "logit")
    monkeypatch.setattr(membership_scores, "BLOCK_LOGITS", 9 * 3 * 7)  # seven rows a block
    np.testing.assert_allclose(sample_scores(phi, labels, draws, "logit"), whole, rtol=1e-12)
    assert whole.shape == (150, 9)


def test_a_full_hessian_too_large_is_refused_by_field() -> None:
    phi = torch.ones(2, 501, dtype=torch.float64)
    with pytest.raises(InputError, match=r"hessian=full: .*4,008.*kron"):
        POSTERIORS["full"].fit(phi, torch.full((2, 8), 1 / 8, dtype=torch.float64), torch.zeros(8, 501))
