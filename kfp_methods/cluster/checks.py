"""What no cluster could run, refused before anything is sent: quantities, names, and data that pods do not reach."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from kfp_methods.errors import InputError, Problem

MOUNTS = ("/gcs", "/minio", "/s3", "/kfp-workspace")
"""Where Kubeflow mounts its object stores and a pipeline's workspace, beside the volumes that a user names."""

_SUFFIXES = "|".join(("[num]", "k", "[KMGTPE]i", "[MGTPE]", r"[eE][+-]?\d{1,2}"))
_QUANTITY = re.compile(rf"(\d+\.?\d*|\.\d+)({_SUFFIXES})?", re.ASCII)
_SCALES = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(1000)}
_SCALES |= {letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", start=2)}
_SCALES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_MOST_CPU = 4096
_LONGEST_IMAGE = 512
_LEAST_MEMORY = 64 * 2**20  # less than the Python interpreter with NumPy takes

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAMESPACE = re.compile(_LABEL)
_OBJECT_NAME = re.compile(rf"(?=.{{1,253}}\Z){_SUBDOMAIN}")
_EXTENDED_RESOURCE = re.compile(rf"(?=[^/]{{1,253}}/){_SUBDOMAIN}/[A-Za-z0-9]([\w.-]{{0,61}}[A-Za-z0-9])?", re.ASCII)

# The grammar of the OCI distribution specification: [host[:port]/]path[/path...][:tag][@digest]
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PATH}(?:/{_PATH})*(?::\w[\w.-]{{0,127}})?(?:@[A-Za-z][\w+.-]*:[0-9a-fA-F]{{32,}})?", re.ASCII
)

_STORES = ("s3", "gs", "gcs", "minio", "runs", "models")
_WEB = ("http", "https")
_THIS_MACHINE = re.compile(r"localhost|.*\.localhost|127(\.\d+){3}|::1|0\.0\.0\.0", re.IGNORECASE)


def quantity(text: str) -> Decimal | None:
    """The number that a Kubernetes quantity such as 500m, 8Gi or 1e3 stands for; None where it is none."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, suffix = found.groups(default="")
    return Decimal(number) * (Decimal(f"1{suffix}") if suffix[1:].lstrip("+-").isdigit() else _SCALES.get(suffix, 1))


def check(*problems: Iterable[Problem]) -> None:
    """Raises InputError with all problems, if there are any."""
    if found := [problem for each in problems for problem in each]:
        raise InputError(found)


def resource_problems(
    *, cpu: str | None = None, memory: str | None = None, gpus: int = 0, gpu_type: str | None = None
) -> list[Problem]:
    """What of a pod's requests Kubernetes would refuse, or never find a node for; None is not looked at."""
    problems = [*_cpu_problems(cpu), *memory_problems("memory", memory)]
    if gpus < 0:
        problems.append(Problem("gpus", gpus, "is negative", "Give 0 for the CPU alone, or the number of GPUs"))
    if gpu_type is not None and not _EXTENDED_RESOURCE.fullmatch(gpu_type):
        remedy = (
            "Give one that kubectl describe nodes lists, such as nvidia.com/gpu, nvidia.com/mig-1g.10gb or amd.com/gpu"
        )
        problems.append(Problem("gpu_type", gpu_type, "is not the name of a Kubernetes resource", remedy))
    return problems


def memory_problems(field: str, text: str | None) -> list[Problem]:
    """Why an amount of memory will not do; `512m`, half a byte to Kubernetes, is the usual slip."""
    if text is None:
        return []
    amount = quantity(text)
    if amount is None:
        return [Problem(field, text, "is not a Kubernetes quantity", "Give one such as 8Gi or 512Mi")]
    if amount < _LEAST_MEMORY:
        problem = f"is {amount.normalize():f} bytes, too little for any Python process"
        return [Problem(field, text, problem, "Give a unit, such as 8Gi or 512Mi")]
    return []


