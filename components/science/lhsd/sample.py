"""Data that come with the method: manifolds of known dimension, and images of which some were planted many times."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfp_methods.components.science.lhsd.choices import Law, SamplePart
from kfp_methods.errors import InputError, Problem

_FASHION_MNIST = "train-images-idx3-ubyte.gz"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
_MANIFOLDS = {
    "manifolds_64": (64, (2, 8, 20)),
    "manifolds_1024": (1024, (10, 80, 200)),
    "manifolds_3072": (3072, (900,)),
}
_OFFSET = 6.0
_BEND = 0.3
_COPIED, _COPIES, _OTHERS = 20, 60, 100
_IMAGES_SIGMA = 0.2  # images have no spectral gap: the level of the count depends on sigma, the order hardly does


@dataclass(frozen=True)
class Part:
    """A data set, the points of it to score, and what is known of them.

    Attributes:
        name: of the part.
        data: training points [N, D], float32.
        shape: of one point.
        rows: the points to score, as rows of `data` [n].
        lid_true: their dimensions [n]; None when unknown.
        memorised: which of them occur many times in the data [n]; None when unknown.
        sigma: noise level at which the part is meant to be looked at; None where the spectrum is to tell.
    """

    name: str
    data: Tensor
    shape: tuple[int, ...]
    rows: NDArray[np.int64]
    lid_true: NDArray[np.float64] | None = None
    memorised: NDArray[np.bool_] | None = None
    sigma: float | None = None

    @property
    def points(self) -> Tensor:
        """The points to score [n, D]."""
        return self.data[torch.from_numpy(self.rows)]


def part(name: SamplePart, seed: int, *, size: int, n_points: int, law: Law) -> Part:
    """A part of the embedded sample.

    Args:
        size: of a mixture of manifolds, in points, evenly from them.
        n_points: points to score, evenly from the manifolds; of images, 20 planted and up to 100 others.
        law: of the points on a manifold.

    Raises:
        InputError: Fashion-MNIST's file is not on this machine.
    """
    if name == "digits":
        return planted(name, _digits(), (8, 8), seed, n_points)
    if name == "fashion_mnist":
        return planted(name, _fashion_mnist(), (1, 32, 32), seed, n_points)
    n_features, dimensions = _MANIFOLDS[name]
    each = size // len(dimensions)
    return manifolds(name, n_features, dimensions, seed, size=each, n_points=n_points, law=law)


def check_files(names: Sequence[SamplePart], folder: Path = DEBIAN_FOLDER) -> None:
    """Raises InputError when a part needs a file that is not on this machine."""
    if "fashion_mnist" in names and not (file := folder / _FASHION_MNIST).is_file():
        remedy = "Install Debian's package dataset-fashion-mnist, or leave the part out"
        raise InputError(Problem("sample_parts", "fashion_mnist", f"{file} is missing", remedy))


def manifolds(
    name: str,
    n_features: int,
    dimensions: tuple[int, ...],
    seed: int,
    *,
    size: int,
    n_points: int,
    law: Law = "gaussian",
) -> Part:
    """A mixture of manifolds in D dimensions: random rotations, offsets of length 6, `size` points each.

    Points on a d-plane are standard normal or Laplace (unit variance); `nonlinear` bends the normal ones by the
    diffeomorphism x -> x + 0.3 sin(Q x), Q orthogonal, which keeps the dimension.
    """
    generator = np.random.default_rng([seed, 0])
    bend, _ = np.linalg.qr(generator.normal(size=(n_features, n_features)))
    drawn = []
    for d in dimensions:
        plane, _ = np.linalg.qr(generator.normal(size=(n_features, d)))
        offset = generator.normal(size=n_features)
        offset *= _OFFSET / np.linalg.norm(offset)
        inside = (generator.laplace if law == "laplace" else generator.normal)(size=(size, d))
        inside = inside / np.sqrt(2) if law == "laplace" else inside
        x = inside @ plane.T + offset
        drawn.append(x + _BEND * np.sin(x @ bend.T) if law == "nonlinear" else x)
    # Round robin, so that the first few points hold as many of each manifold.
    n = min(size, -(-n_points // len(dimensions)))
    rows = (np.arange(n)[:, None] + size * np.arange(len(dimensions))).ravel()[:n_points]
    data = torch.from_numpy(np.concatenate(drawn).astype(np.float32))
    return Part(name, data, (n_features,), rows, np.asarray(dimensions, np.float64)[rows // size])


def planted(name: str, images: Tensor, shape: tuple[int, ...], seed: int, n_points: int) -> Part:
    """Images [n, D] of which 20 occur 60 times; scored are these and up to 100 others, alternating at first."""
    order = np.random.default_rng([seed, 1]).permutation(len(images))
    copied, rest = order[:_COPIED], order[_COPIED:]
    data = images[torch.from_numpy(np.concatenate([np.repeat(copied, _COPIES), rest]))]
    n_copied = min(_COPIED, n_points // 2)
    n_others = min(_OTHERS, len(rest), max(n_points - n_copied, n_copied))
    planted_rows, others = np.arange(n_copied) * _COPIES, _COPIED * _COPIES + np.arange(n_others)
    pairs = np.stack([planted_rows, others[:n_copied]], axis=1).ravel()
    rows = np.concatenate([pairs, others[n_copied:]])
    return Part(name, data, shape, rows, memorised=rows < _COPIED * _COPIES, sigma=_IMAGES_SIGMA)


def _digits() -> Tensor:
    """scikit-learn's 1,797 handwritten digits, float32 [1797, 64] in [0, 1]."""
    from sklearn.datasets import load_digits

    return torch.from_numpy((load_digits().data / 16).astype(np.float32))


def _fashion_mnist(folder: Path = DEBIAN_FOLDER) -> Tensor:
    """Fashion-MNIST's 60,000 training images with a border of zeros, float32 [60000, 1024] in [0, 1]."""
    check_files(["fashion_mnist"], folder)
    content = gzip.decompress((folder / _FASHION_MNIST).read_bytes())
    sides = np.frombuffer(content, ">u4", count=3, offset=4)
    pixels = np.frombuffer(content, np.uint8, offset=16).reshape(sides)
    images = torch.from_numpy(pixels.astype(np.float32) / 255)
    return torch.nn.functional.pad(images, (2, 2, 2, 2)).flatten(1)
