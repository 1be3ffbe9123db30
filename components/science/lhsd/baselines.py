"""What the paper compares with: two other estimates from the same score, and four from neighbours in the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfp_methods.components.science.lhsd.choices import BaselineName, GapRule
from kfp_methods.components.science.lhsd.estimate import Advance, Quadrature, checked_score, evaluation_points
from kfp_methods.components.science.lhsd.lanczos import rademacher
from kfp_methods.components.science.lhsd.operator import Hessian
from kfp_methods.components.science.score_models import ScoreModel

EXACT_TRACE_FEATURES = 128
MLE_NEIGHBOURS = 20
NEIGHBOURS = 100
_VALUES_AT_ONCE = 2**22
_NOISE_STREAM = 2**33  # apart from the probes' and the evaluation points' streams


def flipd(model: ScoreModel, x: Tensor, sigma: float, quadrature: Quadrature) -> Tensor:
    """FLIPD (Kamkari et al. 2024) at points x [N, D]: D + sigma^2 (tr J + |s|^2) at a x, float64 [N].

    The trace is exact for D <= 128 (D products a point), else Hutchinson's with the probes of the quadrature. It is
    averaged over the quadrature's noised copies of each point, as LHSD is.
    """
    level = model.level(sigma)
    score, _ = checked_score(model, x, level, symmetrise=False)
    D = x.shape[1]
    exact = D <= EXACT_TRACE_FEATURES
    copies = max(1, quadrature.n_noise)
    count = D if exact else quadrature.probes
    estimates = []
    for rows in torch.arange(len(x)).split(max(1, _VALUES_AT_ONCE // (D * count * copies))):
        y = evaluation_points(x, rows, level, quadrature)
        if exact:
            v = torch.eye(D).to(y).repeat(len(y), 1)
        else:
            v = torch.cat([rademacher(quadrature.seed, int(row), count * copies, D) for row in rows]).to(y)
        product = Hessian(score, y.repeat_interleave(count, 0), symmetrise=False).transposed(v)
        per_probe = (v * product).sum(1).double().unflatten(0, (len(y), count))
        trace = per_probe.sum(1) if exact else per_probe.mean(1)
        with torch.no_grad():
            squared = score(y).double().square().sum(1)
        estimates.append((D + level.b**2 * (trace + squared)).unflatten(0, (len(rows), copies)).mean(1))
    return torch.cat(estimates).cpu()


def normal_bundle(
    model: ScoreModel,
    x: Tensor,
    sigma: float,
    *,
    seed: int,
    rule: GapRule = "difference",
    advance: Advance = lambda: None,
) -> Tensor:
    """The normal-bundle method (Stanczuk et al. 2024) at points x [N, D], float64 [N].

    The scores at 4 D points a x + b eps span the normal space: their matrix's rank is where its singular values
    fall most (by difference or by ratio), and the dimension is D minus that rank.
    """
    singular = normal_spectra(model, x, sigma, seed=seed, advance=advance)
    return bundle_dimension(singular, rule)


def bundle_dimension(singular: Tensor, rule: GapRule) -> Tensor:
    """D minus the rank of each row of descending singular values [N, D], float64 [N]."""
    return torch.tensor([singular.shape[1] - _rank(row, rule) for row in singular], dtype=torch.double)


def normal_spectra(model: ScoreModel, x: Tensor, sigma: float, *, seed: int, advance: Advance = lambda: None) -> Tensor:
    """Singular values of the 4 D scores around each of the points x [N, D], descending [N, D]."""
    level, D = model.level(sigma), x.shape[1]
    score, _ = checked_score(model, x, level, symmetrise=False)
    found = []
    for row in range(len(x)):
        generator = np.random.Generator(np.random.Philox(key=[seed, _NOISE_STREAM + row]))
        noise = torch.from_numpy(generator.standard_normal((4 * D, D), dtype=np.float32)).to(x)
        with torch.no_grad():
            scores = torch.cat([score(y) for y in (level.a * x[row] + level.b * noise).split(4096)])
        found.append(torch.linalg.svdvals(scores).cpu())
        advance()
    return torch.stack(found)


def neighbours(data: Tensor, x: Tensor, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Distances [N, k] and rows [N, k] in data [n, D] of the nearest points to x [N, D], nearest first.

    A point that is itself a row of the data is not its own neighbour; a second copy of it is.
    """
    distances, rows = [], []
    data = data.double()
    for some in x.double().split(max(1, _VALUES_AT_ONCE // len(data))):
        # Without the matrix product, equal points have distance zero exactly.
        all_distances = torch.cdist(some, data, compute_mode="donot_use_mm_for_euclid_dist")
        near, index = all_distances.topk(min(k + 1, len(data)), largest=False)
        skip = (near[:, 0] == 0).long()[:, None]
        columns = torch.arange(min(k, near.shape[1] - 1), device=x.device) + skip
        distances.append(near.gather(1, columns).cpu())
        rows.append(index.gather(1, columns).cpu())
    return torch.cat(distances).numpy(), torch.cat(rows).numpy()


def neighbour_estimate(name: BaselineName, data: Tensor, x: Tensor, seed: int) -> NDArray[np.float64]:
    """One of scikit-dimension's estimators at points x [N, D] from their neighbours in data [n, D].

    `mle` takes the distances to 20 neighbours; the others are fitted to each neighbourhood of 100.
    NaN where an estimator is undefined, as among copies of one point.
    """
    import skdim

    near, rows = neighbours(data, x, MLE_NEIGHBOURS if name == "mle" else NEIGHBOURS)
    known = data.double().cpu().numpy()
    # Copies of a point have distance zero, whose logarithm the estimators divide by; some drop them with a warning.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if name == "mle":
            found = skdim.id.MLE().fit(known, precomputed_knn_arrays=(near, rows)).dimension_pw_
        else:
            fits = {
                "twonn": lambda some: skdim.id.TwoNN().fit(some),
                "lpca": lambda some: skdim.id.lPCA().fit(some),
                "ess": lambda some: skdim.id.ESS(random_state=seed).fit_once(some),
            }
            found = [_fitted(fits[name], known[some]) for some in rows]
    values = np.asarray(found, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _fitted(fit: Callable[[NDArray[Any]], Any], neighbourhood: NDArray[Any]) -> float:
    """The estimator's dimension of these points; NaN where it finds too few different ones."""
    try:
        return float(fit(neighbourhood).dimension_)
    except ValueError:
        return float("nan")


def _rank(singular: Tensor, rule: GapRule) -> int:
    """Index of the largest fall between neighbouring singular values, counted from 1."""
    if rule == "difference":
        return int((singular[:-1] - singular[1:]).argmax()) + 1
    smallest = singular[0] * torch.finfo(singular.dtype).eps
    return int((singular[:-1] / singular[1:].clamp(min=smallest)).argmax()) + 1
