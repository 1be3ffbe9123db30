"""What is compiled for Kubeflow: every promise of the contract is in the YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components

from kfp_methods import catalogue, kubeflow
from kfp_methods.cluster import checks
from kfp_methods.kubeflow import Placement
from kfp_methods.tracking.stale import NODE_VARIABLE
from kfp_methods.version import image_name

NOOP = catalogue.load("noop")
ENTRYPOINT = ["python3", "-m", "kfp_methods.entrypoint"]


class Compiled:
    """A pipeline's YAML: its specification and its Kubernetes part."""

    def __init__(self, path: Path) -> None:
        self.spec, *rest = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        self.platform = rest[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if rest else {}

    @property
    def inputs(self) -> dict[str, Any]:
        return self.spec["root"]["inputDefinitions"]["parameters"]

    def container(self, name: str) -> dict[str, Any]:
        return self.spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]

    def task(self, name: str) -> dict[str, Any]:
        """The task whose component is a container, wherever it is nested."""
        [found] = [
            dag["tasks"][name] for dag in self.dags() if name in dag["tasks"] and self._is_container(dag["tasks"][name])
        ]
        return found

    def dags(self) -> Iterator[dict[str, Any]]:
        yield self.spec["root"]["dag"]
        yield from (component["dag"] for component in self.spec["components"].values() if "dag" in component)

    def _is_container(self, task: dict[str, Any]) -> bool:
        return "executorLabel" in self.spec["components"][task["componentRef"]["name"]]


