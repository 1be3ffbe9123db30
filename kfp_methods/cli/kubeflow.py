"""`kfp-methods compile` and `build`: what a Kubeflow cluster needs."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from kfp_methods import catalogue
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.kubeflow import Placement

PLACEMENT_OPTIONS: list[click.Parameter] = [
    click.Option(["--node-selector"], multiple=True, metavar="KEY=VALUE", help="Label of the nodes to run on."),
    click.Option(["--toleration"], multiple=True, metavar="KEY[=VALUE]:EFFECT", help="Taint of a node to tolerate."),
    click.Option(
        ["--retries"], type=click.IntRange(0, 10), default=2, show_default=True, help="Retries of a failed pod."
    ),
    click.Option(
        ["--time-limit"],
        type=click.IntRange(60, 30 * 86400),
        metavar="SECONDS",
        help="After this long a pod is ended, each attempt for itself.  [default: the method's]",
    ),
    click.Option(
        ["--shared-memory"], help="Most that /dev/shm may take of the pod's memory.  [default: the method's memory]"
    ),
    click.Option(
        ["--volume"],
        multiple=True,
        metavar="CLAIM:/PATH",
        help="A PersistentVolumeClaim of the run's namespace, and where the pods see it, for data or checkpoints.",
    ),
    click.Option(
        ["--workspace"],
        metavar="SIZE",
        help="Volume that Kubeflow makes for each run, such as 10Gi; it keeps checkpoints, so that retried pods go on.",
    ),
    click.Option(
        ["--run-as-user"],
        type=click.IntRange(0, 2**31 - 1),
        default=10001,
        show_default=True,
        help="User and group number of the pods; 0: what the namespace assigns, as on OpenShift.",
    ),
    click.Option(
        ["--cache/--no-cache"],
        default=False,
        show_default=True,
        help="Let KFP reuse results; it cannot see that the file behind a URI has changed.",
    ),
]


def placement_from(settings: dict[str, Any]) -> Placement:
    """How the pods are scheduled, from `PLACEMENT_OPTIONS`. Raises InputError."""
    from kfp_methods.cluster import checks
    from kfp_methods.kubeflow import Placement

    checks.check(*(checks.memory_problems(name, settings[name]) for name in ("shared_memory", "workspace")))
    return Placement(
        node_selector=dict(_pair("node_selector", text) for text in settings["node_selector"]),
        tolerations=tuple(_toleration(text) for text in settings["toleration"]),
        retries=settings["retries"],
        cache=settings["cache"],
        timeout_seconds=settings["time_limit"],
        shared_memory=settings["shared_memory"],
        run_as_user=settings["run_as_user"] or None,
        volumes=dict(_volume(text) for text in settings["volume"]),
        workspace=settings["workspace"],
    )


def check_image(image: str) -> None:
    """A line on standard error where only nodes that hold the image already could start it.

    Raises:
        InputError: no image can have this name.
    """
    from kfp_methods.cluster import checks

    checks.check(checks.image_problems(image))
    if not checks.has_registry(image):
        click.echo(
            f"warning: the image {image} names no registry, so nodes that do not hold it cannot pull it. Give --image, "
            "or set KFP_METHODS_REGISTRY to the registry that kfp-methods build --push sends it to.",
            err=True,
        )


def _compile(name: str | None, **settings: Any) -> None:
    """Writes a method's pipeline for Kubeflow: one YAML file to upload in its UI."""
    from kfp_methods import kubeflow

    _check_compile(name, settings)
    names = [entry.name for entry in catalogue.entries()] if name is None else [name]
    build = kubeflow.single_pipeline if settings["single"] else kubeflow.replicated_pipeline
    placement = placement_from(settings)
    methods = {each: catalogue.load(each) for each in names}
    for image in sorted({settings["image"] or kubeflow.default_image(method) for method in methods.values()}):
        check_image(image)
    for each, method in methods.items():
        pipeline = build(method, placement, settings["image"])
        path = settings["all_to"] / f"{each}.yaml" if name is None else settings["output"] or Path(f"{each}.yaml")
        _write(pipeline, path, settings)
        click.echo(str(path))


