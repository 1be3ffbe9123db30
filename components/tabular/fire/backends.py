"""The regressor that a run uses, by its name, with its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kfp_methods.components.tabular.fire.choices import BackendName
from kfp_methods.components.tabular.fire.predictive import Backend, Fitted, Floats

MOST_ROWS: dict[BackendName, int] = {"pfn": 256, "gp": 1_000, "tabpfn": 2_000, "tabicl": 2_000}
_ORDERS: dict[BackendName, int] = {"pfn": 16, "gp": 1, "tabpfn": 8, "tabicl": 8}


@dataclass(frozen=True)
class BackendChoice:
    """Which regressor, with how many passes and rows of context at most (0: the usual), on which device."""

    name: BackendName = "pfn"
    n_estimators: int = 0
    max_context: int = 0
    device: str = "cpu"
    checkpoint: Path | None = None
    seed: int = 0

    @property
    def most_rows(self) -> int:
        """Of a context."""
        return self.max_context or MOST_ROWS[self.name]

    @property
    def passes(self) -> int:
        """Averaged in an answer."""
        return self.n_estimators or _ORDERS[self.name]

    def make(self, on_cut: Callable[[int, int], None] = lambda had, kept: None) -> Backend:
        """The regressor; on_cut hears of a context that was cut: how many rows it had and kept."""
        return Capped(self._plain(), self.most_rows, self.seed, on_cut)

    def _plain(self) -> Backend:
        if self.name == "gp":
            from kfp_methods.components.tabular.fire.gaussian import Gaussian

            return Gaussian()
        if self.name == "pfn":
            from kfp_methods.components.tabular.fire.pfn import Pfn

            return Pfn(self.passes, self.device)
        return self._foundation()

    def _foundation(self) -> Backend:
        from kfp_methods.components.tabular.fire.foundation import TabIcl, TabPfn

        assert self.checkpoint is not None  # noqa: S101 (the contract requires it)
        options = {"n_estimators": self.passes, "random_state": self.seed, "device": self.device}
        if self.name == "tabpfn":
            import tabpfn

            return TabPfn(lambda: tabpfn.TabPFNRegressor(model_path=str(self.checkpoint), **options))
        import tabicl

        return TabIcl(
            lambda: tabicl.TabICLRegressor(model_path=str(self.checkpoint), allow_auto_download=False, **options)
        )


class Capped:
    """Another regressor, shown a random part of a context that is too large for it."""

    def __init__(self, backend: Backend, most: int, seed: int, on_cut: Callable[[int, int], None]) -> None:
        self.backend, self.most, self.seed, self.on_cut = backend, most, seed, on_cut
        self.name, self.sees_fidelity = backend.name, backend.sees_fidelity

    def levels(self, own: int, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """The other's."""
        return self.backend.levels(own, wanted)

    def fit(self, X: Floats, y: Floats, own: int) -> Fitted:
        """On at most `most` rows."""
        if len(X) > self.most:
            self.on_cut(len(X), self.most)
            kept = np.sort(np.random.default_rng((self.seed, len(X), 1)).choice(len(X), self.most, replace=False))
            X, y = X[kept], y[kept]
        return self.backend.fit(X, y, own)
