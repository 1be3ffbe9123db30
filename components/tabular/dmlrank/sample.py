"""Comparisons whose truth is known: a made world, classifiers of digits, and a world with a cycle.

The paper's own generator (its appendix J) could not be had; this one takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kfp_methods.components.tabular.dmlrank.choices import LOSS, TIE, WIN
from kfp_methods.components.tabular.dmlrank.comparisons import Comparisons
from kfp_methods.components.tabular.dmlrank.functionals import Value
from kfp_methods.components.tabular.dmlrank.pairs import Floats, Pairs

_TRUTH = 40_000
_DIMENSIONS = 5


@dataclass(frozen=True)
class World:
    """K models on x ~ N(0, I_5): u_j = b_j + w_j'x + sin(2 x_1) c_j / 2; verdicts may be ties, and favour the first."""

    K: int
    w: Floats
    b: Floats
    c: Floats

    @classmethod
    def drawn(cls, seed: int, K: int = 5) -> World:
        """By its seed."""
        w = 0.6 * np.random.default_rng(seed).standard_normal((K, _DIMENSIONS))
        return cls(K, w, 0.5 * np.linspace(1, -1, K), np.linspace(-1, 1, K))

    def mu(self, x: Floats) -> Floats:
        """True probabilities of win, loss, tie [n, P, 3]."""
        pairs = Pairs(self.K)
        u = self.b + x @ self.w.T + 0.5 * np.sin(2 * x[:, :1]) * self.c
        gap = (u[:, pairs.j] - u[:, pairs.k]) / 2 + 0.2
        logits = np.stack([gap, -gap, np.full_like(gap, -0.3)], axis=-1)
        likely = np.exp(logits)
        return np.asarray(likely / likely.sum(-1, keepdims=True))

    def propensity(self, x: Floats) -> Floats:
        """pi_jk = 0.05 + 0.15 sigmoid(x_j - x_k), independent for each pair [n, P]."""
        pairs, wide = Pairs(self.K), np.resize(np.arange(_DIMENSIONS), self.K)
        return 0.05 + 0.15 / (1 + np.exp(x[:, wide[pairs.k]] - x[:, wide[pairs.j]]))

    def contexts(self, n: int, seed: int) -> Floats:
        """x [n, 5]."""
        return np.random.default_rng([seed, n, 1]).standard_normal((n, _DIMENSIONS))

    def truth(self, F: Value) -> Floats:
        """E[F(mu(X))] [K], by 40,000 draws."""
        x = np.random.default_rng([self.K, 2]).standard_normal((_TRUTH, _DIMENSIONS))
        return np.mean([F(Pairs(self.K), self.mu(part)).mean(0) for part in np.array_split(x, 20)], axis=0)

    def draw(self, n: int, seed: int) -> Comparisons:
        """n contexts with their labelled comparisons."""
        x, rng = self.contexts(n, seed), np.random.default_rng([seed, n, 3])
        mu, pi = self.mu(x), self.propensity(x)
        verdict = said(mu, rng)
        verdict[rng.random(pi.shape) >= pi] = -1
        return Comparisons(_names(self.K), _ids(n), x, verdict, 3, pi)


def said(mu: Floats, rng: np.random.Generator) -> np.ndarray:
    """A verdict for every pair, drawn from mu [n, P]."""
    return np.asarray((rng.random(mu.shape[:2])[..., None] > np.cumsum(mu, -1)[..., :-1]).sum(-1), np.int8)


def cycle(n: int, seed: int, *, often: tuple[int, int]) -> Comparisons:
    """Rock, paper, scissors, and a fourth model that loses to all: 0 beats 1, 1 beats 2, 2 beats 0, each by 80%.

    often: the pair that is labelled six times as often as others, in either order.
    """
    rng, pairs = np.random.default_rng([seed, n, *often, 4]), Pairs(4)
    pi = np.full((n, pairs.size), 0.05)
    pi[:, [pairs.at(*often), pairs.at(*often[::-1])]] = 0.3  # type: ignore[arg-type]
    verdict = said(np.tile(cycle_mu(), (n, 1, 1)), rng)
    verdict[rng.random(pi.shape) >= pi] = -1
    return Comparisons(("rock", "paper", "scissors", "pebble"), _ids(n), rng.standard_normal((n, 1)), verdict, 3, pi)


