"""Local Hessian spectral dimension: the filtered trace of the Hessian of -log p_t, by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.science.lhsd.filtering import Filter
from kfp_methods.components.science.lhsd.lanczos import Tridiagonal, lanczos, rademacher
from kfp_methods.components.science.lhsd.operator import Forward, Hessian, dense, forward_rule
from kfp_methods.components.science.score_models import Level, ScoreModel
from kfp_methods.errors import InputError, Problem

_VALUES_AT_ONCE = 2**22  # bounds the Krylov basis and the network's activations; small blocks stay in the cache
_DENSE_FEATURES = 256
_EVALUATION_POINT_SEED = 1

Advance = Callable[[], None]


@dataclass(frozen=True)
class Quadrature:
    """How spectra are taken.

    Attributes:
        probes: random sign vectors K for each point.
        steps: Lanczos steps m.
        symmetrise: 1/2 (J + J^T) or, as in the paper, J^T alone.
        n_noise: 0 evaluates at a x itself; n > 0 averages over n points a x + b eps.
        seed: of probes and noise.
    """

    probes: int = 32
    steps: int = 5
    symmetrise: bool = True
    n_noise: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Spectra:
    """What Lanczos found at N points: for each point K (times `n_noise`) tridiagonal matrices.

    Attributes:
        lanczos: alpha [N, K, m], beta [N, K, m-1].
        sigma: noise level b.
        n_features: D.
        products: derivative products for each point.
        asymmetry: |J - J^T| / |J + J^T| in Frobenius norm, estimated from the probes.
        seconds: for all points.
        copies: noised copies of each point that were averaged over, 1 where the point itself was taken.
    """

    lanczos: Tridiagonal
    sigma: float
    n_features: int
    products: int
    asymmetry: float
    seconds: float
    copies: int = 1

    def dimension(self, filter: Filter, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """LHSD [N] and its standard error [N], float64; `steps` looks at fewer Lanczos steps.

        The error is over the probes, or over the noised copies of a point: the probes at one copy share its noise.
        """
        theta, weight = self.lanczos.first(steps or self.lanczos.steps).nodes()
        estimates = self.n_features * (weight * filter(theta, self.sigma)).sum(-1)  # [N, copies * K]
        if self.copies > 1:
            estimates = estimates.unflatten(1, (self.copies, -1)).mean(2)
        return estimates.mean(1), estimates.std(1) / math.sqrt(estimates.shape[1])

    def mass(self, filter: Filter) -> tuple[float, float, float]:
        """Shares of the eigenvalues below, within and above the band around the cut, over all points."""
        theta, weight = self.lanczos.nodes()
        below, within, above = (float(part.mean()) for part in filter.mass(theta, weight, self.sigma))
        return below, within, above


def spectra(
    model: ScoreModel, x: Tensor, sigma: float, quadrature: Quadrature, advance: Advance = lambda: None
) -> Spectra:
    """Lanczos spectra of the Hessian of -log p_t at points x [N, D] (the model's coordinates) at noise level sigma.

    Args:
        advance: called after each block of points.

    Raises:
        InputError: the model's output has another shape, does not depend on its input or cannot be differentiated.
    """
    level, D = model.level(sigma), x.shape[1]
    repeats = max(1, quadrature.n_noise)
    score, how = checked_score(model, x, level, quadrature.symmetrise)
    parts, products, asymmetry = [], 0, Asymmetry()
    started = time.perf_counter()
    block = max(1, _VALUES_AT_ONCE // (D * quadrature.steps * quadrature.probes * repeats))
    for rows in torch.arange(len(x)).split(block):
        y = evaluation_points(x, rows, level, quadrature).repeat_interleave(quadrature.probes, 0)
        signs = [rademacher(quadrature.seed, int(row), quadrature.probes * repeats, D) for row in rows]
        v = torch.cat(signs).to(y)
        operator = Hessian(score, y, symmetrise=quadrature.symmetrise, how=how)
        found = lanczos(asymmetry.watching(operator, quadrature.symmetrise), v, quadrature.steps, 1 / level.b**2)
        parts.append(Tridiagonal(*(t.unflatten(0, (len(rows), -1)).cpu() for t in (found.alpha, found.beta))))
        products = operator.products * quadrature.probes * repeats
        advance()
    joined = Tridiagonal(torch.cat([p.alpha for p in parts]), torch.cat([p.beta for p in parts]))
    return Spectra(joined, level.b, D, products, asymmetry.value, time.perf_counter() - started, repeats)


def eigenvalues(model: ScoreModel, x: Tensor, sigma: float, quadrature: Quadrature) -> Tensor | None:
    """All eigenvalues of the symmetrised Hessian at points x [N, D], ascending [N, copies, D]; None above D = 256.

    quadrature: says at how many noised copies of each point, 1 for the point itself.
    """
    if x.shape[1] > _DENSE_FEATURES:
        return None
    level = model.level(sigma)
    score, _ = checked_score(model, x, level, symmetrise=False)
    y = evaluation_points(x, torch.arange(len(x)), level, quadrature)
    H = dense(score, y, max(1, _VALUES_AT_ONCE // x.shape[1] ** 2) * x.shape[1])
    return torch.linalg.eigvalsh(H.double()).cpu().unflatten(0, (len(x), -1))


def evaluation_points(x: Tensor, rows: Tensor, level: Level, quadrature: Quadrature) -> Tensor:
    """a x, or n_noise points a x + b eps of each row, together [rows * n_noise, D]; eps depends on seed and row."""
    y = level.a * x[rows]
    if quadrature.n_noise == 0:
        return y
    noise = [_noise(quadrature, int(row), x.shape[1]) for row in rows]
    return y.repeat_interleave(quadrature.n_noise, 0) + level.b * torch.cat(noise).to(y)


def checked_score(
    model: ScoreModel, x: Tensor, level: Level, symmetrise: bool
) -> tuple[Callable[[Tensor], Tensor], Forward]:
    """The score at that level, tried on two points, and how its J v is computed.

    Raises:
        InputError: see `spectra`.
    """
    y = level.a * x[:2]
    v = torch.stack([rademacher(_EVALUATION_POINT_SEED, row, 1, x.shape[1])[0] for row in range(len(y))]).to(y)
    with torch.no_grad():
        output = model.output(y, level)
    if output.shape != y.shape:
        problem = f"its output has shape {tuple(output.shape)} for points of shape {tuple(y.shape)}"
        raise InputError(Problem("model", None, problem, "Give a model with one output for each input"))
    if not output.isfinite().all():
        problem = f"its output at sigma={level.b:.4g} is not finite"
        raise InputError(Problem("model", None, problem, "Check its weights and the scale of the points"))
    _check_response(model, y, v, level)

    def score(points: Tensor) -> Tensor:
        return model.score(points, level)

    if not symmetrise:
        return score, "double-backward"
    try:
        return score, forward_rule(score, y, v)
    except (NotImplementedError, RuntimeError):
        problem = "the model can be differentiated backwards only"
        raise InputError(Problem("symmetrise", True, problem, "Give symmetrise=false (the paper's form)")) from None


def _check_response(model: ScoreModel, y: Tensor, v: Tensor, level: Level) -> None:
    try:
        response = torch.func.vjp(lambda points: model.learned(points, level), y)[1](v)[0]
    except RuntimeError:
        response = torch.zeros_like(y)
    if not response.any():
        problem = "its output does not depend on the points (all derivatives are zero)"
        remedy = "Give a trained model whose output can be differentiated with respect to its input"
        raise InputError(Problem("model", None, problem, remedy))


def _noise(quadrature: Quadrature, row: int, n_features: int) -> Tensor:
    generator = np.random.Generator(np.random.Philox(key=[quadrature.seed, 2**32 + row]))
    return torch.from_numpy(generator.standard_normal((quadrature.n_noise, n_features), dtype=np.float32))


class Asymmetry:
    """Estimates |J - J^T| / |J + J^T| from the first product of each row: E |A v|^2 = |A|^2 for random signs v."""

    def __init__(self) -> None:
        self._difference = self._sum = 0.0

    @property
    def value(self) -> float:
        return math.sqrt(self._difference / self._sum) if self._sum > 0 else 0.0

    def watching(self, operator: Hessian, symmetrise: bool) -> Callable[[Tensor], Tensor]:
        """The operator; its first product also compares J v with J^T v where both are computed."""
        first = True

        def product(v: Tensor) -> Tensor:
            nonlocal first
            if not (symmetrise and first):
                return operator(v)
            first = False
            transposed, forward = operator.transposed(v), operator.forward(v)
            self._difference += float((forward - transposed).double().square().sum())
            self._sum += float((forward + transposed).double().square().sum())
            return -(transposed + forward) / 2

        return product
