"""Says what of Docker, GPU, MLflow and Kubeflow this machine reaches, and what to do about the rest."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

_SECONDS = 5


@dataclass(frozen=True)
class Finding:
    """The state of one part; `needed` parts are those a local run cannot do without."""

    part: str
    state: str
    good: bool
    remedy: str = ""
    needed: bool = False


def diagnose(environ: Mapping[str, str]) -> list[Finding]:
    """Looks at every part; nothing is changed, and nothing takes longer than a few seconds."""
    return [_python(), _packages(), _gpu(), _docker(), _mlflow(environ), _kubeflow(environ), _kubectl()]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Finding("Python", version, good, "" if good else "Install Python 3.11 or later", needed=True)


def _packages() -> Finding:
    missing = [
        name for name in ("mlflow", "kfp", "torch", "sklearn", "docker") if importlib.util.find_spec(name) is None
    ]
    if not missing:
        return Finding("Packages", "complete", True, needed=True)
    return Finding(
        "Packages", f"missing: {', '.join(missing)}", False, "pip install 'kfp-methods[kubeflow,tabular]'", True
    )


def _gpu() -> Finding:
    remedy = (
        "Methods run on the CPU (preset smoke or sample); for preset gpu install the NVIDIA driver and a CUDA torch"
    )
    if shutil.which("nvidia-smi") is None:
        return Finding("GPU", "no NVIDIA driver", False, remedy)
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    names = "; ".join(done.stdout.strip().splitlines())
    return (
        Finding("GPU", names, True) if done.returncode == 0 and names else Finding("GPU", "driver fails", False, remedy)
    )


def _docker() -> Finding:
    try:
        import docker

        client = docker.from_env(timeout=_SECONDS)
        version = client.version()["Version"]
    except ImportError:
        return Finding("Docker", "Python package missing", False, "pip install docker")
    except Exception as error:  # the SDK lets errors of urllib3, requests and its own through
        remedy = "Start the Docker engine (for `build` and `run --runner docker` only)"
        return Finding("Docker", f"not reachable ({type(error).__name__})", False, remedy)
    return Finding("Docker", f"engine {version}", True)


def _mlflow(environ: Mapping[str, str]) -> Finding:
    uri = environ.get("MLFLOW_TRACKING_URI", "")
    if not uri.startswith("http"):
        return Finding(
            "MLflow", uri or "local database in the runs' folder", True, "Set MLFLOW_TRACKING_URI for a server"
        )
    return _reach("MLflow", uri.rstrip("/") + "/health", "Check MLFLOW_TRACKING_URI and that the server runs")


def _kubeflow(environ: Mapping[str, str]) -> Finding:
    endpoint = environ.get("KFP_ENDPOINT", "")
    if not endpoint:
        return Finding("Kubeflow", "no endpoint set", False, "Set KFP_ENDPOINT (for `submit` and `schedule` only)")
    return _reach(
        "Kubeflow", endpoint.rstrip("/") + "/apis/v2beta1/healthz", "Check KFP_ENDPOINT, and KFP_TOKEN for a login"
    )


def _kubectl() -> Finding:
    path = shutil.which("kubectl")
    return Finding(
        "kubectl", path or "not installed", path is not None, "" if path else "Install it to apply manifests/"
    )


def _reach(part: str, url: str, remedy: str) -> Finding:
    if not url.startswith(("http://", "https://")):
        return Finding(part, "not an http(s) URL", False, remedy)
    try:
        with urlopen(Request(url), timeout=_SECONDS) as answer:  # noqa: S310 (scheme checked)
            return Finding(part, f"reachable (HTTP {answer.status})", True)
    except HTTPError as error:
        return Finding(part, f"HTTP {error.code}", False, remedy)
    except (URLError, TimeoutError, OSError) as error:
        return Finding(part, f"not reachable ({getattr(error, 'reason', error)})", False, remedy)
