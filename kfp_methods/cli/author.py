"""`kfp-methods new` and `docs`: for people who write methods."""

from __future__ import annotations

import builtins
import datetime
import importlib.util
import keyword
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import yaml

from kfp_methods import catalogue
from kfp_methods.cli.places import writing_to
from kfp_methods.errors import InputError, Problem

REPOSITORY = Path(__file__).resolve().parents[2]
_TEMPLATES = Path(__file__).resolve().parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@click.command("new")
@click.argument("name")
@click.option("--group", required=True, help="Image group of the method, such as tabular.")
@click.option("--new-group", is_flag=True, help="Make the group too.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=REPOSITORY / "components",
    help="Folder that holds the groups.  [default: components/]",
)
def new(name: str, group: str, new_group: bool, into: Path) -> None:
    """Makes the folder of a new method NAME."""  # fmt: skip
    _check_name(name)
    _check_group(group, new_group, into)
    folder = into / group / name
    if folder.exists():
        raise InputError(Problem("NAME", name, f"{folder} is there already", "Choose another name"))
    classes = "".join(part.title() for part in name.split("_"))
    with writing_to("into", into):
        folder.mkdir(parents=True)
        for template in sorted(_TEMPLATES.glob("*.j2")):
            text = _render(template, name=name, group=group, classes=classes, today=datetime.date.today().isoformat())
            (folder / template.stem).write_text(text, encoding="utf-8")
    click.echo(
        f"{folder}: now write what `grep -n WRITE {shlex.quote(str(folder))}/*` shows, then {_trial(name, into)}"
    )


def _check_name(name: str) -> None:
    """The name becomes a Python module, a class, a KFP component, a flag and a YAML value."""
    if not _NAME.fullmatch(name):
        raise InputError(Problem("NAME", name, "is not a lower-case Python name", "Give one such as my_method"))
    if any(entry.name == name for entry in (*catalogue.entries(), catalogue.COLLECT)):
        raise InputError(Problem("NAME", name, "there is a method of that name", "Choose another name"))
    meanings = {
        "a word of Python's": keyword.iskeyword(name) or keyword.issoftkeyword(name) or hasattr(builtins, name),
        "a value of YAML's": not isinstance(yaml.safe_load(name), str),
        "an installed module": name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None,
    }
    if meaning := next((meaning for meaning, holds in meanings.items() if holds), ""):
        raise InputError(Problem("NAME", name, f"is {meaning}", f"Choose another, such as {name}_method"))


def _check_group(group: str, new_group: bool, into: Path) -> None:
    from kfp_methods import images

    if not _NAME.fullmatch(group) or keyword.iskeyword(group) or not isinstance(yaml.safe_load(group), str):
        raise InputError(Problem("group", group, "is not a lower-case Python name", "Give one such as tabular"))
    known = {*images.groups(), *(entry.group for entry in catalogue.entries())}
    known |= {path.name for path in into.glob("*") if path.is_dir() and _NAME.fullmatch(path.name)}
    if group not in known and not new_group:
        remedy = (
            f"Give one of {', '.join(sorted(known))}; or add --new-group to make it, and images/{group}/ for its image"
        )
        raise InputError(Problem("group", group, "there is no such group", remedy))


def _trial(name: str, into: Path) -> str:
    """The command that runs the new method, with what makes it known where the folder is not."""
    from kfp_methods import components

    found = any(Path(place).resolve() == into.resolve() for place in components.__path__)
    path = "" if found else f"KFP_METHODS_PATH={shlex.quote(str(into.resolve()))} "
    return f"`{path}kfp-methods run {name}`"


@click.command("docs")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is not current.")
def docs(check: bool) -> None:
    """Regenerates the methods' READMEs and component.yaml files and the catalogue page."""
    from kfp_methods.docs import generated

    if not (REPOSITORY / "components").is_dir():
        remedy = "Work in a clone of the repository, installed with pip install -e ."
        raise InputError(Problem("docs", str(REPOSITORY), "has no components/ folder", remedy))
    stale = [(path, text) for path, text in generated(REPOSITORY) if _current(path) != text]
    for path, text in stale:
        click.echo(f"{'not current' if check else 'written'}: {path.relative_to(REPOSITORY)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    sys.exit(int(check and bool(stale)))


def _current(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _render(template: Path, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701 (code, not HTML)
    return environment.from_string(template.read_text(encoding="utf-8")).render(**values)


COMMANDS = {"new": new, "docs": docs}
