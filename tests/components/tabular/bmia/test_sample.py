"""The embedded data: what they are, and that a split shares no record."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from kfp_methods.components.tabular.bmia import sample
from kfp_methods.components.tabular.bmia.records import Records, check_disjoint
from kfp_methods.errors import InputError


@pytest.fixture(scope="module")
def images() -> Records:
    return sample.fashion_mnist()


def test_embedded_images_are_balanced_and_standardised(images: Records) -> None:
    assert images.x.shape == (6000, 28, 28)
    assert images.y.bincount().tolist() == [600] * 10
    assert abs(images.x.mean().item()) < 0.01
    assert abs(images.x.std().item() - 1) < 0.01


def test_licence_lies_beside_the_data() -> None:
    text = sample.EMBEDDED.with_name("fashion_mnist_LICENSE.txt").read_text(encoding="utf-8")
    assert "MIT" in text
    assert "Zalando" in text


def test_split_is_20_20_40_20_without_a_shared_record(images: Records) -> None:
    parts = sample.split(images, 3)
    assert [len(part) for part in (parts.members, parts.nonmembers, parts.reference, parts.validation)] == [
        1200, 1200, 2400, 1200,
    ]  # fmt: skip
    check_disjoint("reference", parts.reference, parts.audit)
    check_disjoint("validation", parts.validation, parts.audit)
    check_disjoint("validation", parts.validation, parts.reference)
    assert parts.member.sum() == 1200
    assert parts.audit.x[:1200].equal(parts.members.x)
    assert parts.n_classes == 10


def test_a_split_depends_on_its_seed_alone(images: Records) -> None:
    assert sample.split(images, 1).members.x.equal(sample.split(images, 1).members.x)
    assert not sample.split(images, 1).members.x.equal(sample.split(images, 2).members.x)


def test_digits_are_small_and_standardised() -> None:
    digits = sample.digits()
    assert digits.x.shape == (1797, 8, 8)
    assert abs(digits.x.mean().item()) < 0.01
    assert abs(digits.x.std().item() - 1) < 0.01


def _write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_the_whole_set_is_read_from_its_original_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, n in (("train", 5), ("t10k", 3)):
        pixels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        _write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", pixels)
        _write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8))
    whole = sample.fashion_mnist_whole(tmp_path)
    assert whole.x.shape == (8, 28, 28)
    assert whole.y.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert whole.x[7, 0, 0].item() == pytest.approx((pixels[2, 0, 0] / 255 - 0.286) / 0.353, abs=1e-6)


def test_a_missing_original_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"sample_size: above 6000 needs .*train-images-idx3-ubyte\.gz, which is missing"
    ):
        sample.fashion_mnist_whole(tmp_path)
