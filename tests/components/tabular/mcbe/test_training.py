"""Networks, phases of training, and what is measured of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from kfp_methods.components.tabular.mcbe import formulas, measuring, sample, search, training
from kfp_methods.components.tabular.mcbe.data import Data, Tensors
from kfp_methods.components.tabular.mcbe.networks import LinearExperts, Mixture, chosen, sampled
from kfp_methods.components.tabular.mcbe.training import Settings

QUICK = Settings(epochs=12, hidden=32, latent=16)


def linear_data(n: int = 600, seed: int = 0) -> Data:
    """y is linear in three concepts, which are linear in the inputs."""
    rng = np.random.default_rng(seed)
    c = rng.normal([3.0, -1.0, 10.0], [2.0, 1.0, 5.0], (n, 3))
    x = np.column_stack([c, rng.normal(size=(n, 2))]).astype(np.float32)
    y = (c @ [2.0, -3.0, 0.5] + 4)[:, None]
    part = np.repeat([0, 1, 2], [n - 200, 100, 100])
    return Data(x, c, y, part, ("a", "b", "c"), ("y",), (False,) * 3)


def switching(n: int = 900, seed: int = 0, classes: bool = False) -> Data:
    """The first input says which of two formulas of binary concepts holds."""
    rng = np.random.default_rng(seed)
    c = rng.integers(0, 2, (n, 3)).astype(float)
    group = rng.integers(0, 2, n)
    value = np.where(group == 0, c[:, 0] + c[:, 1], 2 * c[:, 2] - c[:, 0])
    x = np.column_stack([4 * group - 2, 2 * c + 0.1 * rng.normal(size=c.shape)]).astype(np.float32)
    part = np.repeat([0, 1, 2], [n - 300, 150, 150])
    names = ("no", "yes") if classes else ()
    y = (value > 0.5).astype(int) if classes else value[:, None]
    return Data(x, c, y, part, ("a", "b", "c"), ("y",), (True,) * 3, names)


def test_one_linear_expert_is_linear_regression_on_concepts() -> None:
    data = linear_data()
    settings = Settings(epochs=400, lr=5e-3, weight_reg=0.0, batch=400, hidden=32, latent=16)
    trained = training.mixture(data, 1, "linear", settings, 0)
    fitted = LinearRegression().fit(data.c[data.rows(0)], data.y[data.rows(0)][:, 0])
    [[formula]] = measuring.expressions(trained.model, data)  # type: ignore[misc]
    found = search.evaluate(formula, np.vstack([np.zeros(3), np.eye(3)]))
    assert found[0] == pytest.approx(fitted.intercept_, abs=2e-2)
    assert found[1:] - found[0] == pytest.approx(fitted.coef_, abs=5e-3)


@pytest.mark.parametrize("kind", ["linear", "symbolic"])
def test_printed_formulas_give_the_models_predictions(kind: str) -> None:
    """In the units of concepts and target."""
    data = linear_data()
    if kind == "linear":
        model = training.mixture(data, 3, "linear", QUICK, 0).model
    else:
        first = training.mixture(data, 2, "mlp", QUICK, 0)
        few = search.Settings(generations=5, population=50)
        model = training.symbolic(data, first, QUICK, few, 500, 10, 0)[0].model
    found = measuring.predict(model, data, 2, "cpu")
    written = measuring.expressions(model, data)
    assert written is not None
    assert found.expert is not None
    for m in np.unique(found.expert):
        at = found.expert[:, 0] == m
        by_hand = search.evaluate(written[m][0], found.concepts[at])
        assert by_hand == pytest.approx(found.outputs[at, 0], rel=1e-4, abs=1e-3)


def test_a_one_hot_choice_selects_an_expert_and_order_does_not_matter() -> None:
    torch.manual_seed(0)
    experts = LinearExperts(4, 3, 2, 8)
    c, logits = torch.randn(6, 3), torch.randn(6, 4, 2)
    p = chosen(logits)
    W = experts.weights()
    expected = torch.stack(
        [
            torch.stack(
                [(W[logits[n, :, o].argmax(), o, :-1] @ c[n]) + W[logits[n, :, o].argmax(), o, -1] for o in range(2)]
            )
            for n in range(6)
        ]
    )
    assert torch.allclose((p * experts(c)).sum(1), expected, atol=1e-5)
    order = torch.tensor([2, 0, 3, 1])
    moved = (chosen(logits[:, order]) * experts(c)[:, order]).sum(1)
    assert torch.allclose(moved, expected, atol=1e-5)


def test_the_selectors_choice() -> None:
    assert chosen(torch.zeros(2, 3, 1))[:, 0].eq(1).all()  # the first of equals
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, 2, requires_grad=True)
    hard = sampled(logits, 1e-3, rng)
    assert torch.allclose(hard.sum(1), torch.ones(50, 2), atol=1e-5)
    assert (hard - 0).abs().min() < 1e-5
    assert (hard - 1).abs().min() < 1e-5
    hard.square().sum().backward()
    assert logits.grad is not None
    draws = torch.stack([sampled(torch.log(torch.tensor([[[0.7], [0.3]]])), 1.0, rng) for _ in range(2_000)])
    assert float(draws[:, 0, 0].mean()) == pytest.approx(0.7, abs=0.04)


def test_temperatures_fall_along_a_cosine() -> None:
    assert training.temperature(0, 100, (2.0, 0.05)) == pytest.approx(2.0)
    assert training.temperature(50, 100, (2.0, 0.05)) == pytest.approx(1.025)
    assert training.temperature(100, 100, (2.0, 0.05)) == pytest.approx(0.05)


def test_dropped_weights_stay_zero() -> None:
    data = linear_data()
    settings = replace(QUICK, threshold=0.3, epochs=20)
    experts = training.mixture(data, 2, "linear", settings, 0).model.experts
    dropped = experts.mask == 0
    assert dropped.any()
    assert (experts.weights()[dropped] == 0).all()


def test_concepts_learn_nothing_from_the_task() -> None:
    """Whatever the target is, the concept layer's gradient comes from the concepts' loss alone."""
    data = linear_data()
    settings = replace(QUICK, disjoint=False, concept_penalty=0.0)
    model = training.mixture(data, 2, "linear", replace(settings, epochs=1), 0).model
    part, rng = Tensors.of(data, 0, "cpu"), torch.Generator().manual_seed(0)
    loss = training._loss(model, part, data, settings, 1.0, rng)
    loss.backward()
    assert model.concepts.weight.grad is None or not model.concepts.weight.grad.abs().any()
    assert next(model.encoder.parameters()).grad.abs().any()


@pytest.mark.parametrize("classes", [False, True])
def test_a_mixture_finds_what_one_formula_cannot(classes: bool) -> None:
    data = switching(classes=classes)
    settings = Settings(epochs=60, lr=3e-3, hidden=32, latent=16, batch=64)
    one, three = (training.mixture(data, M, "linear", settings, 1) for M in (1, 3))
    single, several = (measuring.measure("linear", M, 0, t, data, "cpu") for M, t in ((1, one), (3, three)))
    assert several.score > single.score + (0.03 if classes else 0.2)
    assert several.concept is not None
    assert several.concept > 0.95


def test_with_all_concepts_true_the_prediction_is_the_experts() -> None:
    data = linear_data()
    model = training.mixture(data, 2, "mlp", QUICK, 0).model
    rows = Tensors.of(data, 2, "cpu")
    found = measuring.predict(model, data, 2, "cpu", np.ones(100))
    with torch.no_grad():
        _, selector = model.encode(rows.x)
        expected = model.decide(rows.c, chosen(selector)) * data.scale.y_sd[0] + data.scale.y_mean[0]
    assert found.outputs == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-4)
    curve = measuring.interventions(model, data, "cpu", 0)
    assert curve[-1] == pytest.approx(measuring.score(found.outputs, data))


@pytest.mark.parametrize("classes", [False, True])
def test_baselines_train(classes: bool) -> None:
    data = switching(classes=classes)
    settings = Settings(epochs=30, lr=3e-3, hidden=32, latent=16, batch=64)
    models = {
        "black_box": training.black_box(data, settings, 0),
        "licem": training.per_row(data, settings, 0, embedded=False),
        "cem": training.per_row(data, settings, 0, embedded=True),
    }
    for kind, trained in models.items():
        one = measuring.measure(kind, 0, 0, trained, data, "cpu")
        assert one.score > 0.8, kind
        assert one.complexity is None


def test_images_and_more_classes() -> None:
    rng = np.random.default_rng(0)
    n = 240
    c = rng.integers(0, 2, (n, 2)).astype(float)
    x = np.zeros((n, 1, 8, 8), np.float32)
    x[:, 0, :4] += c[:, :1, None].astype(np.float32)
    x[:, 0, 4:] += c[:, 1:, None].astype(np.float32)
    part = np.repeat([0, 1, 2], [140, 50, 50])
    data = Data(x, c, (c[:, 0] + c[:, 1]).astype(int), part, ("up", "down"), ("y",), (True, True), ("0", "1", "2"))
    settings = Settings(epochs=30, lr=3e-3, hidden=32, latent=16, batch=32)
    one = measuring.measure("linear", 2, 0, training.mixture(data, 2, "linear", settings, 0), data, "cpu")
    assert one.score > 0.9


def test_training_repeats_itself_and_leaves_torch_as_it_was() -> None:
    data = linear_data()
    before = torch.get_rng_state()
    one, two = (training.mixture(data, 2, "mlp", QUICK, 3) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert one.validation == two.validation
    weights = zip(one.model.parameters(), two.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


def test_the_sample_is_what_it_is_said_to_be() -> None:
    data = sample.digits(100, 50, 200, 0)
    assert data.x.shape == (350, 192)
    assert data.y[:, 0] == pytest.approx(
        np.array([sample.truth(g, c[None])[0] for g, c in zip(data.group, data.c, strict=True)])
    )  # type: ignore[arg-type]
    assert (data.c[data.group == 3, 1] > 0).all()
    strokes = sample.glyphs().reshape(4, -1).sum(1)
    assert strokes.tolist() == [20, 12, 16, 8]
    middle = data.x.reshape(-1, 8, 24)[:, :, 8:16].reshape(350, -1)
    nearest = ((middle[:, None] - sample.glyphs().reshape(4, -1)[None]) ** 2).sum(2).argmin(1)
    assert (nearest == data.group).all()


def test_formulas_are_matched_on_the_rows_they_are_meant_for() -> None:
    data = sample.digits(60, 30, 200, 0)
    one = measuring.Measured("symbolic", 5, 0, training.Trained(None, 0.0, {}), 0, 0, None, 0, None)
    texts = ("X1+X2", "1.0001*X1-X2", "X1*X2+2", "X1/X2")
    one.experts = {(i, 0): (formulas.read(text), 0.25) for i, text in enumerate(texts)}
    truths = [sample.truth(g, data.c[data.rows(2)]) for g in range(4)]
    assert measuring.matches(one, data, truths) == 3


def test_a_mixture_knows_its_binary_concepts() -> None:
    data = switching()
    model = training.mixture(data, 2, "linear", QUICK, 0).model
    assert isinstance(model, Mixture)
    found = measuring.predict(model, data, 2, "cpu").concepts
    assert found.min() >= 0
    assert found.max() <= 1
