"""Names that inputs take."""

from __future__ import annotations

from typing import Literal

BackendName = Literal["pfn", "gp", "tabpfn", "tabicl"]
ConditioningName = Literal["full", "mean", "none"]
StrategyName = Literal["pooled", "recursive"]
QuantileMode = Literal["normal", "convolve"]
Mode = Literal["auto", "benchmark", "predict"]
ProblemName = Literal["forrester", "currin", "park91a", "borehole", "branin", "hd10", "hd20", "hd50", "diabetes"]
