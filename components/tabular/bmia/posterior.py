"""A trained classifier's last layer becomes a Gaussian over weights: the Laplace approximation.

N(w1, Sigma) with Sigma^-1 = H + prior precision * I, H the generalised Gauss-Newton Hessian of the summed
cross-entropy on the training data. With features phi (d numbers and a trailing 1) and class probabilities p,
a record adds (diag p - p p') (x) phi phi' to H. The three classes approximate H differently and share all
else: each gives H's eigenvalues and the rotation from its eigenbasis, so that evidence, prior and sampling
are exact for that structure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from kfp_methods.components.tabular.bmia.choices import HessianName
from kfp_methods.errors import InputError, Problem

LOG_PRIOR_RANGE = (-12.0, 12.0)
LARGEST_FULL_HESSIAN = 4_000


@dataclass(frozen=True)
class LastLayerLaplace(ABC):
    """Gaussian posterior of last-layer weights; float64 on the device of what it was fitted to.

    Attributes:
        mean: the trained weights w1 with the bias as last column [C, D], D = d+1.
        eigenvalues: of H, not negative, arranged [C, D].
    """

    mean: Tensor
    eigenvalues: Tensor

    @classmethod
    @abstractmethod
    def fit(cls, features: Tensor, probabilities: Tensor, weights: Tensor) -> Self:
        """The posterior around trained weights, from its training data.

        Args:
            features: penultimate features with a trailing 1 [n, D] (see `with_bias`).
            probabilities: softmax outputs at the trained weights [n, C].
            weights: trained weights, the bias as last column [C, D].
        """

    @abstractmethod
    def rotate(self, coordinates: Tensor) -> Tensor:
        """From H's eigenbasis to weights: [M, C, D] to [M, C, D]."""

    def offsets(self, noise: Tensor, prior_precision: float) -> Tensor:
        """Standard normal `noise` [M, C, D] becomes draws from N(0, Sigma) [M, C, D]."""
        return self.rotate(noise * (self.eigenvalues + prior_precision).rsqrt())

    def sample(self, n_samples: int, generator: np.random.Generator, prior_precision: float) -> Tensor:
        """`n_samples` weight matrices [M, C, D]; fewer samples are the first of more."""
        noise = generator.standard_normal((n_samples, *self.mean.shape))
        return self.mean + self.offsets(torch.from_numpy(noise).to(self.mean.device), prior_precision)

    def evidence(self, log_likelihood: float, prior_precision: float) -> float:
        """Laplace's log marginal likelihood of the training data.

        log p(y|w1) - (1/2) [ sum_e ln(e + prior) - P ln prior + prior ||w1||^2 ] over P = C D eigenvalues e.

        Args:
            log_likelihood: summed log-likelihood of the training data at the trained weights.
            prior_precision: precision of the zero-mean isotropic Gaussian prior.
        """
        log_ratio = torch.log1p(self.eigenvalues / prior_precision).sum()
        return log_likelihood - 0.5 * float(log_ratio + prior_precision * self.mean.square().sum())

    def optimal_prior_precision(self) -> float:
        """The prior precision of greatest evidence in exp(-12)..exp(12); the weights stay as trained.

        The evidence is stationary where sum_e e / (e + prior) = prior ||w1||^2 (MacKay's effective number of
        parameters). As it grows the left side falls and the right rises: one root, by Brent's method.
        """
        eigenvalues = self.eigenvalues.flatten().cpu().numpy()
        squared_norm = float(self.mean.square().sum())

        def slope(log_prior: float) -> float:
            prior = math.exp(log_prior)
            return float(np.sum(eigenvalues / (eigenvalues + prior))) - prior * squared_norm

        low, high = LOG_PRIOR_RANGE
        if slope(low) <= 0:
            return math.exp(low)
        if slope(high) >= 0:
            return math.exp(high)
        return math.exp(brentq(slope, low, high, xtol=1e-12))


@dataclass(frozen=True)
class KronLaplace(LastLayerLaplace):
    """H = n B (x) A with A = mean phi phi' = V diag(a) V' and B = mean (diag p - p p') = U diag(b) U'.

    Attributes:
        U: eigenvectors of B [C, C].
        V: eigenvectors of A [D, D].
    """

    U: Tensor
    V: Tensor

    @classmethod
    def fit(cls, features: Tensor, probabilities: Tensor, weights: Tensor) -> Self:
        phi, p, n = features.double(), probabilities.double(), len(features)
        a, V = torch.linalg.eigh(phi.T @ phi / n)
        b, U = torch.linalg.eigh(p.mean(0).diag() - p.T @ p / n)
        return cls(weights.double(), n * torch.outer(b.clamp(min=0), a.clamp(min=0)), U, V)

    def rotate(self, coordinates: Tensor) -> Tensor:
        return self.U @ coordinates @ self.V.T


@dataclass(frozen=True)
class DiagLaplace(LastLayerLaplace):
    """The diagonal of H alone: h_cj = sum_i p_ic (1 - p_ic) phi_ij^2."""

    @classmethod
    def fit(cls, features: Tensor, probabilities: Tensor, weights: Tensor) -> Self:
        phi, p = features.double(), probabilities.double()
        return cls(weights.double(), (p * (1 - p)).T @ phi.square())

    def rotate(self, coordinates: Tensor) -> Tensor:
        return coordinates


@dataclass(frozen=True)
class FullLaplace(LastLayerLaplace):
    """H whole, for C D of at most 4,000.

    Attributes:
        Q: eigenvectors of H [C D, C D].
    """

    Q: Tensor

    @classmethod
    def fit(cls, features: Tensor, probabilities: Tensor, weights: Tensor) -> Self:
        C, D = weights.shape
        check_full(C * D)
        phi, p = features.double(), probabilities.double()
        H = phi.new_zeros(C, D, C, D)
        for c in range(C):
            for k in range(c, C):
                curvature = p[:, c] * (float(c == k) - p[:, k])
                H[c, :, k] = H[k, :, c] = (phi * curvature[:, None]).T @ phi
        h, Q = torch.linalg.eigh(H.reshape(C * D, C * D))
        return cls(weights.double(), h.clamp(min=0).reshape(C, D), Q)

    def rotate(self, coordinates: Tensor) -> Tensor:
        return (coordinates.flatten(1) @ self.Q.T).reshape(coordinates.shape)


POSTERIORS: dict[HessianName, type[LastLayerLaplace]] = {
    "kron": KronLaplace,
    "diag": DiagLaplace,
    "full": FullLaplace,
}


def check_full(n_weights: int) -> None:
    """Raises InputError unless the full Hessian of a last layer of so many weights can be decomposed."""
    if n_weights > LARGEST_FULL_HESSIAN:
        problem = f"the last layer has {n_weights:,} weights, more than the {LARGEST_FULL_HESSIAN:,} it is for"
        raise InputError(Problem("hessian", "full", problem, "Use kron or diag"))


def with_bias(features: Tensor) -> Tensor:
    """Penultimate features [n, d] with a trailing 1, float64 [n, d+1]."""
    return torch.nn.functional.pad(features.double(), (0, 1), value=1.0)
