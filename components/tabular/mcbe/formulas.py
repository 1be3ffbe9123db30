"""Formulas over concepts X1, X2, ...: read without running anything, counted, printed, and trained in torch.

sympy's `sympify`, `parse_expr` and `lambdify` execute what they are given; none of them is used. Text is only read by
Python's own parser into a tree, of which nothing but numbers, X1 to XK and the operators below is taken; users' names
of concepts never become part of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch
from torch import Tensor, nn

_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "exp": sympy.exp, "log": sympy.log, "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "tanh": sympy.tanh,
    "abs": sympy.Abs, "sqrt": sympy.sqrt, "square": lambda value: value**2,
}  # fmt: skip
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.Pow: lambda a, b: a**b,
}  # fmt: skip
_VARIABLE = re.compile(r"X([1-9][0-9]{0,3})")
_LONGEST = 20_000
_TINY, _LARGEST_EXPONENT = 1e-8, 20.0


def read(text: str) -> sympy.Expr:
    """The formula in a text such as operon's.

    Raises:
        ValueError: it holds anything but numbers, X1, X2, ..., + - * / ^ and known functions.
    """
    if len(text) > _LONGEST:
        raise ValueError("the formula is too long")
    try:
        tree = ast.parse(text.replace("^", "**"), mode="eval")
        return sympy.Add(_built(tree.body))
    except (SyntaxError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise ValueError(f"no formula: {error}") from None


def _built(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return sympy.Float(value)
        case ast.Name(id=name) if _VARIABLE.fullmatch(name):
            return sympy.Symbol(name, real=True)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_built(inner)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_built(left), _built(right))
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_built(inner))
    raise ValueError(f"no formula: {type(node).__name__} is not allowed")


def linear(weights: Sequence[float], bias: float) -> sympy.Expr:
    """w1 X1 + w2 X2 + ... + b, without what is 0."""
    terms = [sympy.Float(w) * sympy.Symbol(f"X{i}", real=True) for i, w in enumerate(weights, 1) if w]
    return sympy.Add(*terms, *([sympy.Float(bias)] if bias else []))


def nodes(formula: sympy.Expr) -> int:
    """Nodes of the expression tree."""
    return 1 + sum(nodes(part) for part in formula.args)


def depth(formula: sympy.Expr) -> int:
    """Levels of the expression tree."""
    return 1 + max((depth(part) for part in formula.args), default=0)


def visits(formula: sympy.Expr) -> int:
    """Visitation length: nodes of all subtrees together."""
    return nodes(formula) + sum(visits(part) for part in formula.args)


_INSIGNIFICANT = 1e-6


def tidied(formula: sympy.Expr, scale: float, tolerance: float = _INSIGNIFICANT) -> sympy.Expr:
    """Without constants below `tolerance` of `scale` in sums, and with whole numbers where they are as near as that."""
    if formula.is_Add:
        kept = [part for part in formula.args if not (part.is_Number and abs(float(part)) < tolerance * scale)]
        return sympy.Add(*(tidied(part, scale, tolerance) for part in kept))
    if formula.is_Number:
        value = float(formula)
        if round(value) and abs(value - round(value)) < tolerance * max(1.0, abs(value)):
            return sympy.Integer(round(value))
        return sympy.Float(float(f"{value:.6g}"))
    if not formula.args:
        return formula
    return formula.func(*(tidied(part, scale, tolerance) for part in formula.args))


def shown(formula: sympy.Expr, names: Sequence[str]) -> str:
    """As text with users' names of concepts, numbers to four digits."""
    rounded = formula.xreplace({n: sympy.Float(n, 4) for n in formula.atoms(sympy.Float)})
    return _VARIABLE.sub(lambda found: names[int(found[1]) - 1], str(rounded))


def latex(formula: sympy.Expr, names: Sequence[str]) -> str:
    """As LaTeX; names of concepts as plain text."""
    rounded = formula.xreplace({n: sympy.Float(n, 4) for n in formula.atoms(sympy.Float)})
    symbols = {symbol: rf"\text{{{_escaped(names[int(symbol.name[1:]) - 1])}}}" for symbol in formula.free_symbols}
    return str(sympy.latex(rounded, symbol_names=symbols))


def _escaped(name: str) -> str:
    return re.sub(r"([\\{}$&#^_%~])", lambda found: "\\textbackslash{}" if found[0] == "\\" else "\\" + found[0], name)


Tree = float | str | list[Any]


