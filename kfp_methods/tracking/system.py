"""Samples of the machine's CPU, memory, disk, network and GPUs, by MLflow's own monitors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.entities import Metric

_LEAST_SECONDS = 0.5


def prime() -> None:
    """psutil reports CPU use since its last call: the first would say nothing."""
    with contextlib.suppress(ImportError):
        import psutil  # type: ignore[import-untyped]

        psutil.cpu_percent()


class Sampler:
    """Takes MLflow's samples at its interval, and hands them over instead of sending them.

    MLflow's monitor thread stops for good at the first failing request and publishes nothing of a run shorter than
    its interval; here its samples travel with the curves, which are kept until the server answers.
    """

    def __init__(self, run_id: str, tracking_uri: str, resume: bool) -> None:
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(run_id, resume_logging=resume, tracking_uri=tracking_uri)
        self._monitor.mlflow_logger = self  # type: ignore[assignment]
        self._taken_at = -float("inf")
        self._samples: list[Metric] = []

    @property
    def due_in(self) -> float:
        """Seconds until the next sample."""
        return float(self._taken_at + self._monitor.sampling_interval - time.monotonic())

    def take(self, last: bool = False) -> list[Metric]:
        """The next sample when it is due; the last one unless another was taken just now."""
        if self.due_in > 0 and not (last and time.monotonic() - self._taken_at > _LEAST_SECONDS):
            return []
        self._taken_at = time.monotonic()
        self._monitor.collect_metrics()
        self._monitor.publish_metrics(self._monitor.aggregate_metrics())
        samples, self._samples = self._samples, []
        return samples

    def record_metrics(self, values: Mapping[str, float], step: int) -> None:
        """What MLflow's monitor calls to publish."""
        from mlflow.entities import Metric

        now_ms = time.time_ns() // 1_000_000
        self._samples += [Metric(name, float(value), now_ms, step) for name, value in values.items()]