def cycle_mu() -> Floats:
    """Of the cycle [1, 12, 3]; one verdict in ten is a tie."""
    wins = np.full((4, 4), 0.5)
    for better, worse in ((0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3)):
        wins[better, worse], wins[worse, better] = 0.8, 0.2
    flat = 0.9 * Pairs(4).flat(wins)
    return np.stack([flat, 0.9 - flat, np.full_like(flat, 0.1)], axis=-1)[None]


@dataclass(frozen=True)
class Digits:
    """Classifiers of handwritten digits as models, test images as contexts; every verdict is known.

    Attributes:
        verdict [n, P]: whoever gives the true class more probability, by more than 0.05; else a tie.
        borda [K]: the truth of these contexts.
    """

    models: tuple[str, ...]
    x: Floats
    verdict: np.ndarray
    borda: Floats

    def draw(self, seed: int) -> Comparisons:
        """Pairs labelled with probability 0.05 + 0.2 sigmoid(first component); the judge errs on a fifth."""
        rng, n = np.random.default_rng([seed, 5]), len(self.x)
        pi = np.tile(0.05 + 0.2 / (1 + np.exp(-self.x[:, :1])), (1, self.verdict.shape[1]))
        verdict = np.where(rng.random(pi.shape) < pi, self.verdict, -1).astype(np.int8)
        return Comparisons(self.models, _ids(n), self.x, verdict, 3, pi)

    def judge(self, seed: int, error: float = 0.2) -> Floats:
        """The verdict as one-hot [n, P, 3], but another one in a share `error`; error = 1 knows nothing at all."""
        rng = np.random.default_rng([seed, 6])
        drawn = rng.integers(0, 3, self.verdict.shape)
        other = (self.verdict + rng.integers(1, 3, self.verdict.shape)) % 3
        wrong = drawn if error == 1 else other
        return np.eye(3)[np.where(rng.random(self.verdict.shape) < error, wrong, self.verdict)]


@lru_cache(maxsize=1)
def digits() -> Digits:
    """Trained on 797 images of scikit-learn's digits, 1,000 others are the contexts."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[1_000:], order[:1_000]
    models = _classifiers()
    right = [
        model.fit(X[train], y[train]).predict_proba(X[test])[np.arange(1_000), y[test]] for model in models.values()
    ]
    pairs, p = Pairs(len(models)), np.array(right).T
    gap = p[:, pairs.j] - p[:, pairs.k]
    verdict = np.where(gap > 0.05, WIN, np.where(gap < -0.05, LOSS, TIE))
    components = PCA(10, random_state=0).fit(X[train]).transform(X[test])
    components /= components.std(0)
    won = np.zeros((1_000, len(models)))
    for j in range(len(models)):
        won[:, j] = (verdict[:, pairs.j == j] == WIN).mean(1)
    return Digits(tuple(models), components, verdict, won.mean(0))


def _classifiers() -> dict[str, Any]:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)),
        "logistic, weak": make_pipeline(StandardScaler(), LogisticRegression(C=1e-3, max_iter=300)),
        "5 neighbours": KNeighborsClassifier(5),
        "25 neighbours": KNeighborsClassifier(25),
        "tree": DecisionTreeClassifier(max_depth=8, random_state=0),
        "forest": RandomForestClassifier(50, random_state=0),
        "naive Bayes": GaussianNB(var_smoothing=1e-2),
        "discriminant": LinearDiscriminantAnalysis(),
    }


def _names(K: int) -> tuple[str, ...]:
    return tuple(f"model {chr(65 + j)}" for j in range(K))


def _ids(n: int) -> tuple[str, ...]:
    return tuple(f"{i:06d}" for i in range(n))
