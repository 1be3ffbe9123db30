"""Arrays come out as they went in, under the names and shapes the method declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from kfp_methods.artifacts import Array, read_arrays, read_tensors
from kfp_methods.errors import InputError

NUMBERS = st.one_of(
    stnp.floating_dtypes(sizes=(16, 32, 64)),
    stnp.integer_dtypes(),
    stnp.unsigned_integer_dtypes(),
    stnp.boolean_dtypes(),
)
ARRAYS = NUMBERS.flatmap(
    lambda kind: stnp.arrays(kind, stnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
IDENTIFIERS = st.text("abcXYZ_09äß", min_size=1, max_size=6)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays=st.dictionaries(IDENTIFIERS, ARRAYS, min_size=1, max_size=3))
def test_npz_and_safetensors_round_trip_is_exact(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    npz, safe = tmp_path / "npz", tmp_path / "safe"
    with npz.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    save_file(
        {name: np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="))) for name, value in arrays.items()},
        safe,
    )
    for read in (read_arrays(npz, field="a"), read_arrays(safe, field="a"), read_tensors(safe, field="a")):
        assert read.keys() == arrays.keys()
        for name, value in arrays.items():
            np.testing.assert_array_equal(read[name], value, strict=False)
            assert read[name].dtype == value.dtype.newbyteorder("=")
            assert read[name].dtype.isnative


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=ARRAYS, order=st.sampled_from("CF"))
def test_npy_takes_the_name_of_the_one_declared_array(values: np.ndarray, order: str, tmp_path: Path) -> None:
    path = tmp_path / "values"
    with path.open("wb") as stream:
        np.save(stream, np.asarray(values, order=order))  # type: ignore[call-overload]
    assert np.array_equal(read_arrays(path, field="a")["array"], values, equal_nan=True)
    if values.dtype.kind != "b":
        read = read_arrays(path, field="a", arrays=[Array("x", ndim=values.ndim, finite=False)])
        assert np.array_equal(read["x"], values.astype(read["x"].dtype), equal_nan=True)


def test_shape_names_must_agree_between_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones((4, 3)), w=np.ones((3, 4)), b=np.ones(7))
    rules = [Array("x", shape=("n", "d")), Array("w", shape=("d", "n")), Array("b", shape=(None,))]
    assert read_arrays(path, field="a", arrays=rules).keys() == {"x", "w", "b"}
    with pytest.raises(InputError, match=r"'w' has shape \(3, 4\) where \(n, d\) is expected with n=4, as in 'x'"):
        read_arrays(path, field="a", arrays=[rules[0], Array("w", shape=("n", "d"))])


def test_kinds_convert_only_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, whole=np.arange(3), half=np.ones(3, np.float16), flags=np.array([0, 1, 1], np.uint8))
    read = read_arrays(path, field="a", arrays=[Array("whole"), Array("half"), Array("flags", kind="bool")])
    assert {name: str(value.dtype) for name, value in read.items()} == {
        "whole": "float64",
        "half": "float16",
        "flags": "bool",
    }
    with pytest.raises(InputError, match=r"1 of 3 entries are neither 0 nor 1, first in row 3: whole\[2\] = 2"):
        read_arrays(path, field="a", arrays=[Array("whole", kind="bool")])


def test_bounds_name_the_first_entry_outside(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, p=np.array([[0.0, 1.0], [1.5, -0.5]]))
    with pytest.raises(InputError) as caught:
        read_arrays(path, field="a", arrays=[Array("p", ge=0, le=1)])
    assert [problem.problem for problem in caught.value.problems] == [
        "array 'p': 1 of 4 entries are below 0, first in row 2: p[1, 1] = -0.5",
        "array 'p': 1 of 4 entries are above 1, first in row 2: p[1, 0] = 1.5",
    ]


def test_undeclared_arrays_are_named_when_forbidden(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones(1), z=np.ones(1))
    with pytest.raises(InputError, match="not expected: 'z'"):
        read_arrays(path, field="a", arrays=[Array("x")], extra="forbid")
    assert read_arrays(path, field="a", arrays=[Array("x"), Array("q", required=False)]).keys() == {"x", "z"}


def test_bfloat16_becomes_the_float32_of_the_same_value(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    weights = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    save_torch({"a": torch.zeros(2), "w": weights}, path)
    read = read_tensors(path, field="w")
    assert read["w"].dtype == np.float32
    np.testing.assert_array_equal(read["w"], weights.float().numpy())


def test_sharded_folder_is_one_set_of_tensors(tmp_path: Path) -> None:
    save_file({"a": np.ones(2)}, tmp_path / "model-1.safetensors")
    save_file({"b": np.zeros(2)}, tmp_path / "model-2.safetensors")
    assert read_tensors(tmp_path, field="w").keys() == {"a", "b"}
    save_file({"b": np.zeros(2)}, tmp_path / "model-3.safetensors")
    with pytest.raises(InputError, match="repeats tensor 'b'"):
        read_tensors(tmp_path, field="w")


def test_folder_without_tensors_says_how_to_write_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no safetensors file.*save_file"):
        read_tensors(tmp_path, field="w")
