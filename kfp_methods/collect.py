"""Joins the replicates of a run: metrics as mean and spread, claims tested anew over all seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import InstanceOf, create_model

from kfp_methods import artifacts, catalogue, claims
from kfp_methods.contract import (
    Artifact,
    Inputs,
    Method,
    Metrics,
    Outputs,
    Resources,
    artifact,
    metric,
    output,
    parameter,
)
from kfp_methods.report import Report, Table, legible

if TYPE_CHECKING:
    from kfp_methods.claims import ClaimResult
    from kfp_methods.context import Context


@dataclass(frozen=True)
class Replicate:
    """What one replicate leaves: `seed` and `mlflow_run` where its artifacts' metadata say them."""

    seed: int | None
    mlflow_run: str
    pod: str
    folder: str
    claims: list[ClaimResult]
    metrics: dict[str, Any]


class CollectInputs(Inputs):
    """The claims and metrics of every replicate, in one order."""

    method: str = parameter("", "Name of the method whose replicates these are.")
    wanted_seeds: list[int] = parameter([], "Seeds of all replicates that were asked for; empty: not known.")
    replicate_claims: list[Artifact] = artifact("The replicates' `claims` outputs.")
    replicate_metrics: list[Artifact] = artifact("The replicates' `metrics` outputs.")

    @property
    def uses_sample(self) -> bool:
        """Whether the replicates used their method's embedded sample."""
        return all(item.metadata.get("data") == "sample" for item in self.replicate_claims)


class CollectMetrics(Metrics):
    """`replicates`, and the mean of each of the method's own metrics."""

    replicates: int = metric("Number of replicates.")


class CollectOutputs(Outputs):
    """The joined results."""

    metrics: InstanceOf[CollectMetrics] = output("Mean of each metric over the replicates.")
    spread: InstanceOf[Table] = output("Mean, standard deviation, least and greatest value of each metric.")
    by_seed: InstanceOf[Table] = output("Each replicate's metrics.")


def load(inputs: CollectInputs, context: Context) -> list[Replicate]:
    """Reads the replicates' JSON files, in the order of their seeds."""
    pairs = zip(inputs.replicate_claims, inputs.replicate_metrics, strict=True)
    found = [_replicate(of_claims, of_metrics, context) for of_claims, of_metrics in pairs]
    return sorted(found, key=lambda one: math.inf if one.seed is None else one.seed)


def run(inputs: CollectInputs, data: list[Replicate], context: Context) -> CollectOutputs:
    """Pools the claims by seed and summarises the metrics."""
    pooled = claims.pool([one.claims for one in data])
    missing = sorted({*inputs.wanted_seeds} - {one.seed for one in data})
    if missing:
        context.warn(f"no results of the replicates with seed {', '.join(map(str, missing))}: they failed")
    spread, by_seed = _spread([one.metrics for one in data]), _by_seed(data)
    return CollectOutputs(
        report=Report(_summary(inputs.method, data, pooled, missing), (spread, by_seed, *_places(data))),
        metrics=_means(inputs.method, data),
        claims=pooled,
        spread=spread,
        by_seed=by_seed,
    )


def _replicate(of_claims: Artifact, of_metrics: Artifact, context: Context) -> Replicate:
    about = of_claims.metadata
    return Replicate(
        seed=int(about["seed"]) if "seed" in about else None,  # KFP's metadata know no whole numbers
        mlflow_run=str(about.get("mlflow_run_id", "")),
        pod=str(about.get("pod", "")),
        folder=legible(artifacts.redacted(str(of_claims)).rpartition("/")[0]),
        claims=claims.loads(context.fetch(of_claims).read_text(encoding="utf-8")),
        metrics=json.loads(context.fetch(of_metrics).read_text(encoding="utf-8")),
    )


def _summary(method: str, data: Sequence[Replicate], pooled: Sequence[ClaimResult], missing: Sequence[int]) -> str:
    seeds = [str(one.seed) for one in data if one.seed is not None]
    which = f" (seeds {', '.join(seeds)})" if len(seeds) == len(data) <= 20 else ""
    supported = sum(result.verdict is claims.Verdict.SUPPORTED for result in pooled)
    judged = f" {supported} of {len(pooled)} claims are supported." if pooled else ""
    failed = f" {len(missing)} failed: seed {', '.join(map(str, missing))}." if missing else ""
    return f"{len(data)} replicates of {method}{which} are joined.{failed}{judged}"


def _means(method: str, data: Sequence[Replicate]) -> CollectMetrics:
    """The mean of each metric over the replicates that measured it, with the method's own words for it."""
    help_texts = _help(method)
    names = dict.fromkeys(name for one in data for name in one.metrics)
    fields: dict[str, Any] = {
        name: (
            int | float | None,
            metric(f"{help_texts.get(name, '')} Mean over the replicates.".strip(), optional=True),
        )
        for name in names
        if name not in CollectMetrics.model_fields
    }
    model = create_model("ReplicateMetrics", __base__=CollectMetrics, **fields)
    means = {name: _mean([one.metrics[name] for one in data if one.metrics.get(name) is not None]) for name in names}
    return model(**means | {"replicates": len(data)})


def _mean(values: Sequence[float]) -> float | None:
    """A count stays one where the counts' mean is whole."""
    if not values:
        return None
    mean = statistics.fmean(values)
    return int(mean) if mean.is_integer() and all(isinstance(value, int) for value in values) else mean


def _help(method: str) -> dict[str, str]:
    """What the method's metrics mean, by name."""
    if not method:
        return {}
    model = catalogue.load(method).outputs.model_fields["metrics"].annotation
    return {name: info.description or "" for name, info in getattr(model, "model_fields", {}).items()}


def _spread(metrics: Sequence[Mapping[str, float | None]]) -> Table:
    import pandas

    frame = pandas.DataFrame(metrics).astype(float)
    described = pandas.DataFrame(
        {"n": frame.count(), "mean": frame.mean(), "sd": frame.std(ddof=1), "min": frame.min(), "max": frame.max()}
    )
    rows = described.rename_axis("metric").reset_index()
    caption = "n: replicates that measured it; sd: standard deviation over them."
    return Table("spread", "Metrics over the replicates", rows, caption, highlight=True)


def _by_seed(data: Sequence[Replicate]) -> Table:
    import pandas

    frame = pandas.DataFrame([one.metrics for one in data])
    frame.insert(0, "replicate", _names(data))
    return Table("by-seed", "Metrics of each replicate", frame, "One row a replicate, named by its seed.")


def _places(data: Sequence[Replicate]) -> list[Table]:
    """Where each replicate's own report, tables and model are."""
    import pandas

    columns = {
        "MLflow run": [one.mlflow_run for one in data],
        "pod": [one.pod for one in data],
        "outputs": [one.folder for one in data],
    }
    known = {name: values for name, values in columns.items() if any(values)}
    frame = pandas.DataFrame({"replicate": _names(data), **known})
    caption = "Each replicate's own report, tables and model are in its MLflow run and in its folder of outputs."
    return [Table("places", "Where each replicate's outputs are", frame, caption)] if known else []


def _names(data: Sequence[Replicate]) -> list[str]:
    return [f"number {i}" if one.seed is None else f"seed {one.seed}" for i, one in enumerate(data, 1)]


METHOD = Method(
    "collect",
    CollectInputs,
    CollectOutputs,
    load,
    run,
    resources=Resources(cpu="500m", memory="1Gi", timeout_seconds=1800),
)
