"""The Kubernetes manifests are valid, hold no password, and every part finds the part it needs."""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import requests
import yaml

from tests import servers

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "manifests"
ENTRYPOINT = ROOT / "images" / "mlflow" / "entrypoint.py"
OVERLAYS = ("cpu", "gpu", "team-a", "s3")
KUBERNETES_VERSIONS = ("1.32", "1.37")
"""The kubectl these manifests were rendered with, and the newest that the schemas know."""

Document = dict[str, Any]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

SCHEDULED_WORKFLOW = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1beta1"},
        "kind": {"const": "ScheduledWorkflow"},
        "metadata": {"type": "object", "required": ["name", "namespace"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "enabled": {"type": "boolean"},
                "maxConcurrency": {"type": "integer", "minimum": 1, "maximum": 10},
                "noCatchup": {"type": "boolean"},
                "maxHistory": {"type": "integer", "minimum": 0, "maximum": 100},
                "trigger": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "cronSchedule": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "cron": {"type": "string", "pattern": r"^\S+( \S+){5}$"},
                                "startTime": {"type": "string"},
                                "endTime": {"type": "string"},
                            },
                        }
                    },
                },
                "workflow": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "parameters": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["name", "value"],
                                "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                            },
                        }
                    },
                },
                "experimentId": {"type": "string"},
                "pipelineId": {"type": "string"},
                "pipelineName": {"type": "string"},
                "pipelineVersionId": {"type": "string"},
                "serviceAccount": {"type": "string"},
            },
        },
    },
}
"""ScheduledWorkflowSpec of Kubeflow Pipelines' Go types; the resource definition itself has no schema."""

PLUGIN_SETTINGS = {
    "workspacesEnabled", "authType", "credentialSecretRef", "experimentDescription", "defaultExperimentName",
    "kfpBaseURL", "kfpRunURLPathTemplate", "mlflowBaseURL", "mlflowUIPathPrefix", "injectUserEnvVars",
}  # fmt: skip
"""The JSON names of MLflowPluginSettings in Kubeflow Pipelines' backend/src/common/plugins/mlflow."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of manifests/ with generated secrets, a profile's overlay and one that uses the S3 component."""
    copy = tmp_path_factory.mktemp("install") / "manifests"
    shutil.copytree(MANIFESTS, copy, ignore=shutil.ignore_patterns("secrets"))
    subprocess.run([copy / "make-secrets.sh"], check=True, capture_output=True)
    subprocess.run([copy / "add-profile.sh", "team-a"], check=True, capture_output=True)
    keys = copy / "components" / "s3" / "secrets" / "s3.env"
    keys.parent.mkdir()
    keys.write_text("AWS_ACCESS_KEY_ID=example\nAWS_SECRET_ACCESS_KEY=example\n")
    overlay = copy / "overlays" / "s3" / "kustomization.yaml"
    overlay.parent.mkdir()
    overlay.write_text("resources: [../cpu]\ncomponents: [../../components/s3]\n")
    return copy


@pytest.fixture(scope="module", params=OVERLAYS)
def documents(tree: Path, request: pytest.FixtureRequest) -> list[Document]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    return render(tree / "overlays" / request.param)


@pytest.fixture(scope="module")
def cpu(tree: Path) -> list[Document]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    return render(tree / "overlays" / "cpu")


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    """The tracking server's entrypoint, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("mlflow_entrypoint", ENTRYPOINT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def render(folder: Path) -> list[Document]:
    rendered = subprocess.run(["kubectl", "kustomize", str(folder)], check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(rendered.stdout))


def example(name: str) -> Document:
    document: Document = yaml.safe_load((MANIFESTS / "examples" / name).read_text())
    return document


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def one(documents: list[Document], kind: str, name: str) -> Document:
    """The only document of this kind whose name is `name`, with or without kustomize's hash."""
    pattern = re.compile(rf"{name}(-[a-z0-9]{{10}})?")
    (found,) = (d for d in of_kind(documents, kind) if pattern.fullmatch(d["metadata"]["name"]))
    return found


