"""The tabular group's image: what it holds, what it must not hold, and how it runs."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from kfp_methods.images import ROOT, BuiltImage
from kfp_methods.version import __version__
from tests.docker.host_pip import MARKER, pip_settings

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("docker"),
]

TRACKING = Path(__file__).with_name("track_a_run.py")
_LIBRARIES = """\
torch numpy scipy.stats sklearn.linear_model pandas pyarrow.parquet sympy networkx matplotlib.pyplot
safetensors.torch onnxruntime fsspec s3fs gcsfs aiohttp
pydantic yaml click rich tqdm jinja2
mlflow mlflow.pyfunc sqlalchemy alembic psutil pynvml
kfp_methods.contract kfp_methods.components.tabular.bmia
"""


@pytest.fixture(scope="module")
def run(engine: Any, tabular_image: BuiltImage) -> Callable[..., str]:
    """Runs Python in the image as a strict cluster would: no network, no privileges, only /tmp writable."""

    def run(program: str, *arguments: str, **options: Any) -> str:
        strict: dict[str, Any] = {
            "network_mode": "none",
            "read_only": True,
            "tmpfs": {"/tmp": "rw,mode=1777"},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
        }
        output = engine.containers.run(
            tabular_image.reference, ["python3", "-c", program, *arguments], remove=True, **(strict | options)
        )
        return output.decode()

    return run


def test_runs_as_nobody_in_particular(run: Callable[..., str]) -> None:
    assert run("import os; print(os.getuid(), os.getgid(), os.getcwd())").split() == [
        "10001",
        "10001",
        "/tmp",
    ]


def test_nothing_but_tmp_can_be_written(run: Callable[..., str]) -> None:
    program = """
import os, sys, tempfile
writable = [d for d in ("/", "/opt/venv", "/home", "/etc", "/var/tmp", os.getcwd()) if os.access(d, os.W_OK)]
print(writable, tempfile.gettempdir(), os.path.expanduser("~"))
"""
    assert run(program).strip() == "['/tmp'] /tmp /tmp"


def test_every_library_imports_without_network_or_writable_root(run: Callable[..., str]) -> None:
    program = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name)
"""
    assert run(program, *_LIBRARIES.split()).split() == _LIBRARIES.split()


def test_any_user_id_that_a_cluster_assigns_works(run: Callable[..., str]) -> None:
    program = "import getpass, torch, matplotlib.pyplot, os; print(getpass.getuser(), os.getuid())"
    assert run(program, user="1000680000:0").split() == ["methods", "1000680000"]


def test_tracks_a_whole_run_in_sqlite_and_reads_its_model_back(run: Callable[..., str]) -> None:
    found = json.loads(run(TRACKING.read_text(), stderr=False).splitlines()[-1])
    assert found["prediction"] == [4.0, 6.0]
    assert "loss" in found["metrics"]
    assert any(name.startswith("system/") for name in found["metrics"])
    assert len(found["dataset_digests"]) == 2
    assert {"report.html", "figure.png", "table.json"} <= set(found["artifacts"])


def test_installs_the_lock_and_nothing_else(run: Callable[..., str]) -> None:
    program = """
import json
from importlib.metadata import distributions
print(json.dumps({d.name: d.version for d in distributions()}))
"""
    installed = {_normal(name): version.partition("+")[0] for name, version in json.loads(run(program)).items()}
    assert installed.pop("kfp-methods") == __version__
    lock = (ROOT / "images/tabular/requirements.txt").read_text()
    locked = set(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))  # a version for each range of Pythons
    assert not set(installed.items()) - locked
    texts = [(ROOT / "images" / name).read_text() for name in ("common.in", "tabular/requirements.in")]
    wanted = re.findall(r"^[\w-]+", "\n".join(texts), re.MULTILINE)
    assert {_normal(name) for name in wanted} <= installed.keys()


def test_has_byte_code_for_what_starts_first(run: Callable[..., str]) -> None:
    program = """
import importlib.util, os, sys
specs = [importlib.util.find_spec(name) for name in sys.argv[1:]]
print([spec.name for spec in specs if not os.path.exists(spec.cached)])
"""
    assert run(program, "torch", "mlflow", "pandas", "kfp_methods", "kfp_methods.contract").strip() == "[]"


