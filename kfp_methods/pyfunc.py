"""MLflow's loader of the models that methods make: by the method's name, from this package's catalogue only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from kfp_methods.contract import FittedModel


MODEL_FILE = "method.json"


class ServedModel:
    """A fitted model behind the interface that MLflow calls."""

    def __init__(self, model: FittedModel) -> None:
        self._model = model

    def predict(self, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> pandas.DataFrame:
        """One output row for each input row; `params` is part of MLflow's interface and unused."""
        return self._model.predict(model_input)

    def unwrap(self) -> FittedModel:
        """The method's own model."""
        return self._model


def _load_pyfunc(path: str) -> ServedModel:
    """Loads the folder that `FittedModel.save` wrote, whose `method.json` names the method.

    The name is looked up among the installed methods; nothing of the folder is imported or executed.

    Raises:
        ValueError: the folder is not such a model.
        InputError: no installed method has that name.
    """
    from kfp_methods import catalogue

    folder = Path(path)
    try:
        name = json.loads((folder / MODEL_FILE).read_text(encoding="utf-8"))["method"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is no model of kfp-methods: {MODEL_FILE} does not name its method") from error
    method = catalogue.load(str(name))
    if method.load_model is None:
        raise ValueError(f"{folder}: the method {name} makes no models that can be loaded")
    return ServedModel(method.load_model(folder))
