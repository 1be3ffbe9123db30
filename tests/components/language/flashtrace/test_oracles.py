"""FlashTrace against what must hold of it, and against a loop over layers, heads, targets and sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kfp_methods.components.language import models
from kfp_methods.components.language.attention import Layer, capture
from kfp_methods.components.language.flashtrace.attribution import (
    Attribution,
    attribute,
    layer_shares,
    proximity,
    span_scores,
    token_scores,
)
from kfp_methods.components.language.models import LanguageModel
from tests.components.language import tiny_models

N, FIRST_REASONING, FIRST_OUTPUT = 24, 12, 19
GENERATOR = torch.Generator().manual_seed(2)
IDS = torch.randint(3, 320, (1, N), generator=GENERATOR)
POSITIONS = torch.arange(N)
OUTPUT, REASONING, PROMPT = POSITIONS >= FIRST_OUTPUT, (POSITIONS >= 12) & (POSITIONS < 19), POSITIONS < FIRST_REASONING
NONE = torch.zeros(N, dtype=torch.bool)


@pytest.fixture(scope="module")
def layers(any_lm: LanguageModel) -> tuple[Layer, ...]:
    return capture(any_lm, IDS).layers


DTYPES: tuple[models.Dtype, ...] = ("float32", "bfloat16")


def explained(layers: Sequence[Layer], **changes: object) -> Attribution:
    where = {"answer": OUTPUT, "recursion": REASONING | OUTPUT, "prompt": PROMPT, "skipped": NONE, "min_mass": 0.0}
    return attribute(layers, **(where | changes))  # type: ignore[arg-type]


def by_loop(layer: Layer, u: Tensor) -> tuple[Tensor, float]:
    """ē and the residual's share, one head, target and source after the other, in double precision."""
    attention, x = layer.module.self_attn, layer.normed()[0].double()
    values = torch.nn.functional.linear(
        x, attention.v_proj.weight.double(), None if attention.v_proj.bias is None else attention.v_proj.bias.double()
    )
    e_width, groups = attention.head_dim, attention.num_key_value_groups
    out = attention.o_proj.weight.double()
    alpha = layer.weights()[0].double()
    Y = sum(u[i].double() * layer.attended[0, i].double() for i in range(len(u)))
    R = sum(u[i].double() * layer.entering[0, i].double() for i in range(len(u)))

    def prox(z: Tensor) -> float:
        return max(0.0, float(Y.abs().sum() - (Y - z).abs().sum()))

    e = torch.zeros(len(u), dtype=torch.float64)
    for h in range(alpha.shape[0]):
        kv = h // groups
        for j in range(len(u)):
            f = out[:, h * e_width : (h + 1) * e_width] @ values[j, kv * e_width : (kv + 1) * e_width]
            a = sum(float(u[i]) * float(alpha[h, i, j]) for i in range(len(u)))
            e[j] += prox(a * f)
    r = prox(R)
    return e / (e.sum() + r + 1e-12), r / float(e.sum() + r + 1e-12)


def test_by_hand() -> None:
    """One layer, one head, d = 2, Y = (2, -1)."""
    Y = torch.tensor([2.0, -1.0])
    cases = {(1.0, 0.0): 1.0, (0.0, 1.0): 0.0, (2.0, -1.0): 3.0, (4.0, -2.0): 0.0, (-2.0, 1.0): 0.0}
    for z, expected in cases.items():
        assert float(proximity(torch.tensor(z), Y)) == expected


@pytest.mark.parametrize("kind", sorted(tiny_models.KINDS))
def test_equals_the_loop(kind: str, tmp_path: Path) -> None:
    """Two layers, d = 8, six positions."""
    extra = {"head_dim": 2} if kind != "qwen2" else {}
    lm = models.load(tiny_models.save(tmp_path / "m", kind, width=8, **extra))
    u = torch.tensor([0.0, 0.3, 0.0, 1.0, 0.7, 2.0])
    for layer in capture(lm, IDS[:, :6]).layers:
        shares, residual = layer_shares(layer, u[None], 4)
        expected, expected_residual = by_loop(layer, u)
        torch.testing.assert_close(shares[0].double(), expected, rtol=0, atol=1e-6)
        assert float(residual[0]) == pytest.approx(expected_residual, abs=1e-6)
        assert expected.max() > 0.05


def test_scaling_all_targets_changes_nothing(layers: tuple[Layer, ...]) -> None:
    u = OUTPUT * torch.rand(N, generator=torch.Generator().manual_seed(1))
    expected = span_scores(layers, u[None], 128)
    for c in (1e-3, 0.1, 7.0, 1e3):
        torch.testing.assert_close(span_scores(layers, (c * u)[None], 128), expected, rtol=0, atol=1e-6)


def test_a_span_of_one_token_is_that_token(layers: tuple[Layer, ...]) -> None:
    for position in (0, 5, N - 1):
        span = span_scores(layers, (position == POSITIONS).float()[None], 128)[0]
        for reuse in (True, False):
            alone = token_scores(layers, torch.tensor([position]), 128, reuse=reuse)
            torch.testing.assert_close(span, alone, rtol=0, atol=1e-6)
    one = explained(layers, answer=POSITIONS == N - 1, recursion=POSITIONS == N - 1, hops=0)
    w = token_scores(layers, torch.tensor([N - 1]), 128, reuse=True)
    torch.testing.assert_close(one.hops[0], w / w.sum(), rtol=0, atol=1e-6)
    torch.testing.assert_close(one.scores(), one.hops[0] * PROMPT)


