"""Formulas: read safely, counted, trained, printed; and the rule by which one is chosen."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from kfp_methods.components.tabular.mcbe import formulas, search
from kfp_methods.components.tabular.mcbe.formulas import Formula

X1, X2 = (sympy.Symbol(name, real=True) for name in ("X1", "X2"))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("X1+1", 3), ("X1^2+2*X1+1", 8), ("X1/X2", 5), ("X1-X2", 5), ("2.5*X1*X2", 4), ("sin(X1)*X2+3", 6)],
)
def test_nodes_are_counted(text: str, nodes: int) -> None:
    formula = formulas.tidied(formulas.read(text), 1.0)
    assert formulas.nodes(formula) == nodes
    assert formulas.visits(formula) >= nodes


def test_depths() -> None:
    assert formulas.depth(formulas.tidied(formulas.read("X1^2+2*X1+1"), 1.0)) == 3
    assert formulas.depth(formulas.read("sin(X1)*X2+3")) == 4


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "X1.real", "eval('1')", "open('x')", "X0", "X1 if X2 else 3", "[X1]",
        "lambda: 1",
        "X1 @ X2", "exp(X1, X2)", "exp(base=X1)", "(X1", "", "1" * 30_000, "y", "True", "'X1'", "X1 // X2", "print",
    ],
)  # fmt: skip
def test_nothing_but_formulas_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        formulas.read(text)


@pytest.mark.parametrize(
    "tree", [["exec", "X1"], "os", [], ["+"], ["pow", "X1"], None, {"+": 1}, ["sin", "X1", "X2"], True]
)
def test_nothing_but_trees_of_formulas_is_rebuilt(tree: object) -> None:
    with pytest.raises(ValueError, match="tree"):
        formulas.from_tree(tree)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "X1+2.5*X2",
        "X1/X2",
        "exp(X1)-log(X2)",
        "sqrt(X1)*sin(X2)",
        "tanh(X1)^2",
        "abs(X1)-3",
        "cos(X1)^(-1)",
        "square(X2)",
    ],
)
def test_trees_survive_json_and_formulas_survive_pickling(text: str) -> None:
    formula = formulas.read(text)
    back = formulas.from_tree(json.loads(json.dumps(formulas.to_tree(formula))))
    c = torch.rand(5, 2) + 0.5
    assert search.evaluate(back, c.numpy()) == pytest.approx(search.evaluate(formula, c.numpy()), rel=1e-9)
    module = Formula(formula)
    assert torch.allclose(pickle.loads(pickle.dumps(module))(c), module(c), atol=1e-6)  # noqa: S301 (made here)


OPERATORS = [
    "X1+X2", "X1-X2", "X1*X2", "X1/X2", "X1^2", "X1^3", "X1^(-2)", "X1^0.5", "sqrt(X1)", "square(X2)", "exp(X1)",
    "log(X2)",
    "sin(X1)", "cos(X2)", "tan(X1)", "tanh(X2)", "abs(X1-X2)", "2.5*X1+0.3*exp(X2)/X1",
]  # fmt: skip


@pytest.mark.parametrize("text", OPERATORS)
def test_values_are_those_of_sympy(text: str) -> None:
    formula = formulas.read(text)
    c = np.random.default_rng(0).uniform(0.2, 1.4, (50, 2))
    expected = [float(formula.subs({X1: a, X2: b})) for a, b in c]
    assert search.evaluate(formula, c) == pytest.approx(expected, rel=1e-6)
    tensor = torch.tensor(c, dtype=torch.float32)
    assert Formula(formula)(tensor).detach().numpy() == pytest.approx(expected, rel=1e-4)


def test_constants_outside_of_exponents_are_trained() -> None:
    module = Formula(formulas.read("2.5*X1^3"))
    assert [p.item() for p in module.parameters()] == [2.5]
    c = torch.rand(200, 2)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        ((module(c) - 4 * c[:, 0] ** 3) ** 2).mean().backward()
        optimiser.step()
    assert next(module.parameters()).item() == pytest.approx(4, abs=1e-2)
    assert search.evaluate(module.current(), c.numpy()) == pytest.approx(4 * c[:, 0].numpy() ** 3, abs=1e-2)


@pytest.mark.parametrize("text", ["X1/X2", "log(X1)", "sqrt(X2)", "exp(X1)", "tan(X1)", "X1^(-2)", "X1^0.3", "X1^X2"])
def test_protected_values_are_finite_with_finite_gradients(text: str) -> None:
    c = torch.tensor([[0.0, 0.0], [-3.0, -2.0], [1e4, 0.0], [math.pi / 2, 1e-30]], requires_grad=True)
    found = Formula(formulas.read(text))(c)
    assert torch.isfinite(found).all()


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_linear_formulas_are_what_they_say(a: float, b: float, bias: float) -> None:
    formula = formulas.linear([a, b], bias)
    c = np.array([[1.0, 2.0], [0.5, -1.0]])
    assert search.evaluate(formula, c) == pytest.approx(c @ [a, b] + bias, abs=1e-9)


def test_small_constants_go_and_near_ones_are_one() -> None:
    formula = formulas.read("1.0000001*X1*X2 - 0.0000004 + 0.3333333333*X1")
    tidy = formulas.tidied(formula, 1.0)
    assert formulas.shown(tidy, ["a", "b"]) == "a*b + 0.3333*a"
    assert formulas.tidied(formulas.read("1.0005*X1 - 0.0003"), 1.0, 2e-3) == X1


def test_names_are_only_ever_text() -> None:
    names = ["__import__('os')", "I", "exp", "a_b$%\\"]
    formula = formulas.read("X1 + X2*X3 - X4")
    assert formulas.shown(formula, names).count("__import__('os')") == 1
    assert "\\text{exp}" in formulas.latex(formula, names)
    assert "\\_" in formulas.latex(formula, names)


def test_the_rule_of_the_front() -> None:
    found = search.scores([1, 3, 7], [100, 50, 1e-6], 100.0)
    assert found == pytest.approx([0, math.log(2) / 2, math.log(5e7) / 4])
    assert int(np.argmax(found)) == 2


def test_a_product_is_found() -> None:
    c = np.random.default_rng(0).integers(0, 10, (800, 2)).astype(float)
    formula, front = search.choose(c, c[:, 0] * c[:, 1], search.Settings())
    assert np.mean((search.evaluate(formula, c) - c[:, 0] * c[:, 1]) ** 2) < 1e-8
    difference = sympy.expand(formula - X1 * X2)
    assert all(abs(float(part)) < 1e-6 for part in difference.as_coefficients_dict().values()) or difference == 0
    assert front[0].length <= 9
    errors = [entry.mse for entry in front]
    assert errors == sorted(errors, reverse=True)
    again, _ = search.choose(c, c[:, 0] * c[:, 1], search.Settings())
    assert again == formula


def test_nothing_to_find_is_the_mean() -> None:
    c = np.ones((5, 1))
    assert float(search.choose(c, np.full(5, 3.0), search.Settings())[0]) == 3.0
