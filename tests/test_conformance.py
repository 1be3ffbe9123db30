"""What every method of the catalogue keeps; a new method is tested by existing.

A method's own file and its broken files come from `own_data.py` in its test folder: `make(folder)` returns the
parameters of a run on a user's file, `broken(folder)` pairs of parameters and words that the error must hold.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas
import pytest

from kfp_methods import catalogue, claims, kubeflow, results
from kfp_methods.contract import Inputs
from kfp_methods.docs import generated
from tests.conftest import METHODS, TESTS, Ended, executor_input

NAMES = [entry.name for entry in catalogue.entries()]
ROOT = TESTS.parent
# Seconds are measured, so they differ between runs; a method names every such number so.
_MEASURED = re.compile(r"seconds|time_ratio")

pytestmark = pytest.mark.parametrize("name", NAMES, scope="module")


def own_data(name: str) -> ModuleType:
    entry = catalogue.entry(name)
    folder = entry.folder if METHODS in entry.folder.parents else TESTS / "components" / entry.group / name
    spec = importlib.util.spec_from_file_location(f"own_data_{name}", folder / "own_data.py")
    assert spec is not None, f"{name} has no own_data.py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entrypoint(name: str, folder: Path, parameters: dict[str, Any], tracking: str = "") -> Ended:
    message = json.dumps(executor_input(name, folder, parameters))
    command = [sys.executable, "-m", "kfp_methods.entrypoint", name, "--executor-input", message]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": tracking}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    return Ended(done.returncode, done.stdout, done.stderr, folder)


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(name)


@pytest.fixture(scope="module")
def tracking(folder: Path) -> str:
    from kfp_methods.tracking import local_tracking_uri

    return local_tracking_uri(folder)


@pytest.fixture(scope="module")
def sample(name: str, folder: Path, tracking: str) -> dict[str, Any]:
    """The summary of `kfp-methods run NAME --preset smoke --json`: the local pipeline, tracked."""
    command = [sys.executable, "-m", "kfp_methods.cli", "run", name, "--preset", "smoke", "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": tracking}
    command += ["--output", str(folder / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def own(name: str, folder: Path, tracking: str) -> Ended:
    """A tracked run on a file of the user's."""
    ended = entrypoint(name, folder / "own", {"preset": "smoke", **own_data(name).make(folder)}, tracking)
    assert ended.code == 0, ended.stderr
    return ended


def test_metadata_agrees_with_the_folder(name: str) -> None:
    entry, method = catalogue.entry(name), catalogue.load(name)
    assert entry.folder.name == method.name == name
    assert entry.stability in ("alpha", "beta", "stable")
    assert {"title", "authors", "url"} <= set(entry.paper)
    assert entry.sample_data["licence"]
    assert entry.summary.endswith(".")


def test_nothing_is_left_to_write(name: str) -> None:
    """`kfp-methods new` marks what its author has to replace."""
    folder = catalogue.entry(name).folder
    texts = [path for path in folder.rglob("*") if path.suffix in (".py", ".yaml", ".md")]
    left = [
        f"{path.name}, line {number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bWRITE\b|\(Say here", line)
    ]
    assert not left, left


def test_every_field_and_metric_is_described(name: str) -> None:
    method = catalogue.load(name)
    fields = [*method.inputs.model_fields.items(), *method.outputs.model_fields.items()]
    fields += method.outputs.model_fields["metrics"].annotation.model_fields.items()
    missing = [key for key, info in fields if not (info.description or "").strip()]
    assert not missing


def test_names_are_free_for_the_pipeline(name: str) -> None:
    kinds = catalogue.load(name).inputs.kinds().values()
    names = [kind.parameter_name for kind in kinds]
    assert not set(names) & set(kubeflow.RESERVED_PARAMETERS)
    assert len(set(names)) == len(names)
    assert not set(names) & set(catalogue.load(name).outputs.kinds()), "KFP wants inputs and outputs of different names"
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in names)


def test_defaults_and_every_preset_are_valid(name: str) -> None:
    inputs: type[Inputs] = catalogue.load(name).inputs
    for preset in ("smoke", "sample", "gpu"):
        assert inputs.parse({"preset": preset}).uses_sample


