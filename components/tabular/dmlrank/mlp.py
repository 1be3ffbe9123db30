"""A small perceptron of the verdicts' probabilities, for many comparisons on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import nn

from kfp_methods.components.tabular.dmlrank.pairs import Floats, Ints

_WIDTH, _EPOCHS, _BATCH, _LR, _DECAY = 64, 40, 512, 2e-3, 1e-3
_PREDICTED = 100_000


@dataclass(frozen=True)
class Perceptron:
    """Two hidden layers; classes_ as scikit-learn has them."""

    network: nn.Sequential
    classes_: Ints
    device: str

    @classmethod
    def fit(cls, X: Floats, y: Ints, seed: int, device: str) -> Self:
        """By AdamW and cross entropy on X [m, d], y [m]."""
        classes, codes = np.unique(y, return_inverse=True)
        rng = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = nn.Sequential(
                nn.Linear(X.shape[1], _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU(),
                nn.Linear(_WIDTH, len(classes)),
            ).to(device)  # fmt: skip
        inputs, targets = torch.tensor(X, dtype=torch.float32, device=device), torch.tensor(codes, device=device)
        optimiser = torch.optim.AdamW(network.parameters(), lr=_LR, weight_decay=_DECAY)
        for _ in range(_EPOCHS):
            for part in torch.randperm(len(X), generator=rng).to(device).split(_BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(inputs[part]), targets[part]).backward()
                optimiser.step()
        return cls(network, classes, device)

    @torch.no_grad()
    def predict_proba(self, X: Floats) -> Floats:
        """[m, C]."""
        parts = torch.tensor(X, dtype=torch.float32).split(_PREDICTED)
        found = [self.network(part.to(self.device)).double().softmax(1).cpu().numpy() for part in parts]
        return np.concatenate(found)