def _check_compile(name: str | None, settings: dict[str, Any]) -> None:
    """Raises InputError for flags that exclude or need each other."""
    from kfp_methods.cluster import checks

    output = settings["output"]
    if (name is None) == (settings["all_to"] is None):
        raise InputError(Problem("METHOD", name, "give either a method's name or --all DIR", "See `kfp-methods list`"))
    if name is None and output is not None:
        raise InputError(Problem("output", str(output), "is one file, but --all writes many", "Leave one of them out"))
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise InputError(Problem("output", str(output), "is not a YAML file's name", "Give one that ends with .yaml"))
    if settings["namespace"] is not None and not settings["kubernetes_manifest"]:
        problem = "has an effect only on Kubernetes resources"
        remedy = "Add --kubernetes-manifest, or leave it out: a run's namespace is chosen when it is submitted"
        raise InputError(Problem("namespace", settings["namespace"], problem, remedy))
    checks.check(checks.name_problems(namespace=settings["namespace"]))


def _write(pipeline: Any, path: Path, settings: dict[str, Any]) -> None:
    from kfp_methods import kubeflow

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kubeflow.compile_pipeline(
            pipeline, path, kubernetes_manifest=settings["kubernetes_manifest"], namespace=settings["namespace"]
        )
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise InputError(Problem("output", str(path), problem, "Give a place that you may write to")) from None


@click.command("build")
@click.argument("group")
@click.option("--base-image", help="Image to build on.  [default: a CUDA runtime image]")
@click.option("--registry", help="Registry (and project) to name the image for.")
@click.option("--tag", help="Tag.  [default: this version]")
@click.option("--push", is_flag=True, help="Push the image when it is built.")
@click.option(
    "--ca-bundle", type=click.Path(path_type=Path, exists=True), help="CA certificates to trust while building."
)
@click.option("--pip-config", type=click.Path(path_type=Path, exists=True), help="pip.conf to use while building.")
@click.option("--apt-sources", type=click.Path(path_type=Path, exists=True), help="sources.list to use while building.")
@click.option("--network", help="Docker network of the build, such as host.")
def build(group: str, **settings: Any) -> None:
    """Builds the image of a GROUP (such as tabular) with Docker."""
    from kfp_methods.images import build_image

    built = build_image(group, **settings, on_line=lambda line: click.echo(line, err=True))
    click.echo(f"{built.reference}  {built.size_bytes / 1e6:,.0f} MB  {built.seconds:.0f} s  {built.id}")
    for layer in sorted(built.layers, key=lambda layer: -layer.size_bytes)[:5]:
        click.echo(f"  {layer.size_bytes / 1e6:8,.0f} MB  {' '.join(layer.command.split())[:90]}")
    if built.digest:
        click.echo(f"pushed: {built.digest}")
    sys.exit(0)


def _pair(field: str, text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise InputError(Problem(field, text, "is not KEY=VALUE", "Give a label such as pool=gpu"))
    return key, value


def _volume(text: str) -> tuple[str, str]:
    from kfp_methods.cluster import checks

    claim, _, path = text.partition(":")
    absolute = PurePosixPath(path).is_absolute() and path != "/" and ".." not in PurePosixPath(path).parts
    if not (checks.is_object_name(claim) and absolute):
        raise InputError(Problem("volume", text, "is not CLAIM:/PATH", "Give one such as team-data:/data"))
    return claim, path.rstrip("/")


def _toleration(text: str) -> dict[str, str]:
    taint, sign, effect = text.rpartition(":")
    if not sign or effect not in ("NoSchedule", "NoExecute", "PreferNoSchedule") or not taint:
        remedy = "Give one such as nvidia.com/gpu:NoSchedule or team=vision:NoExecute"
        raise InputError(Problem("toleration", text, "is not KEY[=VALUE]:EFFECT", remedy))
    key, has_value, value = taint.partition("=")
    if has_value:
        return {"key": key, "operator": "Equal", "value": value, "effect": effect}
    return {"key": key, "operator": "Exists", "effect": effect}


compile_command = click.Command(
    "compile",
    callback=_compile,
    help=_compile.__doc__,
    params=[
        click.Argument(["name"], required=False, metavar="METHOD"),
        click.Option(
            ["-o", "--output"], type=click.Path(path_type=Path, dir_okay=False), help="File.  [default: METHOD.yaml]"
        ),
        click.Option(
            ["--all", "all_to"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Every method, into this folder.",
        ),
        click.Option(
            ["--single"],
            is_flag=True,
            help="One pod and a `seed`, instead of one for each of `seeds` and a pooling task.",
        ),
        click.Option(
            ["--image"], help="Image of the pods.  [default: the group's; see KFP_METHODS_REGISTRY, KFP_METHODS_TAG]"
        ),
        click.Option(
            ["--kubernetes-manifest"], is_flag=True, help="Pipeline and PipelineVersion resources for kubectl apply."
        ),
        click.Option(["--namespace"], help="Namespace of those resources."),
        *PLACEMENT_OPTIONS,
    ],
)

COMMANDS = {"compile": compile_command, "build": build}
