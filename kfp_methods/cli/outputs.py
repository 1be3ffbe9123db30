"""A local run's files under names that other programs know: KFP's own have no suffix and lie deep."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kfp_methods import catalogue

if TYPE_CHECKING:
    from kfp_methods.contract import Method
    from kfp_methods.fields import OutputKind
    from kfp_methods.local import LocalRun

_SUFFIXES = {"HTML": ".html", "Metrics": ".json", "ClassificationMetrics": ".json", "Artifact": ".json"}


class Linked(NamedTuple):
    """Paths by output name, of the run and, of a replicated one, of each replicate."""

    outputs: dict[str, str]
    replicates: list[dict[str, Any]]


def linked(method: Method[Any, Any, Any], ended: LocalRun, replicated: bool) -> Linked:
    """Links the outputs into the run's folder: those of the last task, or in a folder by seed those of replicates.

    The outputs of a replicated run are its pooled ones; when the replicates could not be pooled it has none.
    """
    if not replicated:
        [*_, last] = ended.summaries or [{}]
        return Linked(_link(last, method, ended.folder, ended.folder), [])
    pooled: dict[str, str] = {}
    replicates = []
    for summary in ended.summaries:
        if summary["method"] == catalogue.COLLECT.name:
            pooled = _link(summary, catalogue.load(catalogue.COLLECT.name), ended.folder, ended.folder)
            continue
        folder = ended.folder / f"seed-{summary['seed']}"
        outputs = _link(summary, method, ended.folder, folder)
        replicates.append({"seed": summary["seed"], "exit_code": summary["exit_code"], "outputs": outputs})
    return Linked(pooled, sorted(replicates, key=lambda each: (each["seed"] is None, each["seed"])))


def _link(summary: Mapping[str, Any], method: Method[Any, Any, Any], run: Path, folder: Path) -> dict[str, str]:
    kinds = method.outputs.kinds()
    return {name: _named(kinds[name], Path(path), run, folder) for name, path in summary.get("outputs", {}).items()}


def _named(kind: OutputKind, path: Path, run: Path, folder: Path) -> str:
    """The link; the file itself where no link can be made: a result is not lost for want of a name."""
    if not kind.is_artifact:
        return str(path)
    suffix = f".{kind.format}" if kind.kfp_type == "Dataset" else _SUFFIXES.get(kind.kfp_type, "")
    link = folder / f"{kind.name}{suffix}"
    try:
        folder.mkdir(exist_ok=True)
        if kind.kfp_type == "HTML":  # browsers look at what a link leads to, and show a file without suffix as text
            shutil.copyfile(path, link)
            return str(link)
        link.symlink_to(Path("." if folder == run else "..") / path.relative_to(run))
    except OSError:
        return str(path)
    return str(link)
