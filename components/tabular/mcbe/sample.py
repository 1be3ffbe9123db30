"""Digits-Arithm: two handwritten digits and an operator between them; y is the result, the digits are the concepts.

The paper's MNIST-Arithm on scikit-learn's digits (8x8). The operator is no concept: the selector must read it.
"""

from __future__ import annotations

import numpy as np

from kfp_methods.components.tabular.mcbe.data import Data, Floats

OPERATORS = ("+", "-", "*", "/")
_FIRST_TEST = 1_200  # images from here on are only in test rows
_NOISE = 0.1


def glyphs() -> Floats:
    """Strokes of value 1, 8x8, of the four operators."""
    drawn = np.zeros((4, 8, 8))
    drawn[0, 3:5, 1:7] = drawn[0, 1:7, 3:5] = 1
    drawn[1, 3:5, 1:7] = 1
    for i in range(8):
        drawn[2, i, i] = drawn[2, i, 7 - i] = 1
        drawn[3, i, 7 - i] = 1
    return drawn


def results(a: Floats, b: Floats, operator: np.ndarray) -> Floats:
    """y of digits and operators."""
    with np.errstate(divide="ignore"):
        return np.choose(operator, [a + b, a - b, a * b, np.divide(a, b, out=np.zeros_like(a), where=b != 0)])


def digits(train: int, validation: int, test: int, seed: int) -> Data:
    """Rows [digit a | operator | digit b], 8x24 pixels; no image is both in a test row and in another."""
    from sklearn.datasets import load_digits

    images, labels = load_digits().images / 16, load_digits().target.astype(float)
    rng = np.random.default_rng([seed, 1])
    x, c, y, group, part = [], [], [], [], []
    for number, n in enumerate((train, validation, test)):
        pool = np.arange(_FIRST_TEST) if number < 2 else np.arange(_FIRST_TEST, len(labels))
        a, operator = rng.choice(pool, n), rng.integers(0, 4, n)
        divisors = pool[labels[pool] > 0]
        b = np.where(operator == 3, rng.choice(divisors, n), rng.choice(pool, n))
        middle = glyphs()[operator] + rng.normal(0, _NOISE, (n, 8, 8))
        x.append(np.concatenate([images[a], middle, images[b]], axis=2).reshape(n, -1))
        c.append(np.column_stack([labels[a], labels[b]]))
        y.append(results(labels[a], labels[b], operator)[:, None])
        group.append(operator)
        part.append(np.full(n, number))
    return Data(
        x=np.concatenate(x).astype(np.float32),
        c=np.concatenate(c),
        y=np.concatenate(y),
        part=np.concatenate(part),
        c_names=("a", "b"),
        y_names=("result",),
        binary=(False, False),
        group=np.concatenate(group),
        groups=OPERATORS,
        standardised=False,
    )


def truth(operator: int, c: Floats) -> Floats:
    """The generating formula of an operator on concepts [n, 2]."""
    return results(c[:, 0], c[:, 1], np.full(len(c), operator))
