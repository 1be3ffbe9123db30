"""A method that adds numbers: the smallest use of the whole contract."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from pydantic import InstanceOf, model_validator

from kfp_methods.claims import Claim, judge
from kfp_methods.contract import (
    Dataset,
    Inputs,
    Method,
    Metrics,
    Outputs,
    artifact,
    by_preset,
    metric,
    output,
    parameter,
)
from kfp_methods.errors import InputError, Problem
from kfp_methods.report import Report, Table, Text

if TYPE_CHECKING:
    import pandas

    from kfp_methods.context import Context

CLAIMS = (
    Claim(
        id="sum-positive",
        statement="The sum is above zero",
        paper="no paper",
        measure="the sum plus the seed",
        direction="greater",
        threshold=0,
    ),
)


class NoopInputs(Inputs):
    """Inputs of noop."""

    data: Dataset | None = artifact("Numbers in a column x.")
    steps: int = by_preset("Steps of the loop", smoke=1, sample=2, gpu=3, ge=1, le=100_000)
    pause: float = parameter(0.0, "Seconds to sleep in each step.", ge=0)
    weights: list[float] = parameter([1.0], "Factors.", min_length=1)
    labels: dict[str, str] = parameter({}, "Free labels.")
    scale: float | Literal["auto"] = parameter("auto", "A factor, or auto for 1.")
    mode: Literal["sum", "crash"] = parameter("sum", "What to do.")

    @model_validator(mode="after")
    def _weights_fit(self) -> NoopInputs:
        if len(self.weights) > self.steps + 10:
            raise InputError(Problem("weights", self.weights, "has far more entries than steps", "Give fewer"))
        return self


class NoopMetrics(Metrics):
    """Metrics of noop."""

    total: float = metric("The sum.")
    steps_made: int = metric("Steps of the loop, those before an interruption included.")
    unknown: float | None = metric("Never measured.", optional=True)


class NoopOutputs(Outputs):
    """Outputs of noop."""

    metrics: InstanceOf[NoopMetrics] = output("The sum.")
    doubled: InstanceOf[Table] = output("Twice the numbers.")
    rows: int = output("How many numbers.")
    echo: dict[str, str] = output("The labels as they came.")


def load(inputs: NoopInputs, context: Context) -> pandas.DataFrame:
    """The user's numbers, or three of our own."""
    import pandas

    from kfp_methods import artifacts

    if inputs.data is None:
        return pandas.DataFrame({"x": [1.0, 2.0, 3.0]})
    path = context.fetch(inputs.data)
    return artifacts.read_table(path, field=inputs.data.field, columns=[artifacts.Column("x", "float")])


def run(inputs: NoopInputs, data: pandas.DataFrame, context: Context) -> NoopOutputs:
    """Adds the numbers."""
    if inputs.mode == "crash":
        raise RuntimeError("asked to crash")
    context.keep(Text("note", f"{len(data)} numbers are there."))
    seen: list[int] = []
    for step in context.resumable(range(inputs.steps), "adding", seen=seen):
        seen.append(step)
        context.metric("partial", float(step), step)
        time.sleep(inputs.pause)
    scale = 1.0 if inputs.scale == "auto" else inputs.scale
    total = float(data["x"].sum()) * scale
    table = Table("doubled", "Doubled", data * 2)
    return NoopOutputs(
        report=Report(f"The sum is {total:g}.", (table,)),
        metrics=NoopMetrics(total=total, steps_made=len(seen)),
        claims=[judge(CLAIMS[0], [total + inputs.seed], seeds=[inputs.seed])],
        doubled=table,
        rows=len(data),
        echo=inputs.labels,
    )


METHOD = Method("noop", NoopInputs, NoopOutputs, load, run, CLAIMS)
