"""A fitted model becomes an MLflow model that `mlflow.pyfunc.load_model` loads without unpickling anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kfp_methods.tracking.patience import Patience
from kfp_methods.tracking.place import Place
from kfp_methods.tracking.settings import Settings

if TYPE_CHECKING:
    import pandas
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

    from kfp_methods.contract import FittedModel

NAME = "model"  # runs:/<run id>/model
_COMPONENTS = "kfp_methods.components."


def log_model(
    client: MlflowClient,
    patience: Patience,
    settings: Settings,
    place: Place,
    model: FittedModel,
    folder: Path,
    work: Path,
) -> LoggedModel:
    """Logs the model that lies in `folder` and returns MLflow's record of it; `work` is an empty folder to build it in.

    MLflow's own `log_model` needs the process-wide active run; this is the same sequence through the client.

    Raises:
        GaveUpError: a step failed; the model is then marked FAILED in MLflow where it exists at all.
    """
    from mlflow.entities import LoggedModelOutput

    logged = patience.attempt("create the model", lambda: _create(client, settings, place))
    try:
        build(settings, place, model, folder, work / NAME, logged)
        patience.attempt(
            "write the model's files", lambda: client.log_model_artifacts(logged.model_id, str(work / NAME))
        )
    except Exception:
        patience.attempt("mark the model failed", lambda: client.finalize_logged_model(logged.model_id, "FAILED"))
        raise
    patience.attempt("finish the model", lambda: client.finalize_logged_model(logged.model_id, "READY"))
    output = [LoggedModelOutput(logged.model_id, step=0)]
    patience.attempt("link the model to its run", lambda: client.log_outputs(place.run_id, output))
    return logged


def build(
    settings: Settings, place: Place, model: FittedModel, folder: Path, target: Path, logged: LoggedModel
) -> None:
    """Writes the MLflow model: our files, loader, signature, input example and pinned requirements."""
    import mlflow.pyfunc
    from mlflow.models import Model

    example = model.example()
    mlflow.pyfunc.save_model(
        path=str(target),
        loader_module="kfp_methods.pyfunc",
        data_path=str(folder),
        mlflow_model=Model(
            artifact_path=logged.artifact_location,
            run_id=place.run_id,
            model_uuid=logged.model_id,
            model_id=logged.model_id,
            metadata={"method": settings.method, "version": settings.version},
        ),
        signature=signature_of(example, model.predict(example)),
        input_example=example,
        pip_requirements=[requirement(model, settings.version)],
    )


def signature_of(example: pandas.DataFrame, predicted: pandas.DataFrame) -> ModelSignature:
    """The signature of an example and its predictions, in which a column of numbers takes numbers of any type.

    MLflow refuses whole numbers (int64) in a column of type double, and numbers with a gap (float64) in one of type
    long. Which of the two types a column has in a user's frame depends on the rows that happen to be in it.
    """
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types.schema import AnyType, ColSpec, Schema
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    numbers = [name for name, kind in example.dtypes.items() if is_numeric_dtype(kind) and not is_bool_dtype(kind)]
    inferred = infer_signature(example.astype(dict.fromkeys(numbers, float)), predicted)
    inputs = [
        ColSpec(AnyType(), column.name, required=column.required) if column.name in numbers else column
        for column in inferred.inputs
    ]
    return ModelSignature(inputs=Schema(inputs), outputs=inferred.outputs)


def requirement(model: FittedModel, version: str) -> str:
    """This distribution at this version, with the extra of the method's group."""
    module = type(model).__module__
    group = module.removeprefix(_COMPONENTS).partition(".")[0] if module.startswith(_COMPONENTS) else ""
    return f"kfp-methods{f'[{group}]' if group else ''}=={version}"


def register(
    client: MlflowClient, patience: Patience, settings: Settings, place: Place, logged: LoggedModel, name: str
) -> None:
    """A new version of the registered model `name`. Raises GaveUpError."""
    patience.attempt(f"register the model as {name!r}", lambda: _register(client, settings, place, logged, name))


def _create(client: MlflowClient, settings: Settings, place: Place) -> LoggedModel:
    return client.create_logged_model(
        place.experiment_id,
        name=NAME,
        source_run_id=place.run_id,
        tags={"kfp_methods.method": settings.method, "kfp_methods.version": settings.version},
        model_type="kfp-methods",
    )


def _register(client: MlflowClient, settings: Settings, place: Place, logged: LoggedModel, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    versions = client.search_model_versions(f"run_id = '{place.run_id}'")
    if any(found.name == name and found.model_id == logged.model_id for found in versions):
        return  # a request that seemed to fail had been served
    # A database opened in this process would look models:/ up in MLflow's process-wide tracking URI.
    source = logged.artifact_location if settings.local_folder else f"models:/{logged.model_id}"
    client.create_model_version(
        name,
        source,
        run_id=place.run_id,
        model_id=logged.model_id,
        tags={"kfp_methods.method": settings.method, "kfp_methods.version": settings.version},
        await_creation_for=0,
    )