def to_tree(formula: sympy.Expr) -> Tree:
    """Plain JSON: numbers, "X1", and [operator, part, ...]."""
    if formula.is_Number:
        return float(formula)
    if formula.is_Symbol:
        return str(formula.name)
    names = {sympy.Add: "+", sympy.Mul: "*", sympy.Pow: "pow", sympy.Abs: "abs"}
    name = names.get(formula.func, formula.func.__name__)
    return [name, *(to_tree(part) for part in formula.args)]


def from_tree(tree: Tree) -> sympy.Expr:
    """The inverse of `to_tree`; only what that writes is taken.

    Raises:
        ValueError: something else.
    """
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        return sympy.Integer(int(tree)) if float(tree).is_integer() else sympy.Float(tree)
    if isinstance(tree, str) and _VARIABLE.fullmatch(tree):
        return sympy.Symbol(tree, real=True)
    if isinstance(tree, list) and len(tree) >= 2 and isinstance(tree[0], str):
        parts = [from_tree(part) for part in tree[1:]]
        if tree[0] == "+":
            return sympy.Add(*parts)
        if tree[0] == "*":
            return sympy.Mul(*parts)
        if tree[0] == "pow" and len(parts) == 2:
            return sympy.Pow(*parts)
        if tree[0] in _FUNCTIONS and len(parts) == 1:
            return _FUNCTIONS[tree[0]](parts[0])
    raise ValueError("no tree of a formula")


class Formula(nn.Module):
    """A formula whose constants outside of exponents are trained.

    Protected: denominators are at least 1e-8, arguments of logarithms and of roots too, those of exp at most 20, tan is
    kept away from its poles, and what is not finite becomes 0.
    """

    def __init__(self, formula: sympy.Expr, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.formula, self.dtype = formula, dtype
        self.constants = nn.ParameterList()
        self._compute = self._compiled(formula)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and other processes build it anew: what computes it cannot be copied."""
        return Formula, (self.current(), self.dtype)

    def _compiled(self, formula: sympy.Expr) -> Callable[[Tensor], Tensor]:
        if formula.is_Number:
            at = len(self.constants)
            self.constants.append(nn.Parameter(torch.tensor(float(formula), dtype=self.dtype)))
            return lambda c: self.constants[at].expand(len(c))
        if formula.is_Symbol:
            column = int(formula.name[1:]) - 1
            return lambda c: c[:, column]
        if formula.is_Pow:
            base, exponent = formula.args
            inner = self._compiled(base)
            if exponent.is_Number:
                return lambda c: _power(inner(c), float(exponent))
            outer = self._compiled(exponent)
            return lambda c: torch.exp((outer(c) * torch.log(inner(c).abs() + _TINY)).clamp(max=_LARGEST_EXPONENT))
        parts = [self._compiled(part) for part in formula.args]
        if formula.is_Add:
            return lambda c: reduce(torch.add, [part(c) for part in parts])
        if formula.is_Mul:
            return lambda c: reduce(torch.mul, [part(c) for part in parts])
        function = _TORCH[formula.func]
        return lambda c: function(parts[0](c))

    def forward(self, c: Tensor) -> Tensor:
        """Values [n] of concepts [n, K] in their own units."""
        return torch.nan_to_num(self._compute(c), nan=0.0, posinf=0.0, neginf=0.0)

    def current(self) -> sympy.Expr:
        """The formula with the constants as they are now."""
        values = iter([float(constant.detach()) for constant in self.constants])
        return _replaced(self.formula, values)


def _replaced(formula: sympy.Expr, values: Any) -> sympy.Expr:
    if formula.is_Number:
        return sympy.Float(next(values))
    if formula.is_Symbol:
        return formula
    if formula.is_Pow:
        base, exponent = formula.args
        return sympy.Pow(_replaced(base, values), exponent if exponent.is_Number else _replaced(exponent, values))
    return formula.func(*(_replaced(part, values) for part in formula.args))


def _power(base: Tensor, exponent: float) -> Tensor:
    if exponent.is_integer():
        if exponent >= 0:
            return base**exponent
        away = torch.where(base < 0, -1.0, 1.0) * base.abs().clamp(min=_TINY)
        return away**exponent
    return (base.abs() + _TINY) ** exponent


_TORCH: Mapping[Any, Callable[[Tensor], Tensor]] = {
    sympy.exp: lambda v: torch.exp(v.clamp(max=_LARGEST_EXPONENT)),
    sympy.log: lambda v: torch.log(v.clamp(min=_TINY)),
    sympy.sin: torch.sin,
    sympy.cos: torch.cos,
    sympy.tan: lambda v: torch.tan(v).clamp(-1e4, 1e4),
    sympy.tanh: torch.tanh,
    sympy.Abs: torch.abs,
}