def compiled(folder: Path, pipeline: Any) -> Compiled:
    path = folder / f"{pipeline.name}.yaml"
    kubeflow.compile_pipeline(pipeline, path)
    return Compiled(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def single(folder: Path) -> Compiled:
    return compiled(folder, kubeflow.single_pipeline(NOOP))


@pytest.fixture(scope="module")
def replicated(folder: Path) -> Compiled:
    return compiled(folder, kubeflow.replicated_pipeline(NOOP))


@pytest.fixture(params=["single", "replicated"])
def pipeline(request: pytest.FixtureRequest) -> Compiled:
    return request.getfixturevalue(request.param)


def test_every_parameter_of_the_ui_is_described(pipeline: Compiled) -> None:
    missing = [name for name, given in pipeline.inputs.items() if not given.get("description", "").strip()]
    assert not missing
    assert "chosen by preset: smoke 1, sample 2, gpu 3" in pipeline.inputs["steps"]["description"]
    assert "one of smoke, sample, gpu" in pipeline.inputs["preset"]["description"]


def test_the_ui_asks_for_the_contracts_inputs_and_the_resources(single: Compiled, replicated: Compiled) -> None:
    fields = {kind.parameter_name for kind in NOOP.inputs.kinds().values()}
    assert set(single.inputs) == fields | {"gpus", "gpu_type", "cpu", "memory"}
    assert set(replicated.inputs) == set(single.inputs) - {"seed"} | {"seeds"}


def test_types_and_defaults_are_the_contracts(single: Compiled) -> None:
    found = {name: (given["parameterType"], given.get("defaultValue")) for name, given in single.inputs.items()}
    assert found == {
        "data_uri": ("STRING", ""),
        "steps": ("NUMBER_INTEGER", None),
        "pause": ("NUMBER_DOUBLE", 0.0),
        "weights": ("LIST", [1.0]),
        "labels": ("STRUCT", {}),
        "scale": ("STRING", "auto"),
        "mode": ("STRING", "sum"),
        "preset": ("STRING", "sample"),
        "seed": ("NUMBER_INTEGER", 0.0),
        "device": ("STRING", "auto"),
        "experiment": ("STRING", ""),
        "require_tracking": ("BOOLEAN", False),
        "checkpoints": ("STRING", ""),
        "gpus": ("NUMBER_INTEGER", 0.0),
        "gpu_type": ("STRING", "nvidia.com/gpu"),
        "cpu": ("STRING", NOOP.resources.cpu),
        "memory": ("STRING", NOOP.resources.memory),
    }
    assert all(given["isOptional"] for given in single.inputs.values())


def test_the_container_runs_our_entrypoint_on_kfps_executor_input(pipeline: Compiled) -> None:
    container = pipeline.container("noop")
    assert container["command"] == [*ENTRYPOINT, "noop"]
    assert container["args"] == ["--executor-input", "{{$}}"]
    assert container["image"] == image_name("tabular")


def test_the_environment_names_the_image(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("KFP_METHODS_REGISTRY", "registry.example/team/")
    monkeypatch.setenv("KFP_METHODS_TAG", "v7")
    elsewhere = compiled(folder, kubeflow.replicated_pipeline(NOOP))
    images = {elsewhere.container(name)["image"] for name in ("noop", "collect")}
    assert images == {"registry.example/team/kfp-methods/tabular:v7"}
    given = compiled(folder, kubeflow.replicated_pipeline(NOOP, image="own:1"))
    assert {given.container(name)["image"] for name in ("noop", "collect")} == {"own:1"}


def test_resources_are_parameters(pipeline: Compiled) -> None:
    resources = pipeline.container("noop")["resources"]
    wanted = {
        "resourceCpuRequest": resources["resourceCpuRequest"],
        "resourceMemoryRequest": resources["resourceMemoryRequest"],
        "resourceMemoryLimit": resources["resourceMemoryLimit"],
        "resourceCount": resources["accelerator"]["resourceCount"],
        "resourceType": resources["accelerator"]["resourceType"],
    }
    assert "resourceCpuLimit" not in resources
    names = ("cpu", "memory", "memory", "gpus", "gpu_type")
    expected = ["{{$.inputs.parameters['pipelinechannel--" + name + "']}}" for name in names]
    assert list(wanted.values()) == expected
    given = pipeline.task("noop")["inputs"]["parameters"]
    assert [given[f"pipelinechannel--{name}"] for name in names] == [
        {"componentInputParameter": name} for name in names
    ]


def test_shared_memory_is_bounded_by_the_pods_memory(pipeline: Compiled, folder: Path) -> None:
    mount = {"medium": "Memory", "mountPath": "/dev/shm", "volumeName": "shared-memory"}
    assert pipeline.platform["exec-noop"]["emptyDirMounts"] == [mount | {"sizeLimit": NOOP.resources.memory}]
    given = compiled(folder, kubeflow.single_pipeline(NOOP, Placement(shared_memory="2Gi")))
    assert given.platform["exec-noop"]["emptyDirMounts"] == [mount | {"sizeLimit": "2Gi"}]


@pytest.mark.parametrize("name", ["noop", "collect"])
@pytest.mark.parametrize("user", [10001, 7, None])
def test_pods_run_as_an_unprivileged_user(folder: Path, name: str, user: int | None) -> None:
    made = compiled(folder, kubeflow.replicated_pipeline(NOOP, Placement(run_as_user=user)))
    numbers = {} if user is None else {"runAsUser": str(user), "runAsGroup": str(user)}
    assert made.platform[f"exec-{name}"]["securityContext"] == {"runAsNonRoot": True, **numbers}


def test_the_user_is_the_images_own() -> None:
    dockerfile = Path(__file__).parents[1] / "Dockerfile"
    assert f"USER {kubeflow.IMAGE_USER}:{kubeflow.IMAGE_USER}\n" in dockerfile.read_text(encoding="utf-8")
    assert Placement().run_as_user == kubeflow.IMAGE_USER


@pytest.mark.parametrize("name", ["noop", "collect"])
def test_a_failed_pod_is_tried_again_later(replicated: Compiled, name: str) -> None:
    policy = replicated.task(name)["retryPolicy"]
    assert policy["maxRetryCount"] == 2
    assert policy["backoffDuration"] == "30s"
    assert policy["backoffFactor"] == 2.0


@pytest.mark.parametrize("name", ["noop", "collect"])
@pytest.mark.parametrize(("retries", "timeout"), [(1, None), (2, 600), (10, 86400)])
def test_a_retry_comes_however_late_the_attempt_failed(
    folder: Path, name: str, retries: int, timeout: int | None
) -> None:
    """Argo counts the policy's duration from the first attempt's start, its run and its wait for a node included."""
    spec = compiled(folder, kubeflow.replicated_pipeline(NOOP, Placement(retries=retries, timeout_seconds=timeout)))
    policy = spec.task(name)["retryPolicy"]
    deadline = int(spec.platform[f"exec-{name}"]["activeDeadlineSeconds"])
    waits = sum(30 * 2**attempt for attempt in range(retries))
    assert int(policy["backoffMaxDuration"].removesuffix("s")) >= (retries + 1) * deadline + waits


def test_a_pod_that_hangs_is_ended(replicated: Compiled, folder: Path) -> None:
    collect = catalogue.load("collect")
    for method in (NOOP, collect):
        seconds = str(method.resources.timeout_seconds)
        assert replicated.platform[f"exec-{method.name}"]["activeDeadlineSeconds"] == seconds
    resources = replicated.container("collect")["resources"]
    assert resources["resourceCpuRequest"] == collect.resources.cpu
    assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"] == collect.resources.memory
    given = compiled(folder, kubeflow.replicated_pipeline(NOOP, Placement(timeout_seconds=600)))
    assert given.platform["exec-noop"]["activeDeadlineSeconds"] == "600"
    assert given.platform["exec-collect"] == replicated.platform["exec-collect"]


@pytest.mark.parametrize("cache", [False, True])
def test_results_are_reused_only_when_asked(folder: Path, cache: bool) -> None:
    for build in (kubeflow.single_pipeline, kubeflow.replicated_pipeline):
        spec = compiled(folder, build(NOOP, Placement(cache=cache)))
        tasks = [task for dag in spec.dags() for task in dag["tasks"].values()]
        options = [task["cachingOptions"] for task in tasks if "parameterIterator" not in task]
        assert options == [{"enableCache": True} if cache else {}] * len(options)


def test_no_retries_when_none_are_wanted(folder: Path) -> None:
    spec = compiled(folder, kubeflow.replicated_pipeline(NOOP, Placement(retries=0)))
    assert "retryPolicy" not in spec.task("noop")
    assert "retryPolicy" not in spec.task("collect")


@pytest.mark.parametrize("name", ["noop", "collect"])
def test_mlflow_is_found_where_the_namespace_says_and_may_be_missing(replicated: Compiled, name: str) -> None:
    executor = replicated.platform[f"exec-{name}"]
    [secret], [config] = executor["secretAsEnv"], executor["configMapAsEnv"]
    assert (secret["secretName"], secret["optional"]) == ("kfp-mlflow-credentials", True)
    assert {entry["envVar"] for entry in secret["keyToEnv"]} == set(kubeflow.MLFLOW_SECRET_KEYS)
    assert (config["configMapName"], config["optional"]) == ("kfp-methods-mlflow", True)
    assert {entry["envVar"] for entry in config["keyToEnv"]} == set(kubeflow.MLFLOW_CONFIG_KEYS)


@pytest.mark.parametrize("name", ["noop", "collect"])
def test_a_pod_knows_its_run_and_its_name(replicated: Compiled, name: str) -> None:
    fields = {entry["name"]: entry["fieldPath"] for entry in replicated.platform[f"exec-{name}"]["fieldPathAsEnv"]}
    assert fields == {
        "KFP_RUN_ID": "metadata.labels['pipeline/runid']",
        "KFP_POD_NAME": "metadata.name",
        "KFP_NAMESPACE": "metadata.namespace",
        NODE_VARIABLE: "metadata.annotations['workflows.argoproj.io/node-name']",
    }
    assert {"name": "KFP_PIPELINE_NAME", "value": "noop"} in replicated.container(name)["env"]


def test_pods_go_where_they_are_told(folder: Path, single: Compiled) -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    placement = Placement(
        node_selector={"pool": "gpu", "zone": "b"}, tolerations=(toleration,), volumes={"team-data": "/data"}
    )
    executor = compiled(folder, kubeflow.single_pipeline(NOOP, placement)).platform["exec-noop"]
    assert executor["nodeSelector"]["labels"] == {"pool": "gpu", "zone": "b"}
    assert executor["tolerations"] == [toleration]
    assert [(each["constant"], each["mountPath"]) for each in executor["pvcMount"]] == [("team-data", "/data")]
    assert "pvcMount" not in single.platform["exec-noop"]
    assert "nodeSelector" not in single.platform["exec-noop"]
    assert "tolerations" not in single.platform["exec-noop"]


def test_each_seed_is_a_run_that_receives_a_whole_number(replicated: Compiled) -> None:
    assert replicated.inputs["seeds"]["parameterType"] == "LIST"
    assert replicated.inputs["seeds"]["defaultValue"] == [0.0]
    loop = replicated.spec["root"]["dag"]["tasks"]["for-loop-1"]
    assert loop["parameterIterator"]["items"] == {"inputParameter": "pipelinechannel--seeds"}
    [body] = replicated.spec["components"]["comp-for-loop-1"]["dag"]["tasks"].values()
    item = loop["parameterIterator"]["itemInput"]
    assert body["inputs"]["parameters"]["seed"] == {"componentInputParameter": item}
    for name in (body["componentRef"]["name"], replicated.task("noop")["componentRef"]["name"]):
        inputs = replicated.spec["components"][name]["inputDefinitions"]["parameters"]
        assert inputs["seed"]["parameterType"] == "NUMBER_INTEGER"


def test_the_replicates_results_are_collected(replicated: Compiled) -> None:
    given = replicated.task("collect")["inputs"]
    assert set(given["artifacts"]) == {"replicate_claims", "replicate_metrics"}
    for name in ("claims", "metrics"):
        output = given["artifacts"][f"replicate_{name}"]["taskOutputArtifact"]
        assert output == {"outputArtifactKey": f"pipelinechannel--noop-{name}", "producerTask": "for-loop-1"}
    assert given["parameters"]["method"] == {"runtimeValue": {"constant": "noop"}}
    assert given["parameters"]["experiment"] == {"componentInputParameter": "experiment"}


def test_a_single_run_hands_on_its_claims_and_metrics(single: Compiled) -> None:
    assert set(single.spec["root"]["outputDefinitions"]["artifacts"]) == {"claims", "metrics"}


@pytest.fixture(scope="module")
def component(folder: Path) -> dict[str, Any]:
    kubeflow.compile_component(NOOP, folder / "component.yaml")
    return yaml.safe_load((folder / "component.yaml").read_text(encoding="utf-8"))["components"]["comp-noop"]


def test_the_component_takes_an_upstream_artifact_or_a_uri(component: dict[str, Any]) -> None:
    inputs = component["inputDefinitions"]
    assert inputs["artifacts"]["data"]["isOptional"] is True
    assert inputs["artifacts"]["data"]["artifactType"]["schemaTitle"] == "system.Dataset"
    assert "From an upstream task." in inputs["artifacts"]["data"]["description"]
    assert inputs["parameters"]["data_uri"]["defaultValue"] == ""
    assert "s3://" in inputs["parameters"]["data_uri"]["description"]
    assert all(given["description"] for given in inputs["parameters"].values())


def test_the_components_outputs_are_typed_for_the_ui(component: dict[str, Any]) -> None:
    outputs = component["outputDefinitions"]
    titles = {name: given["artifactType"]["schemaTitle"] for name, given in outputs["artifacts"].items()}
    assert titles == {
        "report": "system.HTML", "metrics": "system.Metrics", "claims": "system.Artifact", "doubled": "system.Dataset",
    }  # fmt: skip
    assert outputs["parameters"]["rows"]["parameterType"] == "NUMBER_INTEGER"
    assert outputs["parameters"]["echo"]["parameterType"] == "STRUCT"


def test_every_output_is_described(component: dict[str, Any], single: Compiled) -> None:
    described = {kind.name: kind.description for kind in NOOP.outputs.kinds().values()}
    given = component["outputDefinitions"]
    assert {name: one["description"] for kinds in given.values() for name, one in kinds.items()} == described
    pipelines = single.spec["root"]["outputDefinitions"]["artifacts"]
    assert {name: one["description"] for name, one in pipelines.items()} == {
        name: described[name] for name in ("claims", "metrics")
    }


def test_every_methods_own_requests_are_ones_that_submit_lets_through() -> None:
    for entry in [*catalogue.entries(), catalogue.COLLECT]:
        resources = catalogue.load(entry.name).resources
        assert checks.resource_problems(cpu=resources.cpu, memory=resources.memory) == []


def test_the_component_loads_as_kfp_loads_it(component: dict[str, Any], folder: Path) -> None:
    loaded = components.load_component_from_file(str(folder / "component.yaml"))
    assert loaded.name == "noop"
    inputs = loaded.component_spec.inputs
    assert set(inputs) == {name for kinds in component["inputDefinitions"].values() for name in kinds}
    assert all(given.optional for given in inputs.values())
    assert loaded.description == "Nothing at all: does no work, so that the platform itself can be measured and tested."


def test_kubernetes_resources_hold_the_whole_pipeline(folder: Path) -> None:
    path = folder / "resources.yaml"
    kubeflow.compile_pipeline(kubeflow.replicated_pipeline(NOOP), path, kubernetes_manifest=True, namespace="team")
    made, version = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    assert [made["kind"], version["kind"]] == ["Pipeline", "PipelineVersion"]
    assert {document["metadata"]["namespace"] for document in (made, version)} == {"team"}
    assert version["spec"]["pipelineName"] == made["metadata"]["name"] == "noop-replicates"
    assert version["spec"]["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]["seeds"]["parameterType"] == "LIST"
    assert "exec-noop" in version["spec"]["platformSpec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def test_compiling_twice_gives_the_same_file(folder: Path) -> None:
    texts = set()
    for _ in range(2):
        kubeflow.compile_component(NOOP, folder / "again.yaml")
        texts.add((folder / "again.yaml").read_text(encoding="utf-8"))
    assert len(texts) == 1


@pytest.mark.parametrize("make", [kubeflow.single_pipeline, kubeflow.replicated_pipeline])
def test_a_workspace_keeps_the_checkpoints(make: Callable[..., Any], tmp_path: Path) -> None:
    pipeline = make(catalogue.load("noop"), kubeflow.Placement(workspace="3Gi"))
    kubeflow.compile_pipeline(pipeline, tmp_path / "p.yaml")
    spec, platform = yaml.safe_load_all((tmp_path / "p.yaml").read_text())
    assert platform["platforms"]["kubernetes"]["pipelineConfig"]["workspace"]["size"] == "3Gi"
    assert "checkpoints" not in spec["root"]["inputDefinitions"]["parameters"]
    dags = [spec["root"], *(part for part in spec["components"].values() if "dag" in part)]
    tasks = [task for part in dags for task in part["dag"]["tasks"].values()]
    (task,) = [task for task in tasks if task["inputs"].get("parameters", {}).get("checkpoints")]
    constant = task["inputs"]["parameters"]["checkpoints"]["runtimeValue"]["constant"]
    assert constant == "{{$.workspace_path}}/checkpoints"
