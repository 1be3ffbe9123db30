"""Comparisons by context and ordered pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kfp_methods.components.tabular.dmlrank.pairs import Floats, Ints, Pairs


@dataclass(frozen=True)
class Comparisons:
    """n contexts, K models, P = K (K - 1) ordered pairs, C classes of verdicts.

    Attributes:
        models: names [K].
        contexts: ids [n], sorted.
        x: features of contexts [n, p].
        verdict: class of each context and pair [n, P]; -1 where it was not labelled.
        propensity: probability with which each was labelled [n, P]; None where it must be estimated.
        judge: a judge's probabilities of win, loss, tie for every context and pair [n, P, 3]; None without.
        ordered: whether the model shown first is known; else all verdicts are at j < k.
    """

    models: tuple[str, ...]
    contexts: tuple[str, ...]
    x: Floats
    verdict: NDArray[np.int8]
    classes: int
    propensity: Floats | None
    judge: Floats | None = None
    ordered: bool = True

    @property
    def pairs(self) -> Pairs:
        """Of the models."""
        return Pairs(len(self.models))

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """S [n, P]."""
        return np.asarray(self.verdict >= 0)

    def take(self, rows: Ints) -> Comparisons:
        """Some contexts."""
        return replace(
            self,
            contexts=tuple(self.contexts[i] for i in rows.tolist()),
            x=self.x[rows],
            verdict=self.verdict[rows],
            propensity=None if self.propensity is None else self.propensity[rows],
            judge=None if self.judge is None else self.judge[rows],
        )


def hashed_order(contexts: tuple[str, ...], seed: int) -> Ints:
    """Ranks of the contexts' keyed hashes [n]: as good as a random order, and the same for any order of rows."""
    key = seed.to_bytes(8, "little", signed=True)
    hashes = [
        blake2b(context.encode("utf-8", "surrogatepass"), key=key, digest_size=8).digest() for context in contexts
    ]
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def folds(contexts: tuple[str, ...], V: int, seed: int) -> Ints:
    """Fold of each context [n], balanced."""
    return hashed_order(contexts, seed) % V
