"""Joins the replicates of a run: metrics as mean and spread, claims tested anew over all seeds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import ConfigDict, InstanceOf

from kfp_methods import claims
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
from kfp_methods.report import Report, Table

if TYPE_CHECKING:
    import pandas

    from kfp_methods.claims import ClaimResult
    from kfp_methods.context import Context

Replicates = tuple[list[list["ClaimResult"]], list[dict[str, float | None]]]


class CollectInputs(Inputs):
    """The claims and metrics of every replicate, in one order."""

    method: str = parameter("", "Name of the method whose replicates these are.")
    replicate_claims: list[Artifact] = artifact("The replicates' `claims` outputs.")
    replicate_metrics: list[Artifact] = artifact("The replicates' `metrics` outputs.")

    @property
    def uses_sample(self) -> bool:
        """Whether the replicates used their method's embedded sample."""
        return all(item.metadata.get("data") == "sample" for item in self.replicate_claims)


class CollectMetrics(Metrics):
    """`replicates`, and the mean of each of the method's own metrics."""

    model_config = ConfigDict(extra="allow")

    replicates: int = metric("Number of replicates.")


class CollectOutputs(Outputs):
    """The joined results."""

    metrics: InstanceOf[CollectMetrics] = output("Mean of each metric over the replicates.")
    spread: InstanceOf[Table] = output("Mean, standard deviation, least and greatest value of each metric.")


def load(inputs: CollectInputs, context: Context) -> Replicates:
    """Reads the replicates' JSON files."""
    results = [claims.loads(context.fetch(item).read_text(encoding="utf-8")) for item in inputs.replicate_claims]
    metrics = [json.loads(context.fetch(item).read_text(encoding="utf-8")) for item in inputs.replicate_metrics]
    return results, metrics


def run(inputs: CollectInputs, data: Replicates, context: Context) -> CollectOutputs:
    """Pools the claims by seed and summarises the metrics."""
    results, metrics = data
    pooled = claims.pool(results)
    frame = _spread(metrics)
    means = {row.metric: row.mean for row in frame.itertuples() if row.n}
    supported = sum(result.verdict is claims.Verdict.SUPPORTED for result in pooled)
    table = Table("spread", "Metrics over the replicates", frame)
    return CollectOutputs(
        report=Report(
            f"{len(results)} replicates of {inputs.method}: {supported} of {len(pooled)} claims are supported.",
            (table,),
        ),
        metrics=CollectMetrics(replicates=len(results), **means),  # type: ignore[arg-type]
        claims=pooled,
        spread=table,
    )


def _spread(metrics: list[dict[str, float | None]]) -> pandas.DataFrame:
    import pandas

    frame = pandas.DataFrame(metrics).astype(float)
    described = pandas.DataFrame(
        {"n": frame.count(), "mean": frame.mean(), "sd": frame.std(ddof=1), "min": frame.min(), "max": frame.max()}
    )
    return described.rename_axis("metric").reset_index()


METHOD = Method(
    "collect",
    CollectInputs,
    CollectOutputs,
    load,
    run,
    resources=Resources(cpu="500m", memory="1Gi", timeout_seconds=1800),
)