def uri_problems(uris: Mapping[str, str], mounts: Iterable[str] = ()) -> list[Problem]:
    """Which inputs, by field, name data that only this machine can read; mounts: where pods have volumes."""
    from kfp_methods.artifacts.uris import redacted

    below = (*MOUNTS, *mounts)
    problems = []
    for field, uri in uris.items():
        if uri and (problem := _out_of_reach(uri, below)):
            remedy = (
                "Upload it, for example with aws s3 cp, gsutil cp or mlflow artifacts log-artifact, and give its "
                "address, s3://, gs://, https://, runs:/ or models:/; or give a path of a mounted volume (--volume) or "
                f"below {', '.join(MOUNTS)}"
            )
            problems.append(Problem(field, redacted(uri), problem, remedy))
    return problems


def folder_problems(folders: Mapping[str, str], mounts: Iterable[str] = ()) -> list[Problem]:
    """Which inputs, by field, name a folder that would go with the pod."""
    below = (*MOUNTS, *mounts)
    return [
        Problem(field, folder, "is on no volume, so it would go with the pod", "Mount one: --volume CLAIM:/PATH")
        for field, folder in folders.items()
        if folder and not _is_below(PurePosixPath(folder), below)
    ]


def name_problems(*, namespace: str | None = None, service_account: str | None = None) -> list[Problem]:
    """Names that no Kubernetes object can have; None is not looked at."""
    wanted = {"namespace": (namespace, _NAMESPACE), "service_account": (service_account, _OBJECT_NAME)}
    remedy = "Give its name: lower-case letters, digits and dashes"
    return [
        Problem(field, name, "is not a name that Kubernetes allows", remedy)
        for field, (name, allowed) in wanted.items()
        if name is not None and not allowed.fullmatch(name)
    ]


def image_problems(image: str) -> list[Problem]:
    """Why no node could pull an image of this name."""
    if len(image) <= _LONGEST_IMAGE and _IMAGE.fullmatch(image):
        return []
    remedy = "Give [registry/]name[:tag], the name in lower case, such as ghcr.io/team/kfp-methods/tabular:0.1.0"
    return [Problem("image", image, "is not the name of an image", remedy)]


def is_object_name(text: str) -> bool:
    """Whether Kubernetes lets an object, such as a claim of a volume, have this name."""
    return _OBJECT_NAME.fullmatch(text) is not None


def has_registry(image: str) -> bool:
    """Whether an image's name says where to pull it from, by Docker's rule for its first part."""
    first, slash, _ = image.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def _cpu_problems(text: str | None) -> list[Problem]:
    if text is None:
        return []
    cores = quantity(text)
    if cores is None:
        return [Problem("cpu", text, "is not a Kubernetes quantity", "Give one such as 2 or 500m")]
    if not Decimal("0.001") <= cores <= _MOST_CPU:
        return [Problem("cpu", text, f"is not within 1m and {_MOST_CPU} cores", "Give one such as 2 or 500m")]
    return []


def _out_of_reach(uri: str, mounts: Iterable[str]) -> str | None:
    scheme, colon, rest = uri.strip().partition(":")
    scheme = scheme.lower() if colon and rest.startswith("/") else ""
    if scheme in _STORES:
        return None
    if scheme in _WEB:
        return "names this machine, which pods do not reach" if _is_this_machine(uri) else None
    path = PurePosixPath(rest.removeprefix("//") if scheme == "file" else uri.strip())
    if scheme in ("", "file") and _is_below(path, mounts):
        return None
    if rest.startswith("//") and scheme not in ("", "file"):
        return f"{scheme}:// is not supported"
    return "is a path on this machine, which pods do not reach"


def _is_below(path: PurePosixPath, mounts: Iterable[str]) -> bool:
    return ".." not in path.parts and any(path.is_relative_to(mount) for mount in mounts)


def _is_this_machine(uri: str) -> bool:
    try:
        host = urlsplit(uri.strip()).hostname or ""
    except ValueError:
        return False
    return _THIS_MACHINE.fullmatch(host) is not None
