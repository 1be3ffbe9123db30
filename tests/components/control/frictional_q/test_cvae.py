"""The contrastive VAE's parts by hand."""

from __future__ import annotations

import math

import pytest
import torch

from kfp_methods.components.control.frictional_q.cvae import ContrastiveVAE, Discriminator, Latent, mean_of
from kfp_methods.networks import generators


def vae(members: int = 2, max_action: float = 1.5) -> ContrastiveVAE:
    return ContrastiveVAE(4, 3, 6, 16, max_action, generators(range(members)))


def test_a_known_divergence() -> None:
    latent = Latent(torch.tensor([0.5, -0.2]), torch.tensor([0.0, -1.0]))
    assert latent.kl().item() == pytest.approx(0.712668, abs=1e-6)
    assert Latent(torch.zeros(5), torch.zeros(5)).kl().item() == 0


def test_an_untrained_discriminator_guesses() -> None:
    discriminator = Discriminator(6, generators([0, 1]))
    with torch.no_grad():
        for weight in discriminator.parameters():
            weight.zero_()
    shared, z = torch.randn(2, 10, 6), torch.randn(2, 10, 6)
    torch.testing.assert_close(discriminator.loss(shared, z), torch.full((2,), 2 * math.log(2)))
    assert discriminator.total_correlation(shared, z).tolist() == [0.0, 0.0]


def test_the_discriminator_crosses_halves_and_leaves_out_an_odd_row() -> None:
    discriminator = Discriminator(2, generators([3]))
    shared, z = torch.randn(1, 5, 2), torch.randn(1, 5, 2)
    d = [[discriminator(shared[:, i : i + 1], z[:, j : j + 1]).item() for j in range(5)] for i in range(5)]
    pairs, crossed = [d[i][i] for i in range(4)], [d[0][2], d[1][3], d[2][0], d[3][1]]
    expected = -sum(map(math.log, pairs)) / 4 - sum(math.log(1 - p) for p in crossed) / 4
    assert discriminator.loss(shared, z).item() == pytest.approx(expected, rel=1e-5)
    expected = sum(math.log(p / (1 - p)) for p in pairs) / 4
    assert discriminator.total_correlation(shared, z).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_nothing_decodes_to_nothing() -> None:
    """No layer has a bias."""
    model = vae()
    assert not [name for name, _ in model.named_parameters() if "bias" in name]
    nothing = model.decode(torch.zeros(2, 5, 4), torch.zeros(2, 5, 6), torch.zeros(2, 5, 6))
    assert torch.equal(nothing, torch.zeros(2, 5, 3))


def test_actions_stay_in_the_box() -> None:
    decoded = vae().decode(torch.randn(2, 50, 4) * 1e3, torch.randn(2, 50, 6) * 1e3, torch.randn(2, 50, 6) * 1e3)
    assert decoded.abs().max() <= 1.5


def test_the_log_std_is_bounded() -> None:
    bounds = torch.full((2, 1, 1), -5.0), torch.full((2, 1, 1), 2.0)
    found = vae().tangent(torch.randn(2, 50, 7) * 1e4, bounds).log_std
    assert (found.min().item(), found.max().item()) == (-5.0, 2.0)


def test_absent_rows_do_not_count() -> None:
    values = torch.tensor([[1.0, 2.0, 9.0], [4.0, 5.0, 6.0]])
    weights = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert mean_of(values, weights).tolist() == [1.5, 0.0]