def test_shares_of_a_layer_are_shares(layers: tuple[Layer, ...]) -> None:
    u = torch.stack([OUTPUT.float(), REASONING.float(), (POSITIONS == 3).float()])
    for layer in layers:
        shares, residual = layer_shares(layer, u, 7)
        torch.testing.assert_close(shares.sum(1) + residual, torch.ones(3), rtol=0, atol=1e-6)
        assert (shares >= 0).all() and (residual >= 0).all()  # noqa: PT018
        for row, last in zip(shares, (N - 1, FIRST_OUTPUT - 1, 3), strict=True):
            assert not row[last + 1 :].any()


@pytest.mark.parametrize("hops", range(5))
def test_mass_is_neither_made_nor_lost(layers: tuple[Layer, ...], hops: int) -> None:
    found = explained(layers, hops=hops)
    assert len(found.remaining) == hops + 1
    assert float(found.scores().sum()) + found.leftover() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(found.hops.sum(1), torch.ones(hops + 1), rtol=0, atol=1e-6)
    for before, after in pairwise(range(hops + 1)):
        assert found.scores(after).sum() > found.scores(before).sum()


def test_no_hop_is_the_first_pass(layers: tuple[Layer, ...]) -> None:
    none, several = explained(layers, hops=0), explained(layers, hops=3)
    assert torch.equal(none.scores(), none.hops[0] * PROMPT)
    assert torch.equal(several.scores(0), none.scores())
    expected = none.hops[0] * PROMPT + none.remaining[0] * several.hops[1] * PROMPT
    torch.testing.assert_close(several.scores(1), expected)


def test_hops_follow_the_weights_of_the_pass_before(layers: tuple[Layer, ...]) -> None:
    found = explained(layers, hops=1)
    w = span_scores(layers, (found.hops[0] * (REASONING | OUTPUT))[None], 128)[0]
    torch.testing.assert_close(found.hops[1], w / w.sum(), rtol=0, atol=1e-6)
    through = explained(layers, hops=1, recursion=REASONING)
    assert through.remaining[0] == pytest.approx(float(found.hops[0][REASONING].sum()), abs=1e-6)


def test_attention_on_one_source_gives_no_other_any(layers: tuple[Layer, ...]) -> None:
    found = []
    for source in range(N):
        weights = torch.zeros_like(layers[0].weights())
        weights[..., source] = 1
        replaced = [replace(layer, kept_weights=weights) for layer in layers]
        scores = span_scores(replaced, OUTPUT.float()[None], 128)[0]
        assert not scores[source != POSITIONS].any()
        found.append(float(scores[source]))
    assert max(found) > 0.01


@pytest.mark.parametrize("chunk", [1, 7, N])
def test_chunks_change_nothing(layers: tuple[Layer, ...], chunk: int) -> None:
    expected = explained(layers, hops=2, chunk=128)
    torch.testing.assert_close(explained(layers, hops=2, chunk=chunk).hops, expected.hops, rtol=0, atol=1e-6)


def test_attention_computed_again_changes_nothing(any_lm: LanguageModel) -> None:
    kept, again = (explained(capture(any_lm, IDS, keep_weights=keep).layers, hops=2) for keep in (True, False))
    torch.testing.assert_close(kept.hops, again.hops, rtol=0, atol=1e-5)


def test_shared_work_changes_nothing(layers: tuple[Layer, ...]) -> None:
    targets = OUTPUT.nonzero()[:, 0]
    shared, anew = (token_scores(layers, targets, 128, reuse=reuse) for reuse in (True, False))
    torch.testing.assert_close(shared, anew, rtol=0, atol=1e-6)


def test_skipped_positions_are_neither_targets_nor_sources(layers: tuple[Layer, ...]) -> None:
    skipped = (POSITIONS == 2) | (POSITIONS == 14) | (POSITIONS == 21)
    found = explained(layers, hops=2, skipped=skipped)
    assert not found.hops[:, skipped].any()
    assert float(found.scores().sum()) + found.leftover() == pytest.approx(1, abs=1e-6)
    w = span_scores(layers, (OUTPUT & ~skipped).float()[None], 128)[0] * ~skipped
    torch.testing.assert_close(found.hops[0], w / w.sum(), rtol=0, atol=1e-6)


def test_hopping_stops_when_too_little_is_left(layers: tuple[Layer, ...]) -> None:
    whole = explained(layers, hops=6)
    least = whole.leftover(2) * 1.01
    assert len(explained(layers, hops=6, min_mass=least).remaining) == 3
    nothing = explained(layers, hops=6, recursion=NONE)
    assert nothing.remaining == (0.0,)
    assert torch.equal(nothing.scores(), nothing.hops[0] * PROMPT)


def test_only_skipped_output_is_nothing_to_explain(layers: tuple[Layer, ...]) -> None:
    with pytest.raises(ValueError, match="only skipped positions"):
        explained(layers, skipped=OUTPUT)


def test_half_precision_models_get_float32_distances(tmp_path: Path) -> None:
    folder = tiny_models.save(tmp_path / "m")
    exact, half = (
        explained(capture(models.load(folder, dtype=dtype), IDS).layers) for dtype in ("float32", "bfloat16")
    )
    assert half.hops.dtype is torch.float32
    assert torch.corrcoef(torch.stack([exact.scores()[PROMPT], half.scores()[PROMPT]]))[0, 1] > 0.98
