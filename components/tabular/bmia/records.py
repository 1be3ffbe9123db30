"""Labelled records, and the checks that keep an audit honest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from kfp_methods.components.tabular.bmia.arrays import Flags, Floats, Integers
from kfp_methods.errors import InputError, Problem


@dataclass(frozen=True)
class Records:
    """Inputs `x`, float32 [n, ...], with classes `y`, int64 [n]; kept on the CPU."""

    x: Tensor
    y: Tensor

    @classmethod
    def from_arrays(cls, x: Floats | Integers, y: Integers) -> Self:
        """Records of numpy arrays; copies only where the type differs."""
        return cls(torch.from_numpy(np.ascontiguousarray(x, np.float32)), torch.from_numpy(y.astype(np.int64)))

    @classmethod
    def joined(cls, parts: Iterable[Records]) -> Self:
        """The records of all parts, one after another."""
        parts = list(parts)
        return cls(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Integers) -> Records:
        """The records at `rows`, in that order."""
        index = torch.from_numpy(rows)
        return Records(self.x[index], self.y[index])


def check_labels(field: str, records: Records, n_classes: int) -> None:
    """Raises InputError unless every label is in 0..C-1."""
    wrong = (records.y < 0) | (records.y >= n_classes)
    if wrong.any():
        row = int(wrong.nonzero()[0, 0])
        first = f"the first, {int(records.y[row])}, in record {row + 1} of {len(wrong):,}"
        problem = f"{int(wrong.sum())} labels outside 0..{n_classes - 1}, {first}"
        raise InputError(Problem(field, None, problem, f"Number the {n_classes} classes from 0"))


def check_population(field: str, records: Records, n_classes: int, per_class: int = 10) -> None:
    """Raises InputError unless every class has at least `per_class` records."""
    counts = torch.bincount(records.y, minlength=n_classes)
    short = (counts < per_class).nonzero()[:, 0].tolist()
    if short:
        problem = f"class {short[0]} has {int(counts[short[0]])} records ({len(short)} have under {per_class})"
        raise InputError(Problem(field, None, problem, f"Give at least {per_class} records of each class"))


def check_disjoint(field: str, records: Records, other: Records, name: str = "audit") -> None:
    """Raises InputError when a record of `records` (same inputs, same label) is also in the `other` set.

    A reference or validation row that the target may have been trained on would hide the very leak, and one
    that a reference was trained on would mislead the calibration.
    """
    shared = int(_is_in(records, other).sum())
    if shared:
        problem = f"{shared} of its {len(records)} records are also in the {name} set"
        remedy = "Give records that are in no other file, and not in the target's training set"
        raise InputError(Problem(field, None, problem, remedy))


def without(records: Records, other: Records) -> Records:
    """The records that are not also in `other`."""
    return records.take(np.flatnonzero(~_is_in(records, other)))


def _is_in(records: Records, other: Records) -> Flags:
    known = set(_digests(other))
    return np.fromiter((digest in known for digest in _digests(records)), bool, len(records))


def _digests(records: Records) -> Iterable[bytes]:
    x, y = records.x.flatten(1).contiguous().numpy(), records.y.numpy()
    for row, label in zip(x, y, strict=True):
        yield hashlib.blake2b(row.tobytes() + label.tobytes(), digest_size=16).digest()