def workloads(documents: list[Document]) -> list[Document]:
    return of_kind(documents, "Deployment", "StatefulSet", "DaemonSet", "Job")


def pods_and_examples(documents: list[Document]) -> Iterator[Document]:
    """The pod templates of the rendering and of the example Job."""
    for workload in [*workloads(documents), example("gpu-check.yaml")]:
        yield workload["spec"]["template"]


def containers(pod: Document) -> list[Document]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def values(secret_or_map: Document) -> dict[str, str]:
    data: dict[str, str] = secret_or_map.get("data", {})
    if secret_or_map["kind"] == "ConfigMap":
        return data
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


# --- valid ---


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_document_is_valid_kubernetes(documents: list[Document], version: str) -> None:
    for document in [*documents, example("gpu-check.yaml")]:
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_would_be_found(cpu: list[Document]) -> None:
    deployment = json.loads(json.dumps(one(cpu, "Deployment", "mlflow")))
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES_VERSIONS[0], strict=True)


def test_the_scheduled_workflow_has_only_fields_that_exist() -> None:
    document = example("scheduledworkflow.yaml")
    jsonschema.validate(document, SCHEDULED_WORKFLOW)
    for parameter in document["spec"]["workflow"]["parameters"]:
        json.loads(parameter["value"])


def test_the_recurring_run_is_what_the_api_takes() -> None:
    kfp_server_api = pytest.importorskip("kfp_server_api")

    def check(body: Document, model: Any) -> None:
        fields = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
        assert body.keys() <= fields.keys()
        for name, value in body.items():
            nested = getattr(kfp_server_api, fields[name], None)
            if nested is not None and isinstance(value, dict):
                check(value, nested)

    body = json.loads((MANIFESTS / "examples" / "recurring-run.json").read_text())
    check(body, kfp_server_api.V2beta1RecurringRun)
    assert body["mode"] in kfp_server_api.RecurringRunMode.allowable_values
    # As an example of the custom resource that the API server makes of it:
    kept = example("scheduledworkflow.yaml")["spec"]
    assert kept["trigger"]["cronSchedule"]["cron"] == body["trigger"]["cron_schedule"]["cron"]
    assert {p["name"]: json.loads(p["value"]) for p in kept["workflow"]["parameters"]} == (
        body["runtime_config"]["parameters"]
    )


# --- secrets ---


