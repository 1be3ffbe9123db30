"""The names that a user chooses from; read by the interface, so nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal, get_args

Architecture = Literal["linear", "mlp", "cnn", "resnet18"]
AttackName = Literal["bmia", "global_threshold", "lira_fixed", "lira_per_record", "attack_r", "rmia", "qmia"]
DecisionRule = Literal["calibrated", "t"]
HessianName = Literal["kron", "diag", "full"]
ScoreName = Literal["hinge", "logit"]

ATTACKS: tuple[AttackName, ...] = get_args(AttackName)
