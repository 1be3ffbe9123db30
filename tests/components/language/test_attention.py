"""What is captured of a forward pass adds up to it."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from kfp_methods.components.language.attention import capture, check_supported
from kfp_methods.components.language.models import LanguageModel
from kfp_methods.errors import InputError

IDS = torch.randint(3, 320, (1, 21), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("keep", [True, False])
def test_heads_add_up_to_what_attention_wrote(any_lm: LanguageModel, keep: bool) -> None:
    """y = x + o_bias + Σ α f, with grouped keys, biases, q/k norms, a sliding window."""
    for layer in capture(any_lm, IDS, keep_weights=keep).layers:
        bias = layer.module.self_attn.o_proj.bias
        y = layer.entering + torch.einsum("bhij,bhjd->bid", layer.weights(), layer.head_outputs())
        y = y if bias is None else y + bias
        assert (y - layer.attended).abs().max() / layer.attended.abs().max() < 1e-5


def test_weights_computed_again_are_those_of_the_pass(any_lm: LanguageModel) -> None:
    kept, again = (capture(any_lm, IDS, keep_weights=keep).layers for keep in (True, False))
    for one, other in zip(kept, again, strict=True):
        assert other.kept_weights is None
        torch.testing.assert_close(one.weights(), other.weights(), rtol=0, atol=1e-6)
        assert torch.allclose(one.weights().sum(-1), torch.ones(()), atol=1e-5)
        assert not one.weights().triu(1).any()


def test_a_sliding_window_is_seen(any_lm: LanguageModel) -> None:
    window = getattr(any_lm.model.config, "sliding_window", None)
    if not window:
        pytest.skip("this one attends to all that came before")
    weights = capture(any_lm, IDS).layers[0].weights()
    assert not weights.tril(-window).any()
    assert weights.tril(-window + 1).any()


def test_the_pass_is_the_models(any_lm: LanguageModel) -> None:
    captured = capture(any_lm, IDS)
    expected = any_lm.model(IDS, output_hidden_states=True)
    assert torch.equal(captured.layers[0].entering, expected.hidden_states[0])
    torch.testing.assert_close(captured.layers[1].entering, expected.hidden_states[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(any_lm.model.lm_head(captured.final), expected.logits, rtol=1e-4, atol=1e-4)


def test_source_chunks_are_parts_of_the_whole(lm: LanguageModel) -> None:
    layer = capture(lm, IDS).layers[1]
    assert layer.head_outputs().shape == (1, lm.n_heads, 21, lm.width)
    torch.testing.assert_close(layer.head_outputs(slice(5, 9)), layer.head_outputs()[:, :, 5:9])


def test_padding_on_the_left_changes_nothing(lm: LanguageModel) -> None:
    padded = torch.cat([torch.full((1, 4), lm.pad_id), IDS], 1)
    mask = torch.cat([torch.zeros(1, 4, dtype=torch.long), torch.ones_like(IDS)], 1)
    alone, beside = capture(lm, IDS), capture(lm, padded, mask)
    torch.testing.assert_close(beside.layers[1].weights()[..., 4:, 4:], alone.layers[1].weights(), rtol=0, atol=1e-4)


def test_capture_leaves_the_model_as_it_was(lm: LanguageModel) -> None:
    before = lm.model.config._attn_implementation
    capture(lm, IDS)
    assert lm.model.config._attn_implementation == before == "sdpa"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in lm.model.modules())


def test_numbers_out_of_range_are_the_users_to_mend(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm.model.model.norm, "forward", lambda states: states * torch.inf)
    with pytest.raises(InputError, match=r"dtype=float32: .*not finite.*Use bfloat16 or float32"):
        capture(lm, IDS)


def test_other_architectures_are_named() -> None:
    other = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=10))
    with pytest.raises(InputError, match=r"unsupported architecture: GPT2LMHeadModel, needs model.layers\[\*\]"):
        check_supported(other)
