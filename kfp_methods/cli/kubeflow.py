"""`kfp-methods compile` and `build`: what a Kubeflow cluster needs."""

from __future__ import annotations

import sys
from pathlib import Path
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
        ["--cache/--no-cache"],
        default=False,
        show_default=True,
        help="Let KFP reuse results; it cannot see that the file behind a URI has changed.",
    ),
]


def placement_from(settings: dict[str, Any]) -> Placement:
    """How the pods are scheduled, from `PLACEMENT_OPTIONS`. Raises InputError."""
    from kfp_methods.kubeflow import Placement

    return Placement(
        node_selector=dict(_pair("node_selector", text) for text in settings["node_selector"]),
        tolerations=tuple(_toleration(text) for text in settings["toleration"]),
        retries=settings["retries"],
        cache=settings["cache"],
    )


def _compile(name: str | None, **settings: Any) -> None:
    """Writes a method's pipeline for Kubeflow: one YAML file to upload in its UI."""
    from kfp_methods import kubeflow

    if (name is None) == (settings["all_to"] is None):
        raise InputError(Problem("METHOD", name, "give either a method's name or --all DIR", "See `kfp-methods list`"))
    names = [entry.name for entry in catalogue.entries()] if name is None else [name]
    folder = settings["all_to"]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    build = kubeflow.single_pipeline if settings["single"] else kubeflow.replicated_pipeline
    for each in names:
        pipeline = build(catalogue.load(each), placement_from(settings), settings["image"])
        path = folder / f"{each}.yaml" if folder is not None else settings["output"] or Path(f"{each}.yaml")
        kubeflow.compile_pipeline(
            pipeline, path, kubernetes_manifest=settings["kubernetes_manifest"], namespace=settings["namespace"]
        )
        click.echo(str(path))


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
