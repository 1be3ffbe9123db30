"""A pool of classifiers of handwritten digits, and eight tasks: the clean images and seven ways to spoil them.

scikit-learn's digits (1,797 images of 8x8, pixels 0 to 16). Some classifiers were trained on images spoiled alike, so
that each is good at something.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import ndimage

from kfp_methods.components.tabular.weak_monotonicity.choices import PoolSize
from kfp_methods.components.tabular.weak_monotonicity.frontier import Floats

TRAINING_ROWS = 700
_SMALL_ROWS = 300
_SEED = 0  # the pool is the same in every run: its seeds are those of the subsamples
Spoil = Callable[[Floats, np.random.Generator], Floats]


@dataclass(frozen=True)
class TaskLosses:
    """losses [tasks, models, rows]: 0 or 1, each model on each task's images."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    losses: Floats


def _gauss(images: Floats, rng: np.random.Generator) -> Floats:
    return images + rng.normal(0, 4, images.shape)


def _salt(images: Floats, rng: np.random.Generator) -> Floats:
    hit = rng.random(images.shape) < 0.12
    return np.where(hit, 16.0 * (rng.random(images.shape) < 0.5), images)


def _shift(images: Floats, rng: np.random.Generator) -> Floats:
    right = rng.random(len(images)) < 0.5
    return np.where(right[:, None, None], np.roll(images, 1, 2), np.roll(images, -1, 2))


def _rotate(images: Floats, rng: np.random.Generator) -> Floats:
    angles = rng.uniform(-30, 30, len(images))
    return np.stack(
        [ndimage.rotate(image, angle, reshape=False, order=1) for image, angle in zip(images, angles, strict=True)]
    )


def _blur(images: Floats, rng: np.random.Generator) -> Floats:
    return np.asarray(ndimage.gaussian_filter(images, (0, 0.9, 0.9)))


def _contrast(images: Floats, rng: np.random.Generator) -> Floats:
    return images * 0.4


def _occlude(images: Floats, rng: np.random.Generator) -> Floats:
    first = rng.integers(0, 7, len(images))
    columns = np.arange(8)
    hidden = (columns == first[:, None]) | (columns == first[:, None] + 1)
    return np.where(hidden[:, None, :], 0.0, images)


TASKS: dict[str, Spoil] = {
    "clean": lambda images, rng: images,
    "noise": _gauss,
    "salt and pepper": _salt,
    "shift": _shift,
    "rotation": _rotate,
    "blur": _blur,
    "contrast": _contrast,
    "occlusion": _occlude,
}
_AUGMENTATIONS = ("none", "noise", "shift", "blur", "rotation")


def _classifiers() -> dict[str, Callable[[], Any]]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        **{f"logistic C={C:g}": partial(LogisticRegression, C=C, max_iter=300) for C in (1e-4, 1e-2, 1.0)},
        **{f"{k} neighbours": partial(KNeighborsClassifier, k) for k in (1, 5, 25)},
        **{f"tree depth {d}": partial(DecisionTreeClassifier, max_depth=d, random_state=0) for d in (3, 8)},
        "naive Bayes": partial(GaussianNB, var_smoothing=1e-2),
        "forest": partial(RandomForestClassifier, 30, random_state=0),
        "SVC rbf": SVC,
        "SVC poly": partial(SVC, kernel="poly", degree=3),
    }


def pool(size: PoolSize, follow: Callable[[list[str]], Iterable[str]] = iter) -> TaskLosses:
    """Trains the classifiers and tries them on every task: 60 and 1,097 images, or 18 and 300 (small)."""
    from sklearn.datasets import load_digits

    images, y = load_digits().images, load_digits().target
    order = np.random.default_rng(_SEED).permutation(len(y))
    training, rest = order[:TRAINING_ROWS], order[TRAINING_ROWS:]
    rest = rest[:_SMALL_ROWS] if size == "small" else rest
    classifiers = _classifiers()
    names = list(classifiers)[:9] if size == "small" else list(classifiers)
    augmentations = _AUGMENTATIONS[:2] if size == "small" else _AUGMENTATIONS
    spoiled = {
        task: spoil(images[rest], np.random.default_rng((_SEED, number, 1)))
        for number, (task, spoil) in enumerate(TASKS.items())
    }
    losses, models = [], []
    for augmentation in follow(list(augmentations)):
        X, target = _augmented(images[training], y[training], augmentation)
        for name in names:
            with warnings.catch_warnings():  # a model that has not converged is one more model
                warnings.simplefilter("ignore")
                model = classifiers[name]().fit(X, target)
            models.append(name if augmentation == "none" else f"{name}, {augmentation}")
            losses.append([model.predict(x.reshape(len(x), -1)) != y[rest] for x in spoiled.values()])
    return TaskLosses(tuple(models), tuple(TASKS), np.array(losses, np.float64).transpose(1, 0, 2))


def _augmented(images: Floats, y: np.ndarray, augmentation: str) -> tuple[Floats, np.ndarray]:
    flat = images.reshape(len(images), -1)
    if augmentation == "none":
        return flat, y
    more = TASKS[augmentation](images, np.random.default_rng((_SEED, 100, _AUGMENTATIONS.index(augmentation), 1)))
    return np.vstack([flat, more.reshape(len(more), -1)]), np.concatenate([y, y])
