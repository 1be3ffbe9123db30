"""The embedded model's conversion: the same numbers as transformers' own reading, whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kfp_methods.components.language import convert


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Made by the script alone, as an image build runs it: a copy, in a folder without this project."""
    folder = tmp_path_factory.mktemp("convert")
    script = shutil.copy(convert.__file__, folder / "convert.py")
    command = [sys.executable, "-P", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stdout.strip() == str(folder / convert.NAME)
    yield folder / convert.NAME
    shutil.rmtree(folder)


@pytest.mark.slow
def test_every_weight_is_what_transformers_reads(converted: Path) -> None:
    from transformers import AutoConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    with torch.device("meta"):
        empty = LlamaForCausalLM(AutoConfig.from_pretrained(converted))
    read = load_gguf_checkpoint(str(convert.embedded_gguf()), return_tensors=True, model_to_load=empty)["tensors"]
    ours = load_file(converted / "model.safetensors")
    assert set(ours) == set(read) - {"lm_head.weight"}
    assert all(torch.equal(values, read[name]) for name, values in ours.items())
    assert set(ours) == {name for name, _ in empty.named_parameters()}


@pytest.mark.slow
def test_it_speaks(converted: Path) -> None:
    from kfp_methods.components.language.generation import generate
    from kfp_methods.components.language.models import load

    lm = load(converted)
    text = lm.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, tokenize=False
    )
    written = generate(lm, [lm.tokenizer(text).input_ids], max_new_tokens=12)[0]
    assert lm.tokenizer.decode(written) == "The capital of France is Paris."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (" 48213", ["Ġ", "4", "8", "2", "1", "3"]),
        ("it's  7", ["it", "'s", "ĠĠ", "7"]),
        ("<|im_end|>a", ["<|im_end|>", "a"]),
        ("é日", ["Ã©", "æĹ", "¥"]),
    ],
)
def test_the_tokenizer_parts_digits_and_keeps_special_tokens(converted: Path, text: str, tokens: list[str]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.slow
def test_checksums_are_those_of_the_files_and_of_every_conversion(converted: Path) -> None:
    lines = (converted / convert.CHECKSUMS).read_text().splitlines()
    sums = dict(reversed(line.split("  ")) for line in lines)
    assert set(sums) | {convert.CHECKSUMS} == {path.name for path in converted.iterdir()}
    for name, expected in sums.items():
        assert hashlib.sha256((converted / name).read_bytes()).hexdigest() == expected
    assert sums["model.safetensors"] == "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"


def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="is not the expected"):
        convert.convert(tmp_path / "made", tmp_path / "other.gguf")
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == ["other.gguf"]


def test_of_several_at_once_one_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def write(source: Path, folder: Path) -> None:
        written.append(folder)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(convert, "write", write)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: convert.convert(tmp_path / "made", tmp_path), range(4)))
    assert made == [tmp_path / "made"] * 4
    assert len(written) == 1


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    assert convert.convert(tmp_path / "made", tmp_path / "none") == tmp_path / "made"


def test_wrong_use_says_how(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, convert.__file__], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "usage: convert.py FOLDER"
