"""Names that inputs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

MechanismName = Literal[
    "tree_linear", "sample_hold", "tree_linear_auto", "hard_budget", "nocap", "counter", "exact", "hyperloglog"
]
MECHANISMS: Mapping[str, str] = {
    "tree_linear": "tree of all users",
    "sample_hold": "sample and hold",
    "tree_linear_auto": "tree that raises its cap",
    "hard_budget": "limited memory",
    "nocap": "no cap",
    "counter": "counter",
    "exact": "dictionary",
    "hyperloglog": "HyperLogLog of insertions",
}
HONEST: tuple[MechanismName, ...] = ("tree_linear", "sample_hold", "tree_linear_auto")
BROKEN: tuple[MechanismName, ...] = ("hard_budget", "nocap")
CAPPED: tuple[MechanismName, ...] = ("tree_linear", "sample_hold", "hard_budget")
FrequencyMode = Literal["binary", "multiset"]
Calibration = Literal["zcdp", "exact"]
