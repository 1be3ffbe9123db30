"""What each layer of a decoder did on a text: its hidden states, its attention weights, what each head moved where.

For decoders with RMSNorm and q/k/v/o projections (`models.ARCHITECTURES`). Symbols: B texts, N positions, L layers,
H heads, K heads of keys and values, d the width, e the width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kfp_methods.components.language.models import AttentionName, LanguageModel, not_finite
from kfp_methods.errors import InputError, Problem

_NEEDED = ("input_layernorm", "post_attention_layernorm", "self_attn.v_proj", "self_attn.o_proj")


@dataclass(frozen=True)
class Layer:
    """One decoder layer in a forward pass.

    Attributes:
        module: the layer.
        entering: residual stream x that enters it [B, N, d].
        attended: residual stream y after attention, before the MLP's norm [B, N, d].
        kept_weights: attention after the softmax [B, H, N, N], or None when it is to be computed again when asked for.
        call: what else the attention was called with (mask, rotations), to do so.
    """

    module: nn.Module
    entering: Tensor
    attended: Tensor
    kept_weights: Tensor | None
    call: Mapping[str, Any]

    def normed(self, positions: slice = slice(None)) -> Tensor:
        """The attention's input: `entering` after the layer's own norm [B, n, d]."""
        return self.module.input_layernorm(self.entering[:, positions])  # type: ignore[operator]

    @torch.no_grad()
    def weights(self) -> Tensor:
        """Attention weights after the softmax [B, H, N, N]; row: the position that attends."""
        if self.kept_weights is not None:
            return self.kept_weights
        attention: Any = self.module.self_attn
        with _attending(attention.config, "eager"):
            return attention(hidden_states=self.normed(), **self.call)[1]

    @torch.no_grad()
    def head_outputs(self, positions: slice = slice(None)) -> Tensor:
        """f = W_O W_V norm(x) of each head at each source position, in float32 [B, H, n, d].

        With a = `weights()`, y = x + o_bias + Σ over heads and sources of a f: what a position got from each source
        through each head. A bias of the values is part of f, since the weights of a row sum to 1.
        """
        attention: Any = self.module.self_attn
        values = _linear(attention.v_proj, self.normed(positions))  # [B, n, K·e]
        B, n, e = *values.shape[:2], attention.head_dim
        by_head = values.view(B, n, -1, e).transpose(1, 2)  # [B, K, n, e]
        by_head = by_head.repeat_interleave(attention.num_key_value_groups, dim=1)  # [B, H, n, e]
        out = attention.o_proj.weight.float().view(-1, by_head.shape[1], e).permute(1, 2, 0)  # [H, e, d]
        return by_head @ out


@dataclass(frozen=True)
class Captured:
    """A forward pass: its layers from first to last, and the states that meet the output matrix [B, N, d]."""

    layers: tuple[Layer, ...]
    final: Tensor


def check_supported(model: nn.Module, field: str = "model_uri") -> None:
    """Raises InputError unless every layer has the parts that are read here."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    lacking = [
        part
        for part in _NEEDED
        if not isinstance(layers, nn.ModuleList) or not all(_has(layer, part) for layer in layers)
    ]
    if lacking:
        problem = f"unsupported architecture: {type(model).__name__}, needs model.layers[*].{lacking[-1]}"
        remedy = "Give a Llama, Mistral, Qwen2 or Qwen3 decoder"
        raise InputError(Problem(field, None, problem, remedy))


@torch.no_grad()
def capture(lm: LanguageModel, ids: Tensor, mask: Tensor | None = None, *, keep_weights: bool = True) -> Captured:
    """Runs the model once on token ids [B, N], with attention weights whatever it was loaded with.

    Args:
        mask: 1 where there is a token, 0 for padding [B, N]; None without padding.
        keep_weights: keep all layers' weights, L·B·H·N² numbers; else `Layer.weights` computes a layer's when asked.

    Raises:
        InputError: the architecture lacks a part, or the numbers leave the type's range.
    """
    check_supported(lm.model)
    seen: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.enter_context(_attending(lm.model.config, "eager"))
        for layer in lm.model.model.layers:
            seen.append({"module": layer, "kept_weights": None})
            for hook in _hooks(layer, seen[-1], keep_weights):
                stack.callback(hook.remove)
        decoder: Any = lm.model.model
        final = decoder(input_ids=ids.to(lm.device), attention_mask=mask, use_cache=False).last_hidden_state
    if not torch.isfinite(final).all():
        raise not_finite(lm)
    return Captured(tuple(Layer(**entry) for entry in seen), final)


def _hooks(layer: Any, entry: dict[str, Any], keep_weights: bool) -> Iterator[Any]:
    """Hooks that fill in one layer's entry."""

    def entering(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        entry["entering"] = args[0]

    def attended(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        entry["attended"] = args[0]

    def called(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: tuple[Tensor, ...]) -> None:
        entry["call"] = {key: value for key, value in kwargs.items() if key != "hidden_states"}
        if keep_weights:
            entry["kept_weights"] = output[1]

    yield layer.input_layernorm.register_forward_pre_hook(entering)
    yield layer.post_attention_layernorm.register_forward_pre_hook(attended)
    yield layer.self_attn.register_forward_hook(called, with_kwargs=True)


@contextmanager
def _attending(config: Any, implementation: AttentionName) -> Iterator[None]:
    """Within it, attention is computed by another implementation; layers read the choice at each call."""
    before = config._attn_implementation
    config._attn_implementation = implementation
    try:
        yield
    finally:
        config._attn_implementation = before


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    """The module's map in float32."""
    return nn.functional.linear(x.float(), module.weight.float(), None if module.bias is None else module.bias.float())


def _has(module: nn.Module, path: str) -> bool:
    try:
        module.get_submodule(path)
    except AttributeError:
        return False
    return True
