"""The shipped prior-fitted network as a regressor: nothing is fitted, the context is read with each question."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch

from kfp_methods.components.tabular.fire.bars import Bars
from kfp_methods.components.tabular.fire.network import SLOTS, PriorFittedNetwork, standardise
from kfp_methods.components.tabular.fire.predictive import FEW, Floats, Predictive, TooManyColumnsError

WEIGHTS = Path(__file__).with_name("pfn.safetensors")
TRAINED_CONTEXT = 128
_ORDERS_SEED = 0
_ROWS_AT_ONCE = 4_096


@cache
def network(path: Path = WEIGHTS, device: str = "cpu") -> tuple[PriorFittedNetwork, Bars]:
    """The network and its bars."""
    from safetensors.torch import load_file

    tensors = load_file(path, device=device)
    borders = tensors.pop("borders")
    net = PriorFittedNetwork().to(device)
    net.load_state_dict(tensors)
    return net.eval().requires_grad_(False), Bars(borders.double().cpu())


class Pfn:
    """Averages the bins' probabilities over `n_orders` orders of the user's columns, on which a pass depends."""

    name, sees_fidelity = "pfn", True

    def __init__(self, n_orders: int = 16, device: str = "cpu", path: Path = WEIGHTS) -> None:
        self.n_orders, self.device, self.path = n_orders, device, path

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """Those asked for where mean, variance and they fit into the slots beside the user's columns, else two."""
        return wanted if own + 2 + len(wanted) <= SLOTS else FEW

    def fit(self, X: Floats, y: Floats, own: int) -> FittedPfn:
        """Keeps the context. Raises TooManyColumnsError for more columns than the network has slots."""
        varying = np.flatnonzero(np.ptp(X, axis=0) > 0)
        if len(varying) > SLOTS:
            raise TooManyColumnsError(f"{len(varying)} columns are more than the network's {SLOTS}")
        return FittedPfn(self, X, y, varying, int((varying < own).sum()))


class FittedPfn:
    """A context; `varying` are its columns that are not constant, the first `own` of which may change places."""

    def __init__(self, pfn: Pfn, X: Floats, y: Floats, varying: np.ndarray, own: int) -> None:
        self.pfn, self.varying = pfn, varying
        self.context = torch.from_numpy(self._columns(X))[None]
        self.mean, self.sd = float(y.mean()), float(y.std())
        self.y = torch.from_numpy((y - self.mean) / self.sd).float()
        self.orders = _orders(own, self.context.shape[-1], pfn.n_orders)

    def predict(self, X: Floats) -> Predictive:
        """Of the rows X [m, F]."""
        blocks = np.array_split(self._columns(X), max(1, -(-len(X) // _ROWS_AT_ONCE)))
        p = torch.cat([self._probabilities(torch.from_numpy(block)[None]) for block in blocks])
        _, bars = network(self.pfn.path, self.pfn.device)
        mean, variance = bars.moments(p)
        found = Predictive(
            mean.numpy(), variance.numpy(), lambda levels: bars.quantiles(p, torch.from_numpy(levels)).numpy()
        )
        return found.scaled(self.mean, self.sd)

    def _columns(self, X: Floats) -> np.ndarray:
        return X[:, self.varying] if len(self.varying) else np.zeros((len(X), 1))

    @torch.no_grad()
    def _probabilities(self, queries: torch.Tensor) -> torch.Tensor:
        """Of each bin, float64 [m, bins], averaged over the orders."""
        net, _ = network(self.pfn.path, self.pfn.device)
        context, queries = (part.float().to(self.pfn.device) for part in standardise(self.context, queries))
        shown = [part[0][:, self.orders].transpose(0, 1) for part in (context, queries)]
        logits = net(shown[0], self.y.to(self.pfn.device).expand(len(self.orders), -1), shown[1])
        return logits.double().softmax(-1).mean(0).cpu()


def _orders(own: int, n_columns: int, wanted: int) -> torch.Tensor:
    """Orders of the columns [k, n_columns]: as given first; the last n_columns - own stay where they are."""
    rng, rest = np.random.default_rng(_ORDERS_SEED), np.arange(own, n_columns)
    first = [np.arange(own)] + [rng.permutation(own) for _ in range(wanted - 1)]
    return torch.from_numpy(np.stack([np.r_[order, rest] for order in first]))
