"""Tiny decoders of every architecture that is accepted, loaded as a user's own folder is."""

from __future__ import annotations

import pytest

from kfp_methods.components.language import models
from kfp_methods.components.language.models import LanguageModel
from tests.components.language import tiny_models


@pytest.fixture(scope="session", params=sorted(tiny_models.KINDS))
def any_lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Each architecture in turn."""
    return models.load(tiny_models.save(tmp_path_factory.mktemp("models") / request.param, request.param))


@pytest.fixture(scope="session")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """A tiny Llama."""
    return models.load(tiny_models.save(tmp_path_factory.mktemp("models") / "tiny"))