def test_has_no_tools_of_the_build(run: Callable[..., str]) -> None:
    program = """
import glob, importlib.util, shutil
print([name for name in ("pip", "gcc", "cc", "make", "git", "curl") if shutil.which(name)],
      importlib.util.find_spec("pip"),
      glob.glob("/var/lib/apt/lists/*_*"), glob.glob("/var/cache/apt/archives/*.deb"))
"""
    assert run(program).strip() == "[] None [] []"


def test_says_what_it_is(engine: Any, tabular_image: BuiltImage) -> None:
    labels = engine.images.get(tabular_image.reference).labels
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}title"] == "kfp-methods/tabular"
    assert labels[f"{prefix}version"] == __version__
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|", labels[f"{prefix}revision"])
    assert f"{prefix}source" in labels


def test_no_layer_holds_what_came_as_a_secret(engine: Any, tabular_image: BuiltImage) -> None:
    needles = [MARKER.encode(), *(host.encode() for host in _private_hosts())]
    history = json.dumps(engine.images.get(tabular_image.reference).history())
    assert not [needle for needle in needles if needle.decode() in history]
    saved = _Chunks(engine.images.get(tabular_image.reference).save())
    layers = 0
    with tarfile.open(fileobj=saved, mode="r|", bufsize=1 << 20) as archive:  # type: ignore[call-overload]
        for member in archive:
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                found = _first_found(needles, _unpacked(content))
                assert found is None, f"{found!r} is in {member.name}"
                layers += member.size > 1_000_000
    assert layers >= 3  # the base, the system's packages and the requirements were really read


def test_a_changed_method_rebuilds_only_the_last_layer(
    engine: Any, build: Callable[..., BuiltImage], tabular_image: BuiltImage, tmp_path: Path
) -> None:
    clone = _working_copy(tmp_path / "clone")
    first = build("tabular", root=clone, tag="rebuild-test")
    method = clone / "components/tabular/bmia/scores.py"
    method.write_text(method.read_text() + "\nADDED_BY_A_TEST = True\n")
    second = build("tabular", root=clone, tag="rebuild-test")
    try:
        before, after = _layers(engine, first), _layers(engine, second)
        assert before[:-1] == after[:-1] == _layers(engine, tabular_image)[:-1]
        assert before[-1] != after[-1]
        assert second.seconds < 60
        program = "from kfp_methods.components.tabular.bmia import scores; print(scores.ADDED_BY_A_TEST)"
        shown = engine.containers.run(second.id, ["python3", "-c", program], remove=True, network_mode="none")
        assert shown.decode().strip() == "True"
    finally:
        engine.images.remove(first.id, force=True)
        engine.images.remove(second.id, force=True)


def test_reports_its_size_and_what_takes_it(tabular_image: BuiltImage) -> None:
    assert tabular_image.size_bytes == pytest.approx(sum(layer.size_bytes for layer in tabular_image.layers), rel=0.01)
    assert tabular_image.size_bytes < 1_800_000_000
    largest = max(tabular_image.layers, key=lambda layer: layer.size_bytes)
    assert "/opt/venv" in largest.command


def _layers(engine: Any, image: BuiltImage) -> list[str]:
    return engine.images.get(image.id).attrs["RootFS"]["Layers"]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _private_hosts() -> set[str]:
    """The addresses of this machine's package indexes, the public one excepted."""
    values = " ".join(pip_settings().get(name, "") for name in ("index-url", "extra-index-url", "find-links"))
    return set(re.findall(r"https?://(?:[^@/\s]*@)?([^/\s]+)", values)) - {"pypi.org"}


class _Chunks:
    """A readable file over an iterator of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < size and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """The file's bytes in pieces, unpacked if it is a gzip; newer engines save layers so."""
    first = file.read(2)
    rest = _Chunks(_pieces([first], file))
    stream: Any = gzip.GzipFile(fileobj=rest) if first == b"\x1f\x8b" else rest  # type: ignore[call-overload]
    while piece := stream.read(1 << 20):
        yield piece


def _pieces(first: list[bytes], file: IO[bytes]) -> Iterator[bytes]:
    yield from first
    while piece := file.read(1 << 20):
        yield piece


def _first_found(needles: list[bytes], pieces: Iterable[bytes]) -> bytes | None:
    overlap = max(map(len, needles)) - 1
    tail = b""
    for piece in pieces:
        window = tail + piece
        for needle in needles:
            if needle in window:
                return needle
        tail = window[-overlap:]
    return None


def _working_copy(target: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("kfp_methods", "components", "pipelines", "images"):
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy2(ROOT / name, target / name)
    return target
