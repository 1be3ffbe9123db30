"""Tiny random decoders with a tokenizer of their own, in folders as `save_pretrained` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

KINDS = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 8}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": 8}),
}
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_TEXT = ["The access code of Alice is 48213. The code of Bob is 77120.", "What is the access code? The code is."]


def tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """Byte-level BPE of about 300 tokens, any text being representable."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>", "<|start|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_TEXT, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|end|>", pad_token="<|pad|>", bos_token="<|start|>"
    )
    fast.chat_template = template
    return fast


def model(kind: str = "llama", *, layers: int = 2, width: int = 32, scale: float = 3.0, **changes: Any) -> Any:
    """A random decoder in evaluation mode, its weights `scale` times as usual so that heads differ."""
    config_type, model_type, extra = KINDS[kind]
    torch.manual_seed(0)
    config = config_type(
        vocab_size=320,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=0,
        bos_token_id=1,
        pad_token_id=2,
        **(extra | changes),
    )
    made = model_type(config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" not in name:
                parameter.mul_(scale)
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def save(folder: Path, kind: str = "llama", template: str | None = TEMPLATE, **changes: Any) -> Path:
    """Writes model and tokenizer into a new folder."""
    model(kind, **changes).save_pretrained(folder)
    tokenizer(template).save_pretrained(folder)
    return folder
