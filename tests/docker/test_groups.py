"""Every group's image: one shared layer, its own libraries, and a method that gives the subprocess run's numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from kfp_methods import catalogue
from kfp_methods.images import BuiltImage, groups

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("docker"),
]

STRICT: dict[str, Any] = {
    "network_mode": "none",
    "read_only": True,
    "tmpfs": {"/tmp": "rw,mode=1777"},
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "remove": True,
}
MEASURED = re.compile("seconds|time_ratio")  # these differ from run to run
# The first method of each group stands for the group.
FIRST = {group: next(entry.name for entry in catalogue.entries() if entry.group == group) for group in groups()}


def test_there_is_an_image_for_each_group_of_methods() -> None:
    assert set(groups()) == {entry.group for entry in catalogue.entries() if entry.folder.parents[2].name != "tests"}


def test_all_images_share_the_layers_up_to_the_common_libraries(
    engine: Any, group_image: Callable[[str], BuiltImage]
) -> None:
    layers = [engine.images.get(group_image(group).reference).attrs["RootFS"]["Layers"] for group in groups()]
    shared = len(list(takewhile(lambda same: len(set(same)) == 1, zip(*layers, strict=False))))
    assert shared >= 3, "the base, the system's packages, the common libraries"
    for group in groups():
        image = group_image(group)
        sizes = [layer.size_bytes for layer in reversed(image.layers)]
        print(f"{image.reference}: {image.size_bytes / 1e9:.2f} GB, {sum(sizes[shared:]) / 1e6:.0f} MB its own")
        assert sum(sizes[shared:]) < 800_000_000


@pytest.mark.parametrize("group", groups())
def test_the_image_gives_the_numbers_of_the_subprocess(
    group: str, group_image: Callable[[str], BuiltImage], tmp_path: Path
) -> None:
    image, method = group_image(group), catalogue.load(FIRST[group])
    inside, outside = (
        _run(method.name, "--runner", "docker", "--image", image.reference, folder=tmp_path / "docker"),
        _run(method.name, folder=tmp_path / "subprocess"),
    )
    assert _numbers(inside["metrics"]) == _numbers(outside["metrics"])
    for ours, theirs in zip(inside["claims"], outside["claims"], strict=True):
        if not MEASURED.search(ours["id"]):
            assert ours == theirs
    for name, kind in method.outputs.kinds().items():
        if kind.kfp_type == "Dataset" and kind.format == "csv":
            pages = [Path(result["outputs"][name]).read_bytes() for result in (inside, outside)]
            assert pages[0] == pages[1] or b"seconds" in pages[0], name


def test_mujoco_renders_without_a_display(engine: Any, group_image: Callable[[str], BuiltImage]) -> None:
    program = """
import gymnasium
arm = gymnasium.make("Reacher-v5", render_mode="rgb_array")
arm.reset(seed=0)
picture = arm.render()
print(picture.shape, picture.std() > 1)
"""
    shown = engine.containers.run(group_image("control").reference, ["python3", "-c", program], **STRICT)
    assert shown.decode().strip() == "(480, 480, 3) True"


def test_the_sample_language_model_is_there(engine: Any, group_image: Callable[[str], BuiltImage]) -> None:
    program = """
from kfp_methods.components.language import models
found = models.load(None, device="cpu")
print(sum(weight.numel() for weight in found.model.parameters()))
"""
    shown = engine.containers.run(group_image("language").reference, ["python3", "-c", program], **STRICT)
    assert int(shown.decode().split()[-1]) == 134_515_008


def _run(method: str, *flags: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "kfp_methods.cli", "run", method, "--preset", "smoke", "--json", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if not MEASURED.search(name)}
