"""Finds the methods: their `metadata.yaml` is read at once, their code only when a method is loaded."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.contract import Method

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Entry:
    """What `metadata.yaml` says of a method, and where its folder is."""

    name: str
    group: str
    title: str
    summary: str
    stability: str
    paper: Mapping[str, Any]
    sample_data: Mapping[str, Any]
    tags: tuple[str, ...]
    links: Mapping[str, str]
    last_verified: str
    folder: Path
    module: str


COLLECT = Entry(
    name="collect",
    group="tabular",
    title="Replicates, joined",
    summary="pools the claims of a run's replicates by seed and summarises their metrics.",
    stability="beta",
    paper={},
    sample_data={},
    tags=(),
    links={},
    last_verified="",
    folder=Path(__file__).parent,
    module="kfp_methods.collect",
)


def entries() -> list[Entry]:
    """Every method, by group and name."""
    from kfp_methods import components

    files = [path for root in components.__path__ for path in Path(root).glob("*/*/metadata.yaml")]
    return sorted((_read(path) for path in files), key=lambda entry: (entry.group, entry.name))


def entry(name: str) -> Entry:
    """The method of that name.

    Raises:
        InputError: there is none.
    """
    if name == COLLECT.name:
        return COLLECT
    known = {found.name: found for found in entries()}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        remedy = f"Did you mean {close[0]}?" if close else "`kfp-methods list` shows them"
        raise InputError(Problem("method", name, "there is no such method", remedy))
    return known[name]


def load(name: str) -> Method[Any, Any, Any]:
    """Imports a method's `component.py` (quick: heavy libraries wait until it runs).

    Raises:
        InputError: there is no such method.
    """
    module = importlib.import_module(entry(name).module)
    method: Method[Any, Any, Any] = module.METHOD
    return method


def _read(path: Path) -> Entry:
    try:
        return _entry(path, yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader))  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
        remedy = "Write it as `kfp-methods new` does"
        raise InputError(Problem("metadata.yaml", str(path), problem, remedy)) from None


def _entry(path: Path, data: Mapping[str, Any]) -> Entry:
    group = path.parent.parent.name
    return Entry(
        name=data["name"],
        group=group,
        title=data["title"],
        summary=data["summary"],
        stability=data["stability"],
        paper=data["paper"],
        sample_data=data.get("sample_data", {}),
        tags=tuple(data.get("tags", ())),
        links=data.get("links", {}),
        last_verified=str(data["lastVerified"]),
        folder=path.parent,
        module=f"kfp_methods.components.{group}.{path.parent.name}.component",
    )
