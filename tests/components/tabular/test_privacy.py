"""Gaussian noise against a maintained accountant, and the audit on mechanisms whose epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from kfp_methods.components.tabular.privacy import SecureNormals, gaussian_delta, gaussian_epsilon, gaussian_sd
from kfp_methods.components.tabular.privacy_audit import audit, epsilon_lower_bound


@pytest.mark.parametrize(
    ("epsilon", "delta", "sd"),
    [(1.0, 1e-5, 3.7306316348), (0.5, 1e-6, 8.0576184807), (1 / 3, 1e-6 / 3, 12.4712287009)],
)
def test_known_standard_deviations(epsilon: float, delta: float, sd: float) -> None:
    assert gaussian_sd(epsilon, delta, 1.0) == pytest.approx(sd, abs=1e-8)
    assert gaussian_sd(epsilon, delta, 2.5) == pytest.approx(2.5 * sd, rel=1e-10)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 30.0])
def test_a_maintained_accountant_agrees(epsilon: float, delta: float) -> None:
    accounting = pytest.importorskip("dp_accounting")
    sd = gaussian_sd(epsilon, delta, 1.0)
    assert sd == pytest.approx(accounting.get_sigma_gaussian(epsilon, delta), rel=1e-9)
    assert gaussian_epsilon(sd, delta) == pytest.approx(accounting.get_epsilon_gaussian(sd, delta), rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 4.0, 1e3, 1e6])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.05])
def test_roots_are_inverse_to_each_other_and_rounded_to_the_safe_side(epsilon: float, delta: float) -> None:
    sd = gaussian_sd(epsilon, delta, 1.0)
    assert gaussian_delta(epsilon, sd) <= delta
    assert gaussian_delta(epsilon, sd * (1 - 1e-9)) > delta
    back = gaussian_epsilon(sd, delta)
    assert gaussian_delta(back, sd) <= delta
    assert back == pytest.approx(epsilon, rel=1e-6)


def test_much_noise_costs_no_epsilon() -> None:
    assert gaussian_epsilon(1e6, 1e-5) == 0.0
    assert gaussian_epsilon(1e6, 1e-7) > 0


def test_delta_is_the_largest_gap_of_probabilities() -> None:
    """max over events of P(event) - e^epsilon Q(event), summed over a grid."""
    epsilon, sd = 0.7, 1.3
    x = np.linspace(-15, 15, 400_001)
    first, second = (np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi)) for mean in (1.0, 0.0))
    gap = np.maximum(0, first - math.exp(epsilon) * second).sum() * (x[1] - x[0])
    assert gaussian_delta(epsilon, sd) == pytest.approx(gap, rel=1e-6)


def test_secure_normals_are_normal_and_never_the_same() -> None:
    source = SecureNormals()
    drawn = source.standard_normal((50, 4_000))
    assert drawn.shape == (50, 4_000)
    assert kstest(drawn.ravel(), "norm").pvalue > 1e-6
    assert np.abs(np.corrcoef(drawn)[~np.eye(50, dtype=bool)]).max() < 0.1
    assert len(np.unique(drawn)) == drawn.size
    assert not np.array_equal(drawn, SecureNormals().standard_normal((50, 4_000)))
    assert source.standard_normal(()).shape == ()
    assert source.standard_normal((0, 3)).shape == (0, 3)


def test_the_lower_bound_is_clopper_and_pearson_s() -> None:
    low = binomtest(900, 1_000).proportion_ci(0.95, "exact").low
    high = binomtest(30, 1_000).proportion_ci(0.95, "exact").high
    expected = math.log((low - 1e-3) / high)
    assert epsilon_lower_bound(900, 30, 1_000, delta=1e-3) == pytest.approx(expected, rel=1e-9)
    assert epsilon_lower_bound(30, 900, 1_000, delta=1e-3) == 0.0
    assert epsilon_lower_bound(0, 0, 1_000, delta=0.0) == 0.0
    extreme = 0.025 ** (1 / 1_000)  # no failure in 1,000 trials
    assert epsilon_lower_bound(1_000, 0, 1_000, delta=0.0) == pytest.approx(math.log(extreme / (1 - extreme)), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_audit_of_a_laplace_mechanism_comes_near_its_epsilon_from_below(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    first, second = (mean + rng.laplace(scale=1 / epsilon, size=100_000) for mean in (1.0, 0.0))
    found = audit(first, second, delta=0.0)
    assert 0.8 * epsilon < found.epsilon <= epsilon
    turned = audit(-second, -first, delta=0.0)
    assert 0.8 * epsilon < turned.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_audit_of_gaussian_noise_stays_below_and_catches_too_little(epsilon: float) -> None:
    delta, rng = 1e-3, np.random.default_rng(1)
    sd = gaussian_sd(epsilon, delta, 1.0)

    def scores(divisor: float) -> list[np.ndarray]:
        return [mean + sd / divisor * rng.standard_normal(20_000) for mean in (1.0, 0.0)]

    assert audit(*scores(1.0), delta=delta).epsilon <= epsilon
    caught = audit(*scores(3.0), delta=delta)
    assert caught.epsilon > epsilon
    assert caught.with_row != caught.without_row


def test_the_bound_holds_as_often_as_it_says() -> None:
    """Of a mechanism without any difference, at most 5% of the audits prove something."""
    rng = np.random.default_rng(2)
    proven = [audit(rng.normal(size=400), rng.normal(size=400), delta=0.0).epsilon > 0 for _ in range(400)]
    assert binomtest(sum(proven), 400, 0.05, "greater").pvalue > 1e-3


_NOTHING = [
    (np.zeros(39), np.zeros(39)),
    (np.zeros(50), np.zeros(60)),
    (np.full(50, np.nan), np.zeros(50)),
]


@pytest.mark.parametrize(("first", "second"), _NOTHING)
def test_scores_that_prove_nothing_are_refused(first: np.ndarray, second: np.ndarray) -> None:
    with pytest.raises(ValueError, match="score"):
        audit(first, second, delta=0.0)


def test_equal_scores_prove_nothing() -> None:
    assert audit(np.zeros(100), np.zeros(100), delta=0.0).epsilon == 0.0
