"""The membership scores that the paper compares with, all from the same target and the same references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from kfp_methods.components.tabular.bmia.architectures import build
from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.decision import SMALLEST_SD
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.training import derived_seed
from kfp_methods.networks import one_core


def lira_fixed(target_scores: Floats, reference_scores: Floats) -> Floats:
    """Offline LiRA with one variance for all records (Carlini et al., arXiv 2112.03570): s0 - mean_ref.

    With one reference it is the difference attack. `target_scores` [n], `reference_scores` [K, n]; [n].
    """
    return target_scores - reference_scores.mean(0)


def lira_per_record(target_scores: Floats, reference_scores: Floats) -> Floats:
    """Offline LiRA with each record's own standard deviation over K >= 3 references (ddof 0)."""
    return lira_fixed(target_scores, reference_scores) / np.maximum(reference_scores.std(0), SMALLEST_SD)


def attack_r(target_scores: Floats, reference_scores: Floats) -> Floats:
    """Attack-R (Ye et al., arXiv 2111.09679): share of the references that score lower; only K+1 levels."""
    return (reference_scores < target_scores).mean(0)


def rmia(
    target: Floats,
    references: Floats,
    target_population: Floats,
    references_population: Floats,
    *,
    a: float = 0.3,
    gamma: float = 2.0,
) -> Floats:
    """Offline RMIA (Zarifzadeh et al., arXiv 2312.03262): share of the population that the record outdoes.

    ratio(x) = p_target(x) / p(x) with p(x) = ((1+a) p_ref(x) + (1-a)) / 2; score = share of z with
    ratio(x) >= gamma ratio(z).

    Args:
        target: true-class probabilities of the records under the target [n].
        references: the same under the references [K, n].
        target_population: of population records that are no members [z].
        references_population: [K, z].
        a: how much the references' probability moves with membership.
        gamma: by what factor a record must outdo another.

    Returns:
        Scores in [0, 1], [n].
    """

    def ratio(p_target: Floats, p_references: Floats) -> Floats:
        return p_target / (((1 + a) * p_references.mean(0) + (1 - a)) / 2)

    bars = np.sort(gamma * ratio(target_population, references_population))
    return np.searchsorted(bars, ratio(target, references), side="right") / len(bars)


@dataclass(frozen=True)
class ScoreRegression:
    """Gaussian QMIA (Bertran et al., arXiv 2307.03694): no reference, a regression of a non-member's score.

    A network of one hidden layer predicts mean and log standard deviation of the target's score from the
    record and its label.

    Attributes:
        net: from inputs and one-hot labels to the two numbers, of standardised scores.
        n_classes: number of classes C.
        centre: subtracted from scores.
        scale: by which they are divided then.
    """

    net: nn.Sequential
    n_classes: int
    centre: float
    scale: float

    @classmethod
    @one_core()
    def fit(
        cls, records: Records, scores: Floats, n_classes: int, *, seed: int, device: str = "cpu", epochs: int = 20
    ) -> Self:
        """Fits known non-members.

        Args:
            records: v of them.
            scores: theirs under the target [v].
            n_classes: number of classes C.
            seed: of initial weights and batch order.
            device: where to fit.
            epochs: passes over the records.
        """
        centre, scale = float(scores.mean()), max(float(scores.std()), SMALLEST_SD)
        wanted = torch.from_numpy((scores - centre) / scale).float().to(device)
        net = _fitted_gaussian(_with_label(records, n_classes).to(device), wanted, seed, epochs)
        return cls(net, n_classes, centre, scale)

    @one_core()
    @torch.no_grad()
    def excess(self, records: Records, scores: Floats) -> Floats:
        """How far records' target scores [n] lie above what is expected of non-members, in standard deviations [n]."""
        device = next(self.net.parameters()).device
        mean, log_sd = _mean_and_log_sd(self.net, _with_label(records, self.n_classes).to(device))
        above = (scores - self.centre) / self.scale - mean.double().cpu().numpy()
        return above / log_sd.double().exp().cpu().numpy()


def _with_label(records: Records, n_classes: int) -> Tensor:
    label = nn.functional.one_hot(records.y, n_classes).float()
    return torch.cat([records.x.flatten(1), label], dim=1)


def _mean_and_log_sd(net: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_sd = net(inputs).unbind(-1)
    return mean, log_sd.clamp(-3, 3)


def _fitted_gaussian(inputs: Tensor, wanted: Tensor, seed: int, epochs: int) -> nn.Sequential:
    """Gaussian negative log-likelihood, Adam at 1e-3 with weight decay 1e-3, batches of 128."""
    net = build("mlp", inputs.shape[1:], 2, seed=derived_seed(seed, 0), hidden=(256,)).to(inputs.device)
    order = torch.Generator().manual_seed(derived_seed(seed, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-3, fused=True)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs), generator=order).to(inputs.device).split(128):
            optimiser.zero_grad()
            mean, log_sd = _mean_and_log_sd(net, inputs[batch])
            loss = (log_sd + 0.5 * ((wanted[batch] - mean) * (-log_sd).exp()).square()).mean()
            loss.backward()
            optimiser.step()
    return net
