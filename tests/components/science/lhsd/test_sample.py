"""The sample is what the report says: manifolds of known dimension, images planted many times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from kfp_methods.components.science.lhsd import sample
from kfp_methods.components.science.lhsd.choices import Law
from kfp_methods.components.science.lhsd.sample import manifolds, part, planted
from kfp_methods.errors import InputError


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_each_component_spans_its_dimension(law: Law) -> None:
    drawn = manifolds("three", 32, (1, 4, 9), 0, size=200, n_points=30, law=law)
    for start, d in zip((0, 200, 400), (1, 4, 9), strict=True):
        centred = drawn.data[start : start + 200].double()
        centred = centred - centred.mean(0)
        singular = torch.linalg.svdvals(centred)
        assert int((singular > 1e-4 * singular[0]).sum()) == d
        assert float(centred.square().sum() / (200 * d)) == pytest.approx(1, abs=0.2)
    assert (drawn.lid_true == np.array([1, 4, 9])[drawn.rows // 200]).all()


def test_bent_manifolds_keep_their_dimension_and_leave_the_plane() -> None:
    """The Jacobian of x + .3 sin(Qx) is I + .3 cos(Qx) Q, never singular: nearby points still span d directions."""
    bent = manifolds("one", 20, (2,), 3, size=20_000, n_points=1, law="nonlinear").data.double()
    whole = torch.linalg.svdvals(bent - bent.mean(0))
    assert int((whole > 1e-2 * whole[0]).sum()) > 2
    near = bent[(bent - bent[0]).norm(dim=1).topk(12, largest=False).indices] - bent[0]
    local = torch.linalg.svdvals(near)
    assert float(local[2] / local[1]) < 0.1


def test_the_first_points_are_as_many_of_each_manifold() -> None:
    drawn = part("manifolds_64", 0, size=150, n_points=30, law="gaussian")
    assert drawn.lid_true is not None
    assert drawn.lid_true[:6].tolist() == [2, 8, 20, 2, 8, 20]
    assert len(np.unique(drawn.rows)) == 30
    assert drawn.points.shape == (30, 64)


def test_seeds_differ_and_repeat() -> None:
    first, again, other = (part("manifolds_64", seed, size=120, n_points=9, law="gaussian").data for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_planted_images_occur_sixty_times_and_others_once() -> None:
    drawn = part("digits", 0, size=0, n_points=90, law="gaussian")
    assert drawn.memorised is not None
    counts = (torch.cdist(drawn.points, drawn.data, compute_mode="donot_use_mm_for_euclid_dist") == 0).sum(1).numpy()
    assert (counts[drawn.memorised] == 60).all()
    assert (counts[~drawn.memorised] == 1).all()
    assert drawn.memorised.sum() == 20
    assert len(drawn.data) == 1797 - 20 + 20 * 60


def test_few_points_are_half_planted_and_never_more_than_there_are() -> None:
    images = torch.rand(130, 4)
    assert planted("some", images, (2, 2), 0, 12).memorised.sum() == 6  # type: ignore[union-attr]
    many = planted("some", images, (2, 2), 0, 1_000)
    assert len(many.rows) == 120
    assert int(many.rows.max()) < len(many.data)


def test_fashion_mnist_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dataset-fashion-mnist"):
        sample._fashion_mnist(tmp_path)


def test_fashion_mnist_gets_a_border(tmp_path: Path) -> None:
    import gzip

    pixels = np.arange(2 * 28 * 28, dtype=np.uint8)
    head = bytes([0, 0, 8, 3]) + np.array([2, 28, 28], ">u4").tobytes()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + pixels.tobytes()))
    images = sample._fashion_mnist(tmp_path).reshape(2, 32, 32)
    np.testing.assert_allclose(images[:, 2:30, 2:30].numpy().ravel() * 255, pixels, atol=1e-4)
    assert not images[:, :2].any()
    assert not images[:, :, 30:].any()
