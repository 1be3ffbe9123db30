"""What no cluster could run: quantities, names and addresses, each refused with what would be right."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kfp_methods.artifacts import uris
from kfp_methods.cluster import checks
from kfp_methods.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", "2"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("500m", "0.5"),
        ("8Gi", str(8 * 2**30)),
        ("1.5Ki", "1536"),
        ("3k", "3000"),
        ("5E", "5e18"),
        ("1e3", "1000"),
        ("1E-3", "0.001"),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str, value: str) -> None:
    assert checks.quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", " ", "-1", "8GB", "8gi", "8 Gi", "1K", "1e", "e3", "two", "1,5", "٣", "1Gi\n"])
def test_what_is_no_quantity(text: str) -> None:
    assert checks.quantity(text) is None
    fields = [problem.field for problem in checks.resource_problems(cpu=text, memory=text)]
    assert fields == ["cpu", "memory"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cpu": "0"}, "cpu"),
        ({"cpu": "2Gi"}, "cpu"),
        ({"memory": "512m"}, "memory"),
        ({"memory": "8"}, "memory"),
        ({"gpus": -1}, "gpus"),
        ({"gpu_type": "gpu"}, "gpu_type"),
        ({"gpu_type": "nvidia.com/"}, "gpu_type"),
        ({"gpu_type": "NVIDIA.com/gpu"}, "gpu_type"),
        ({"gpu_type": "nvidia.com/gpu:2"}, "gpu_type"),
        ({"gpu_type": "a/b/c"}, "gpu_type"),
        ({"gpu_type": f"{'a' * 64}.com/gpu"}, "gpu_type"),
    ],
)
def test_requests_that_no_node_could_meet(given: dict[str, object], field: str) -> None:
    [problem] = checks.resource_problems(**given)  # type: ignore[arg-type]
    assert problem.field == field
    assert problem.remedy


@pytest.mark.parametrize("gpu_type", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "gpu.intel.com/i915"])
def test_requests_that_are_right(gpu_type: str) -> None:
    assert checks.resource_problems(cpu="500m", memory="8Gi", gpus=2, gpu_type=gpu_type) == []
    assert checks.resource_problems() == []


REMOTE = [
    "s3://bucket/a.csv",
    "gs://bucket/a",
    "gcs://b/a",
    "minio://b/a",
    "http://data.example.com/a",
    "https://data.example.com/a?x=1",
    "S3://bucket/a",
    "runs:/12/model",
    "models:/name/3",
    "/gcs/bucket/a.csv",
    "/s3/b/a",
    "/minio/b/a",
    "/kfp-workspace/a",
    "file:///gcs/bucket/a.csv",
    "",
]


@pytest.mark.parametrize("uri", REMOTE)
def test_what_a_pod_reaches(uri: str) -> None:
    assert checks.uri_problems({"data_uri": uri}) == []


@pytest.mark.parametrize(
    "uri",
    [
        "a.csv",
        "./a.csv",
        "~/a.csv",
        "/home/me/a.csv",
        "file:///home/me/a.csv",
        "/gcs/../home/a.csv",
        "/gcsx/a.csv",
        "gcs/a.csv",
        "C:\\a.csv",
        "c:/a.csv",
        "http://localhost:9000/a.csv",
        "http://127.0.0.1/a.csv",
        "https://[::1]/a.csv",
    ],
)
def test_what_only_this_machine_reaches(uri: str) -> None:
    [problem] = checks.uri_problems({"data_uri": uri, "other_uri": ""})
    assert problem.field == "data_uri"
    assert "which pods do not reach" in problem.problem
    assert "Upload it" in problem.remedy
    assert "/kfp-workspace" in problem.remedy


def test_an_address_is_shown_without_its_password() -> None:
    [problem] = checks.uri_problems({"data_uri": "http://me:hunter2@localhost/a"})
    assert "hunter2" not in str(problem)


def test_every_scheme_that_a_pod_reads_is_let_through() -> None:
    schemes = (*uris._OBJECT_STORES, *uris._WEB)
    assert not any(checks.uri_problems({"data_uri": f"{scheme}://host.example.com/a"}) for scheme in schemes)
    [problem] = checks.uri_problems({"data_uri": "ftp://host.example.com/a"})
    assert problem.problem == "ftp:// is not supported"


@pytest.mark.parametrize("name", ["", "Team", "a_b", "-a", "a-", "a" * 64, "a.b"])
def test_names_that_no_namespace_has(name: str) -> None:
    assert checks.name_problems(namespace=name)


def test_a_service_accounts_name_may_have_dots() -> None:
    assert checks.name_problems(namespace="team-a", service_account="runner.team-a") == []
    assert checks.name_problems(service_account="runner..a")


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("kfp-methods/tabular:0.1.0", False),
        ("tabular", False),
        ("registry.example.com/team/tabular:1", True),
        ("localhost:5000/tabular", True),
        ("localhost/tabular", True),
        ("host:5000/tabular@sha256:00", True),
    ],
)
def test_whether_an_image_says_where_it_lies(image: str, named: bool) -> None:
    assert checks.has_registry(image) is named


@pytest.mark.parametrize(
    "image",
    [
        "tabular",
        "kfp-methods/tabular:0.1.0",
        "localhost:5000/kfp-methods/tabular",
        "ghcr.io/team/kfp-methods/tabular:0.1.0_a-b",
        "Registry.Example.com/a__b/c-d.e@sha256:" + 64 * "0",
        "[fd00::1]:5000/a:1",
    ],
)
def test_names_that_images_have(image: str) -> None:
    assert checks.image_problems(image) == []


@pytest.mark.parametrize(
    "image",
    ["", "UPPER/bad image", "Tabular", "a//b", "a:", "a:b:c", "https://ghcr.io/a", "a@sha256:12", "-a", "ä", "a\n"],
)
def test_names_that_no_image_has(image: str) -> None:
    [problem] = checks.image_problems(image)
    assert (problem.field, problem.value) == ("image", image)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        checks.check(checks.resource_problems(cpu="x", memory="y"), checks.uri_problems({"data_uri": "a.csv"}))
    assert [problem.field for problem in caught.value.problems] == ["cpu", "memory", "data_uri"]
    checks.check([], [])
