"""Run inside the image: tracks a run with all that the platform logs, and prints what can be read back."""

# mypy: ignore-errors
import json
import time

import matplotlib.pyplot as plt
import mlflow
import numpy as np
import pandas as pd
from mlflow.models import infer_signature


class RowSum(mlflow.pyfunc.PythonModel):
    """Adds up a table's columns."""

    def predict(self, context, model_input, params=None):
        return np.asarray(model_input).sum(axis=1)


mlflow.set_tracking_uri("sqlite:////tmp/mlflow.db")
mlflow.set_experiment("image")
mlflow.enable_system_metrics_logging()
mlflow.set_system_metrics_sampling_interval(0.2)
mlflow.set_system_metrics_samples_before_logging(1)
table = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})

with mlflow.start_run() as run:
    mlflow.log_input(mlflow.data.from_pandas(table, name="table"), context="data")
    mlflow.log_input(mlflow.data.from_numpy(np.eye(2), name="array"), context="data")
    mlflow.log_param("seed", 0)
    mlflow.log_metric("loss", 0.5, step=1)
    mlflow.log_text("<p>report", "report.html")
    mlflow.log_table(table, "table.json")
    figure, axes = plt.subplots()
    axes.plot([0, 1])
    mlflow.log_figure(figure, "figure.png")
    model = mlflow.pyfunc.log_model(
        name="model",
        python_model=RowSum(),
        signature=infer_signature(table, np.array([1.0])),
        input_example=table,
        pip_requirements=["numpy"],
        registered_model_name="row-sum",
    )
    time.sleep(1)

client = mlflow.MlflowClient()
read = client.get_run(run.info.run_id)
print(
    json.dumps(
        {
            "metrics": sorted(read.data.metrics),
            "dataset_digests": [entry.dataset.digest for entry in read.inputs.dataset_inputs],
            "artifacts": [entry.path for entry in client.list_artifacts(run.info.run_id)],
            "prediction": mlflow.pyfunc.load_model("models:/row-sum/1").predict(table).tolist(),
            "model": model.model_uri,
        }
    )
)
