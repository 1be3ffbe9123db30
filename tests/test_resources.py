"""What a run took at most."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from kfp_methods.resources import peaks


def test_memory_that_was_given_back_still_counts() -> None:
    before = peaks()["peak_memory_megabytes"]
    held = np.ones(int(before + 300) * 125_000)  # of 8 bytes
    del held
    assert peaks()["peak_memory_megabytes"] > before + 200


def test_a_gpu_counts_once_torch_has_used_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = [1_000_000, 3_500_000]
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: bool(used),
        device_count=lambda: 2,
        max_memory_reserved=lambda device: reserved[device],
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    used: list[int] = []
    assert "gpu_peak_memory_megabytes" not in peaks()
    used.append(1)
    assert peaks()["gpu_peak_memory_megabytes"] == 3.5