@needs_kubectl
def test_nothing_can_be_applied_before_secrets_are_generated(tmp_path: Path) -> None:
    copy = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, copy, ignore=shutil.ignore_patterns("secrets"))
    for overlay in ("cpu", "gpu", "profile"):
        refused = subprocess.run(
            ["kubectl", "kustomize", str(copy / "overlays" / overlay)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode != 0
        assert "secrets/" in refused.stderr
        assert refused.stdout == ""


def test_no_manifest_in_the_repository_holds_a_secret() -> None:
    for path in MANIFESTS.rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            assert document.get("kind") != "Secret", path
            for generator in document.get("secretGenerator", []):
                assert "literals" not in generator, path
                assert all(name.startswith("secrets/") for name in generator["envs"]), path
    assert "secrets/" in (MANIFESTS / ".gitignore").read_text().splitlines()


def test_generated_secrets_are_private_strong_and_not_overwritten(tree: Path, entrypoint: ModuleType) -> None:
    files = [*(tree / "base").rglob("secrets/*.env")]
    assert len(files) == 3
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for name, _, value in (line.partition("=") for line in file.read_text().split()):
            if not name.endswith("USERNAME"):
                assert entrypoint.weakness(value) is None
    before = [file.read_text() for file in files]
    again = subprocess.run([tree / "make-secrets.sh"], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "exists" in again.stderr
    assert [file.read_text() for file in files] == before


def test_two_installations_share_no_secret(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, other, ignore=shutil.ignore_patterns("secrets"))
    subprocess.run([other / "make-secrets.sh"], check=True, capture_output=True)

    def secrets(root: Path) -> set[str]:
        lines = [line for file in (root / "base").rglob("secrets/*.env") for line in file.read_text().split()]
        return {line.partition("=")[2] for line in lines if "USERNAME" not in line}

    assert not secrets(tree) & secrets(other)


def test_pods_and_config_maps_hold_no_secret_in_the_open(documents: list[Document]) -> None:
    secret_values = {
        value
        for secret in of_kind(documents, "Secret")
        for name, value in values(secret).items()
        if not name.endswith("USERNAME")
    }
    assert secret_values
    shown = yaml.safe_dump([document for document in documents if document["kind"] != "Secret"])
    assert not [value for value in secret_values if len(value) > 8 and value in shown]
    for pod in pods_and_examples(documents):
        for container in containers(pod):
            for variable in container.get("env", []):
                if any(word in variable["name"] for word in ("PASSWORD", "SECRET", "TOKEN", "KEY")):
                    assert "value" not in variable


def test_the_database_and_the_pipelines_have_the_passwords_the_server_expects(cpu: list[Document]) -> None:
    server = values(one(cpu, "Secret", "mlflow-server"))
    assert values(one(cpu, "Secret", "mlflow-postgres"))["POSTGRES_PASSWORD"] == server["DATABASE_PASSWORD"]
    credentials = values(one(cpu, "Secret", "kfp-mlflow-credentials"))
    assert credentials["MLFLOW_TRACKING_USERNAME"] == server["MLFLOW_PIPELINE_USERNAME"]
    assert credentials["MLFLOW_TRACKING_PASSWORD"] == server["MLFLOW_PIPELINE_PASSWORD"]
    assert server["MLFLOW_PIPELINE_USERNAME"] != server["MLFLOW_ADMIN_USERNAME"]


# --- pods ---


def test_every_image_has_a_version(documents: list[Document]) -> None:
    for pod in pods_and_examples(documents):
        for container in containers(pod):
            _, colon, tag = container["image"].rpartition(":")
            assert colon, container["image"]
            assert tag
            assert tag != "latest"


def test_every_pod_meets_the_restricted_standard(documents: list[Document]) -> None:
    for pod in pods_and_examples(documents):
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not pod["spec"].get("hostNetwork")
        assert not [volume for volume in pod["spec"].get("volumes", []) if "hostPath" in volume]
        for container in containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}


def test_every_container_says_what_it_needs(documents: list[Document]) -> None:
    for pod in pods_and_examples(documents):
        for container in containers(pod):
            for part in ("requests", "limits"):
                assert {"cpu", "memory"} <= container["resources"][part].keys()
        for volume in pod["spec"].get("volumes", []):
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"]


def test_servers_are_probed(documents: list[Document]) -> None:
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        for container in workload["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_a_pod_without_a_volume_of_its_own_is_replaced_without_a_gap(tree: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    for overlay, strategy in (("cpu", "Recreate"), ("s3", "RollingUpdate")):
        rendered = render(tree / "overlays" / overlay)
        deployment = one(rendered, "Deployment", "mlflow")["spec"]
        assert deployment["strategy"]["type"] == strategy
        volumes = deployment["template"]["spec"]["volumes"]
        mounted = [volume for volume in volumes if "persistentVolumeClaim" in volume]
        assert bool(mounted) is (strategy == "Recreate")
        assert bool(of_kind(rendered, "PersistentVolumeClaim")) is (strategy == "Recreate")


# --- everything finds what it needs ---


def references(pod: Document) -> Iterator[tuple[str, str, str | None]]:
    """(kind, name, key) of each thing that the pod needs in its namespace."""
    yield "ServiceAccount", pod["spec"].get("serviceAccountName", "default"), None
    for volume in pod["spec"].get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", claim["claimName"], None
        if secret := volume.get("secret"):
            yield "Secret", secret["secretName"], None
        if config := volume.get("configMap"):
            yield "ConfigMap", config["name"], None
    for container in containers(pod):
        for source in container.get("envFrom", []):
            for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
                if field in source:
                    yield kind, source[field]["name"], None
        for variable in container.get("env", []):
            for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
                if field in variable.get("valueFrom", {}):
                    reference = variable["valueFrom"][field]
                    yield kind, reference["name"], reference["key"]


def test_everything_a_pod_refers_to_is_there(documents: list[Document]) -> None:
    there = {
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]): document
        for document in documents
    }
    for workload in workloads(documents):
        namespace = workload["metadata"]["namespace"]
        for kind, name, key in references(workload["spec"]["template"]):
            assert (kind, namespace, name) in there
            assert key is None or key in values(there[kind, namespace, name])


def test_every_service_selects_a_pod_and_a_port_of_it(documents: list[Document]) -> None:
    for service in of_kind(documents, "Service"):
        pods = [
            workload["spec"]["template"]
            for workload in workloads(documents)
            if selects(service["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"])
        ]
        assert len(pods) == 1
        names = {port["name"] for container in containers(pods[0]) for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


def test_every_workload_selects_its_own_pods(documents: list[Document]) -> None:
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        selector = workload["spec"]["selector"]["matchLabels"]
        assert selects(selector, workload["spec"]["template"]["metadata"]["labels"])


def test_network_policies_close_every_pod_and_open_only_pods_that_exist(documents: list[Document]) -> None:
    policies = of_kind(documents, "NetworkPolicy")
    for workload in workloads(documents):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        closed = {
            direction
            for policy in policies
            if policy["metadata"]["namespace"] == workload["metadata"]["namespace"]
            and selects(policy["spec"]["podSelector"].get("matchLabels", {}), labels)
            and "ingress" not in policy["spec"]
            and "egress" not in policy["spec"]
            for direction in policy["spec"]["policyTypes"]
        }
        assert closed == {"Ingress", "Egress"}
    for policy in policies:
        selector = policy["spec"]["podSelector"].get("matchLabels", {})
        labels = [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads(documents)]
        assert any(selects(selector, pod) for pod in labels)


def test_only_the_tracking_server_reaches_the_database(documents: list[Document]) -> None:
    for policy in of_kind(documents, "NetworkPolicy"):
        if "mlflow-postgres" in policy["spec"]["podSelector"].get("matchLabels", {}).values():
            assert policy["spec"]["ingress"] == [
                {
                    "from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "mlflow"}}}],
                    "ports": [{"protocol": "TCP", "port": 5432}],
                }
            ]


def test_roles_are_bound_and_never_grant_everything(documents: list[Document]) -> None:
    roles = {(r["metadata"]["namespace"], r["metadata"]["name"]): r for r in of_kind(documents, "Role")}
    bindings = of_kind(documents, "RoleBinding")
    assert {(b["metadata"]["namespace"], b["roleRef"]["name"]) for b in bindings} == roles.keys()
    assert not of_kind(documents, "ClusterRole", "ClusterRoleBinding")
    for role in roles.values():
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"]
                assert rule["verbs"] == ["get"]


def test_the_namespace_enforces_the_restricted_standard(cpu: list[Document]) -> None:
    labels = one(cpu, "Namespace", "mlflow")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


# --- the tracking server, its clients and Kubeflow's plugin agree ---


def server_environment(documents: list[Document]) -> dict[str, str]:
    """What the container of the tracking server sees."""
    by_name = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    (container,) = one(documents, "Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    environment: dict[str, str] = {}
    for source in container["envFrom"]:
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if field in source:
                environment |= values(by_name[kind, source[field]["name"]])
    return environment | {variable["name"]: variable["value"] for variable in container["env"]}


@pytest.mark.parametrize("overlay", ["cpu", "gpu", "s3"])
@needs_kubectl
def test_the_server_starts_with_the_environment_it_is_given(tree: Path, overlay: str, entrypoint: ModuleType) -> None:
    documents = render(tree / "overlays" / overlay)
    environment = server_environment(documents)
    settings = entrypoint.Settings.from_environment(environment)
    assert [(user.name, user.is_admin) for user in settings.users] == [("admin", True), ("pipelines", False)]
    assert one(documents, "Service", environment["DATABASE_HOST"])
    postgres = one(documents, "StatefulSet", "mlflow-postgres")["spec"]["template"]["spec"]["containers"][0]
    database = {variable["name"]: variable.get("value") for variable in postgres["env"]}
    assert database["POSTGRES_DB"] == environment["DATABASE_NAME"]
    assert database["POSTGRES_USER"] == environment["DATABASE_USER"]
    (container,) = one(documents, "Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.config_path.parent) in mounts
    destination = environment["MLFLOW_ARTIFACTS_DESTINATION"]
    assert destination in mounts or destination.startswith("s3://")


def test_the_address_pipelines_use_is_one_the_server_answers_to(cpu: list[Document]) -> None:
    uri = values(one(cpu, "ConfigMap", "kfp-methods-mlflow"))["MLFLOW_TRACKING_URI"]
    service = one(cpu, "Service", "mlflow")
    port = service["spec"]["ports"][0]["port"]
    host = f"mlflow.{service['metadata']['namespace']}.svc.cluster.local:{port}"
    assert uri == f"http://{host}"
    assert host in server_environment(cpu)["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")


def test_pipelines_read_what_the_manifests_write(cpu: list[Document]) -> None:
    kubeflow = pytest.importorskip("kfp_methods.kubeflow")
    credentials = values(one(cpu, "Secret", kubeflow.MLFLOW_SECRET))
    assert credentials.keys() <= set(kubeflow.MLFLOW_SECRET_KEYS)
    config = values(one(cpu, "ConfigMap", kubeflow.MLFLOW_CONFIG_MAP))
    assert config.keys() <= set(kubeflow.MLFLOW_CONFIG_KEYS)


def test_the_plugin_finds_the_server_and_its_credentials(cpu: list[Document]) -> None:
    plugin = json.loads((MANIFESTS / "kfp" / "plugin.json").read_text())
    patch = yaml.safe_load((MANIFESTS / "kfp" / "launcher-patch.yaml").read_text())
    launcher = json.loads(patch["data"]["plugins.mlflow"])
    assert plugin.keys() <= {"endpoint", "timeout", "tls", "settings"}
    assert plugin["endpoint"] == values(one(cpu, "ConfigMap", "kfp-methods-mlflow"))["MLFLOW_TRACKING_URI"]
    assert plugin["settings"]["authType"] == "basic-auth"
    keys = values(one(cpu, "Secret", "kfp-mlflow-credentials")).keys()
    for settings in (plugin["settings"], launcher["settings"]):
        assert settings.keys() <= PLUGIN_SETTINGS
        assert settings["injectUserEnvVars"] is True
        assert set(settings["credentialSecretRef"]) == {"usernameKey", "passwordKey"}
        assert set(settings["credentialSecretRef"].values()) <= keys


FAKE_KUBECTL = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
    *" exec "*) echo '{"DBConfig": {"DBName": "mlpipeline"}, "plugins": {"other": {}}}' ;;
    *" create configmap "*) exec "$REAL" "$@" ;;
    *" apply "*) cp "$5" "$APPLIED" ;;
esac
"""


@needs_kubectl
def test_enabling_the_plugin_keeps_the_rest_of_the_server_configuration(tmp_path: Path) -> None:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(FAKE_KUBECTL)
    kubectl.chmod(0o755)
    log, applied = tmp_path / "log", tmp_path / "applied.yaml"
    environment = os.environ | {
        "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
        "LOG": str(log),
        "APPLIED": str(applied),
        "REAL": str(shutil.which("kubectl")),
    }
    subprocess.run([MANIFESTS / "kfp" / "enable-mlflow-plugin.sh"], check=True, env=environment)
    config_map = yaml.safe_load(applied.read_text())
    patch = yaml.safe_load((MANIFESTS / "kfp" / "api-server-patch.yaml").read_text())
    (volume,) = patch["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    config = json.loads(config_map["data"]["config.json"])
    assert config["DBConfig"] == {"DBName": "mlpipeline"}
    assert config["plugins"]["other"] == {}
    assert config["plugins"]["mlflow"] == json.loads((MANIFESTS / "kfp" / "plugin.json").read_text())
    assert [line for line in log.read_text().splitlines() if "rollout restart deployment/ml-pipeline" in line]


# --- overlays ---


@needs_kubectl
def test_overlays_differ_in_what_they_should(tree: Path) -> None:
    quotas = {name: quota(render(tree / "overlays" / name)) for name in ("cpu", "gpu", "team-a")}
    assert set(quotas["cpu"].values()) == {"0"}
    assert int(quotas["gpu"]["requests.nvidia.com/gpu"]) > 0
    assert int(quotas["team-a"]["requests.nvidia.com/gpu"]) > 0
    profile = render(tree / "overlays" / "team-a")
    assert {document["metadata"]["namespace"] for document in profile} == {"team-a"}
    plugin = one(profile, "RoleBinding", "kfp-mlflow-plugin")
    assert {subject["namespace"] for subject in plugin["subjects"]} == {"kubeflow"}


def quota(documents: list[Document]) -> dict[str, str]:
    hard: dict[str, str] = one(documents, "ResourceQuota", "gpus")["spec"]["hard"]
    return hard


@pytest.mark.parametrize("overlay", ["cpu", "gpu", "team-a"])
@needs_kubectl
def test_every_kind_of_gpu_that_we_name_is_counted(tree: Path, overlay: str) -> None:
    """A quota on whole NVIDIA GPUs lets slices and other makers' GPUs through uncounted."""
    pytest.importorskip("kfp")
    kubeflow = pytest.importorskip("kfp_methods.kubeflow")
    checks = importlib.import_module("kfp_methods.cluster.checks")
    [wrong] = checks.resource_problems(gpu_type="?")
    texts = f"{wrong.remedy} {kubeflow._RESOURCE_HELP['gpu_type']}"
    named = set(re.findall(r"\b(?:nvidia|amd)\.com/[\w.-]*\w", texts))
    assert named == {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"}
    assert quota(render(tree / "overlays" / overlay)).keys() == {f"requests.{name}" for name in named}


@needs_kubectl
def test_a_profile_has_its_own_user_and_its_own_experiment(tree: Path, cpu: list[Document]) -> None:
    profile = render(tree / "overlays" / "team-a")
    own, shared = (values(one(documents, "Secret", "kfp-mlflow-credentials")) for documents in (profile, cpu))
    assert own["MLFLOW_TRACKING_USERNAME"] == "team-a"
    assert own.keys() == shared.keys()
    assert own["MLFLOW_TRACKING_PASSWORD"] != shared["MLFLOW_TRACKING_PASSWORD"]
    config, base = (values(one(documents, "ConfigMap", "kfp-methods-mlflow")) for documents in (profile, cpu))
    assert config == base | {"MLFLOW_EXPERIMENT_NAME": "team-a"}
    patch = yaml.safe_load((tree / "overlays" / "team-a" / "launcher-patch.yaml").read_text())
    original = yaml.safe_load((MANIFESTS / "kfp" / "launcher-patch.yaml").read_text())
    settings, others = (json.loads(document["data"]["plugins.mlflow"])["settings"] for document in (patch, original))
    assert settings == others | {"defaultExperimentName": "team-a"}


def test_a_profile_is_prepared_once_and_its_password_is_private(tree: Path, entrypoint: ModuleType) -> None:
    credentials = tree / "overlays" / "team-a" / "secrets" / "kfp-mlflow-credentials.env"
    assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
    before = credentials.read_text()
    assert entrypoint.weakness(before.split("PASSWORD=")[1].strip()) is None
    subprocess.run([tree / "add-profile.sh", "team-a"], check=True, capture_output=True)
    assert credentials.read_text() == before


@pytest.mark.parametrize("name", ["", "Team", "a_b", "-a", "a/b", "../x", "cpu", "profile", "admin", "pipelines"])
def test_a_name_that_is_no_profiles_is_refused(tree: Path, name: str) -> None:
    before = sorted((tree / "overlays").iterdir())
    refused = subprocess.run([tree / "add-profile.sh", name], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert sorted((tree / "overlays").iterdir()) == before


AUTH_CONFIG = """[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/auth.db
admin_username = admin
admin_password = 9f8e7d6c5b4a39281706
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


@contextlib.contextmanager
def authenticated_server(folder: Path) -> Iterator[str]:
    """`mlflow server` with users, as the Deployment runs it but for the database; yields its URL."""
    (folder / "auth.ini").write_text(AUTH_CONFIG.format(folder=folder))
    port, log = servers.free_port(), folder / "server.log"
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--host", "127.0.0.1", "--port", str(port)]
    settings = {"MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    settings |= {"MLFLOW_FLASK_SERVER_SECRET_KEY": "c0a1f7b34d5e69281706", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=folder, start_new_session=True, env=os.environ | settings
        )
        try:
            servers._wait_until_healthy(url := f"http://127.0.0.1:{port}", process, log)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_the_server_learns_a_profiles_user_and_its_new_password(tree: Path, tmp_path: Path) -> None:
    """The command that the script runs in the server's pod runs here, against a server with authentication."""
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text('#!/bin/sh\necho "$*" > "$LOG"\nfor program; do :; done\nexec "$PYTHON" -c "$program"\n')
    kubectl.chmod(0o755)
    credentials = tree / "overlays" / "team-a" / "secrets" / "kfp-mlflow-credentials.env"
    log = tmp_path / "log"
    with authenticated_server(tmp_path) as url:
        environment = os.environ | {
            "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "LOG": str(log),
            "MLFLOW_TRACKING_URI": url,
            "MLFLOW_ADMIN_USERNAME": "admin",
            "MLFLOW_ADMIN_PASSWORD": "9f8e7d6c5b4a39281706",
        }
        for password in ("", "0a1b2c3d4e5f607182930a1b"):
            if password:
                credentials.write_text(f"MLFLOW_TRACKING_USERNAME=team-a\nMLFLOW_TRACKING_PASSWORD={password}\n")
            subprocess.run([tree / "add-profile.sh", "team-a", "--user"], check=True, env=environment)
            given = dict(line.split("=") for line in credentials.read_text().split())
            user = (given["MLFLOW_TRACKING_USERNAME"], given["MLFLOW_TRACKING_PASSWORD"])
            answer = requests.get(
                f"{url}/api/2.0/mlflow/users/get", params={"username": user[0]}, auth=user, timeout=30
            )
            assert answer.status_code == 200
            assert answer.json()["user"]["is_admin"] is False
            assert user[1] not in log.read_text()


# --- the page ---


def test_the_page_names_only_files_that_exist() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    made_by_the_reader = re.compile(r"/secrets/|overlays/team-a")
    named = set(re.findall(r"(?<![\w/])(?:manifests|images)/[\w./-]*\w", page))
    assert len(named) > 10
    missing = [name for name in named if not made_by_the_reader.search(name) and not (ROOT / name).exists()]
    assert not missing