def test_the_interface_is_read_without_heavy_libraries(name: str) -> None:
    probe = (
        "import sys; from kfp_methods import catalogue; m = catalogue.load(sys.argv[1]); m.inputs.parse({}); "
        "print(sorted({'torch', 'mlflow', 'kfp', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe, name], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_generated_files_are_current(name: str) -> None:
    entry = catalogue.entry(name)
    if METHODS in entry.folder.parents:
        pytest.skip("a method of the tests has no generated files")
    files = {path: text for path, text in generated(ROOT) if path.parent == entry.folder}
    assert files
    for path, text in files.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not current: run `kfp-methods docs`"


def test_what_was_measured_is_recorded(name: str) -> None:
    """The README's figures come from a run of this version's claims and metrics."""
    entry, method = catalogue.entry(name), catalogue.load(name)
    if METHODS in entry.folder.parents:
        pytest.skip("a method of the tests has no README")
    sample = results.read(entry.folder)["sample"]
    assert [claim["id"] for claim in sample["claims"]] == [claim.id for claim in method.claims]
    assert set(sample["metrics"]) == set(method.outputs.model_fields["metrics"].annotation.model_fields)  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_sample_run_makes_every_output(name: str, sample: dict[str, Any]) -> None:
    method = catalogue.load(name)
    assert sample["data"] == "sample"
    assert set(sample["outputs"]) == set(method.outputs.kinds())
    assert all(Path(path).exists() for path in sample["outputs"].values())
    results = claims.loads(Path(sample["outputs"]["claims"]).read_text())
    assert [result.claim for result in results] == list(method.claims)
    assert json.loads(Path(sample["outputs"]["metrics"]).read_text()) == sample["metrics"]


@pytest.mark.slow
def test_the_report_says_data_first_and_shows_every_verdict(name: str, sample: dict[str, Any], own: Ended) -> None:
    page = Path(sample["outputs"]["report"]).read_text(encoding="utf-8")
    assert page.index("Embedded sample data") < page.index("<h1")
    for result in sample["claims"]:
        assert result["verdict"] in page
    of_paper = f'href="{html.escape(catalogue.entry(name).paper["url"])}"'
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)[^\"']*", page.replace(of_paper, ""))
    assert "Your own data" in (own.folder / "report").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(name: str, sample: dict[str, Any], folder: Path) -> None:
    """The local pipeline's numbers and those of the bare container command: equal to the last digit."""
    again = entrypoint(name, folder / "again", {"preset": "smoke"})
    assert again.code == 0, again.stderr
    assert _stable(again.summary["metrics"]) == _stable(sample["metrics"])
    first, second = (
        [(r["id"], r["value"], r["verdict"]) for r in claims if not _MEASURED.search(r["id"])]
        for claims in (sample["claims"], again.summary["claims"])
    )
    assert first == second
    for output, kind in catalogue.load(name).outputs.kinds().items():
        if kind.kfp_type == "Dataset":
            read = pandas.read_parquet if kind.format == "parquet" else pandas.read_csv
            one, other = (read(path) for path in (sample["outputs"][output], again.folder / output))
            kept = [column for column in one.columns if not _MEASURED.search(column)]
            pandas.testing.assert_frame_equal(one[kept], other[kept], check_exact=True)


@pytest.mark.slow
def test_mlflow_holds_the_whole_run(name: str, sample: dict[str, Any], own: Ended, tracking: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    for tracked, data in ((sample["mlflow"], "sample"), (own.summary["mlflow"], "user")):
        assert tracked["error"] == ""
        run = client.get_run(tracked["run_id"])
        assert run.info.status == "FINISHED"
        assert run.data.tags["kfp_methods.method"] == name
        assert run.data.tags["kfp_methods.data"] == data
        assert set(catalogue.load(name).inputs.parse({}).parameters()) <= set(run.data.params)
        assert run.inputs.dataset_inputs or data == "sample"
        files = {item.path for item in client.list_artifacts(tracked["run_id"])}
        assert {"report.html", "claims.json"} <= files
    measured = {key: value for key, value in sample["metrics"].items() if value is not None}
    logged = client.get_run(sample["mlflow"]["run_id"]).data.metrics
    assert measured.items() <= logged.items()


@pytest.mark.slow
def test_a_model_that_is_made_predicts_from_mlflow(name: str, sample: dict[str, Any], tracking: str) -> None:
    if not catalogue.load(name).makes_model:
        pytest.skip("this method makes no model")
    import mlflow

    mlflow.set_tracking_uri(tracking)
    found = mlflow.search_logged_models(
        filter_string=f"source_run_id = '{sample['mlflow']['run_id']}'", output_format="list",
        experiment_ids=[sample["mlflow"]["experiment_id"]],
    )  # fmt: skip
    assert len(found) == 1
    model = mlflow.pyfunc.load_model(found[0].model_uri)
    example = model.input_example
    assert len(model.predict(example)) == len(example)


@pytest.mark.slow
def test_broken_files_are_explained(name: str, folder: Path) -> None:
    cases = own_data(name).broken(folder)
    assert len(cases) >= 5
    for number, (parameters, words) in enumerate(cases):
        ended = entrypoint(name, folder / f"broken-{number}", {"preset": "smoke", **parameters})
        assert ended.code == 2, (parameters, ended.stderr)
        assert "Traceback" not in ended.stderr
        error = ended.summary["error"]
        assert all(word in error for word in words), (words, error)


def _stable(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if not _MEASURED.search(key)}
