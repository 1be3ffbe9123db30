"""Somebody else's pipeline: their own component makes a Dataset, and a method loaded from its YAML takes it."""
# No postponed annotations here: KFP runs this component's source in a module of its own.

from pathlib import Path
from typing import Any

from kfp import components, dsl


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def numbers(count: int, fail: bool, data: dsl.Output[dsl.Dataset]):
    """Writes the numbers 1 … count in a column x."""
    if fail:
        raise SystemExit("asked to fail")
    data.metadata["origin"] = "upstream"
    with open(data.path, "w") as file:
        file.write("\n".join(["x", *(str(number) for number in range(1, count + 1))]))


def consumer(component_file: Path) -> Any:
    """The pipeline `numbers` → the method in `component_file`."""
    method = components.load_component_from_file(str(component_file))

    @dsl.pipeline(name="consumer")
    def pipeline(count: int = 4, fail: bool = False) -> int:
        made = numbers(count=count, fail=fail)
        return method(data=made.outputs["data"], preset="smoke", seed=2).outputs["rows"]

    return pipeline
