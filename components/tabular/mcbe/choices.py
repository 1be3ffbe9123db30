"""Names that inputs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Variant = Literal["linear", "symbolic", "both"]
Task = Literal["auto", "regression", "classification"]
SelectorKind = Literal["linear", "mlp"]
Operator = Literal["+", "-", "*", "/", "pow", "square", "sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "abs"]
OPERON: Mapping[str, str] = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "pow": "pow", "square": "square", "sqrt": "sqrt", "exp": "exp",
    "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "abs": "abs",
}  # fmt: skip
MODELS: Mapping[str, str] = {
    "linear": "linear experts",
    "symbolic": "symbolic experts",
    "mlp": "MLP experts",
    "black_box": "black box",
    "licem": "linear by row (LICEM)",
    "cem": "concept embeddings (CEM)",
    "tree": "tree on true concepts",
}
