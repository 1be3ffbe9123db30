"""Machine-learning methods as typed Kubeflow components, tracked by MLflow."""
