"""The names that a user chooses from; read by the interface, so nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal, get_args

Mode = Literal["offline", "online"]
NormalMode = Literal["critic", "augmentation"]
ActorMode = Literal["auto", "remap", "perturb"]
Baseline = Literal["bcq", "td3", "plain_vae"]
MethodName = Literal["fql_perturb", "fql_remap", "plain_vae", "bcq", "td3"]

BASELINES: tuple[Baseline, ...] = get_args(Baseline)
METHODS: tuple[MethodName, ...] = get_args(MethodName)
TITLES: dict[MethodName, str] = {
    "fql_perturb": "FQL (perturb)",
    "fql_remap": "FQL (remap)",
    "plain_vae": "FQL without contrast",
    "bcq": "BCQ",
    "td3": "TD3",
}
