"""Data that come with the method: 6,000 Fashion-MNIST images, and the digits that come with scikit-learn.

`fashion_mnist_6000.npz` holds, in the original order, the first 600 images of each class of Fashion-MNIST's
test part (Xiao, Rasul, Vollgraf, arXiv 1708.07747), taken from Debian's package dataset-fashion-mnist.
Copyright 2017 Zalando SE, MIT licence: see `fashion_mnist_LICENSE.txt`.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from kfp_methods.components.tabular.bmia.arrays import Integers
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.errors import InputError, Problem

LICENCE = "Fashion-MNIST: MIT, copyright 2017 Zalando SE"
EMBEDDED_RECORDS = 6_000
IMAGE_SHAPE = (28, 28)
N_CLASSES = 10
EMBEDDED = Path(__file__).with_name("fashion_mnist_6000.npz")
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FRACTIONS = (0.2, 0.2, 0.4, 0.2)


@dataclass(frozen=True)
class Split:
    """One population cut into the four parts of an audit, which share no record.

    Attributes:
        members: the target is trained on them.
        nonmembers: audited beside the members.
        reference: the pool from which references take their halves.
        validation: known non-members that calibrate the decision.
        n_classes: number of classes C.
    """

    members: Records
    nonmembers: Records
    reference: Records
    validation: Records
    n_classes: int

    @property
    def audit(self) -> Records:
        """Members, then non-members."""
        return Records.joined([self.members, self.nonmembers])

    @property
    def member(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of `audit` are members [n]."""
        return np.arange(len(self.members) + len(self.nonmembers)) < len(self.members)


def split(records: Records, seed: int) -> Split:
    """A random 20 / 20 / 40 / 20 split into members, non-members, reference pool and validation."""
    rows = np.random.default_rng(seed).permutation(len(records))
    edges = np.round(np.cumsum(FRACTIONS[:-1]) * len(records)).astype(int)
    members, nonmembers, reference, validation = (records.take(part) for part in np.split(rows, edges))
    return Split(members, nonmembers, reference, validation, n_classes=int(records.y.max()) + 1)


def fashion_mnist() -> Records:
    """The embedded 6,000 images, standardised float32 [6000, 28, 28], with classes 0..9, 600 of each."""
    with np.load(EMBEDDED, allow_pickle=False) as arrays:
        return _standardised_images(arrays["images"], arrays["labels"])


def fashion_mnist_whole(folder: Path = DEBIAN_FOLDER) -> Records:
    """All 70,000 images from the original files in a folder. Raises as `whole_files`."""
    return Records.joined(
        _standardised_images(_read_idx(images), _read_idx(labels)) for images, labels in whole_files(folder)
    )


def whole_files(folder: Path = DEBIAN_FOLDER) -> list[tuple[Path, Path]]:
    """Images and labels (gzipped IDX) of the training and of the test part.

    Raises:
        InputError: a file is missing.
    """
    pairs = [
        (folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")
    ]
    for file in (file for pair in pairs for file in pair):
        if not file.is_file():
            remedy = "Install Debian's package dataset-fashion-mnist, give at most 6000, or give your own data"
            raise InputError(Problem("sample_size", None, f"above 6000 needs {file}, which is missing", remedy))
    return pairs


def digits() -> Records:
    """scikit-learn's 1,797 handwritten digits, standardised float32 [1797, 8, 8], with classes 0..9."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Records.from_arrays((data.images / 16 - 0.305) / 0.376, data.target)


def _standardised_images(images: Integers, labels: Integers) -> Records:
    """Pixels 0..255 become (x/255 - .286) / .353, the set's mean and standard deviation."""
    x = torch.from_numpy(images).float().div_(255).sub_(0.286).div_(0.353)
    return Records(x, torch.from_numpy(labels.astype(np.int64)))


def _read_idx(file: Path) -> Integers:
    """An IDX file of bytes: two zeros, type 8, number of axes, their lengths (big-endian), the data."""
    content = gzip.decompress(file.read_bytes())
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape).copy()
