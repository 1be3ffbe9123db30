"""Names that inputs take."""

from __future__ import annotations

from typing import Literal

LearnerName = Literal[
    "erm_all", "erm_pareto", "erm_cover", "adaptive", "multiple_source", "minmax", "best_mean", "uniform",
    "exp_weights", "q_aggregation",
]  # fmt: skip
LEARNERS: dict[LearnerName, str] = {
    "adaptive": "adaptive",
    "erm_all": "ERM over all",
    "erm_pareto": "ERM over the frontier",
    "erm_cover": "ERM over a cover",
    "exp_weights": "exponential weights",
    "q_aggregation": "Q-aggregation",
    "multiple_source": "multiple source",
    "minmax": "minmax",
    "best_mean": "best mean",
    "uniform": "uniform mixture",
}
SAMPLE_TASKS = 8
PoolSize = Literal["small", "whole"]
