"""A user's own tiny model and traces, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tests.components.language import tiny_models

TRACES: list[dict[str, Any]] = [
    {
        "id": "rag-1",
        "prompt": "The code of Bob is 77120. The code of Alice is 48213. What is the code of Bob?",
        "reasoning": "Bob has the code 77120.\n",
        "output": "The code is 77120.",
        "evidence": [[0, 25]],
    },
    {"id": "ünï-2", "prompt": "Was heißt 日本? $x$ <b>&amp;", "output": "Japan, <i>Japan</i>."},
    {"id": "3", "prompt": "What is the code?", "chat": False},
]


def make(folder: Path) -> dict[str, Any]:
    """A random Llama in safetensors and three traces, of which it writes the last one's output."""
    if not (model := folder / "mein modell").exists():
        tiny_models.save(model)
    return {"traces_uri": lines(folder / "traces.jsonl", TRACES), "model_uri": str(model), "max_new_tokens": 8}


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    """The rows as JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Runs that must end with exit code 2, and words of their errors."""
    good, first = make(folder), TRACES[0]

    def traces(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
        return good | {"traces_uri": lines(folder / f"{name}.jsonl", list(rows))}

    other = folder / "gpt2"
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=320)).save_pretrained(other)
    tiny_models.tokenizer().save_pretrained(other)
    pickled = tiny_models.save(folder / "pickled")
    torch.save({}, pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    overflowing = tiny_models.save(folder / "overflowing", scale=3_000.0)
    (folder / "latin.jsonl").write_bytes('{"id": "a", "prompt": "é", "output": "b"}\n'.encode("latin-1"))
    return [
        (good | {"model_uri": str(other)}, ["model_uri", "GPT2LMHeadModel", "LlamaForCausalLM"]),
        (good | {"model_uri": str(pickled)}, ["model_uri", "pickled"]),
        (good | {"model_uri": str(overflowing), "dtype": "float16"}, ["dtype", "not finite", "bfloat16"]),
        (traces("empty", first | {"output": " . "}), ["traces_uri", "rag-1", "nothing to attribute"]),
        (traces("outside", first | {"evidence": [[0, 5_000]]}), ["rag-1", "[0, 5000)", "leaves the prompt's"]),
        (traces("reversed", first | {"evidence": [[9, 3]]}), ["rag-1", "[9, 3)", "reversed"]),
        (traces("uncovered", first | {"evidence": [[24, 25]]}), ["rag-1", "[24, 25)", "covers no token"]),
        (traces("unpaired", first | {"evidence": [3, 9]}), ["rag-1", "pair of whole numbers"]),
        (traces("noprompt", {"id": "a", "output": "b"}), ["traces_uri", "'prompt'"]),
        (
            traces("reasoning", {"id": "a", "prompt": "b", "reasoning": "c"}),
            ["trace a", "reasoning without output"],
        ),
        (traces("twice", first, first), ["traces_uri", "id"]),
        (good | {"max_tokens": 10}, ["rag-1", "more than 10"]),
        (good | {"traces_uri": str(folder / "latin.jsonl")}, ["traces_uri", "UTF-8"]),
        (good | {"split_pattern": "("}, ["split_pattern", "regular expression"]),
        (good | {"hops": 9}, ["hops"]),
        (good | {"baselines": ["lxt"]}, ["baselines"]),
    ]
