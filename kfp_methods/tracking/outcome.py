"""What a run has to tell MLflow, and what became of the telling."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kfp_methods.tracking.settings import local_tracking_uri

if TYPE_CHECKING:
    from kfp_methods.claims import ClaimResult
    from kfp_methods.context import CurvePoint
    from kfp_methods.contract import FittedModel
    from kfp_methods.report import Figure, Table


@dataclass(frozen=True)
class DatasetUsed:
    """One input that the method read: the field, where it came from, its SHA-256 and its number of rows."""

    field: str
    source: str
    digest: str
    rows: int | None = None


@dataclass(frozen=True)
class Outcome:
    """A run's end: how it ended and everything it leaves.

    model_folder: already written by `FittedModel.save`, together with `method.json`.
    points: every point of every curve, in the order in which they were given to `Tracker.point`.
    resources: what the run took, as `resources.peaks` names it; logged among MLflow's system metrics.
    """

    status: Literal["FINISHED", "FAILED", "KILLED"]
    parameters: Mapping[str, object]
    metrics: Mapping[str, float | None]
    claims: Sequence[ClaimResult]
    points: Sequence[CurvePoint]
    report: Path | None
    figures: Sequence[Figure]
    tables: Sequence[Table]
    model: FittedModel | None
    model_folder: Path | None
    register_as: str
    datasets: Sequence[DatasetUsed]
    data: Literal["sample", "user"]
    warnings: Sequence[str]
    error: str
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Tracked:
    """The MLflow run that received the outcome; `error` is empty when all of it arrived.

    url: the run's page on a server, or the database's URI.
    """

    run_id: str
    experiment_id: str
    url: str
    error: str

    @property
    def shown(self) -> str:
        """The page on a server; else, for a database's URI opens nothing, the run's id and what shows it."""
        if self.url.startswith(("http://", "https://")):
            return self.url
        folder = Path(self.url.partition(":///")[2]).parent
        if self.url != local_tracking_uri(folder):
            return f"{self.run_id} in {self.url}"
        return f"{self.run_id}; open it with: kfp-methods ui --output {shlex.quote(str(folder))}"
