"""`kfp-methods new` and `docs`: for people who write methods."""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path
from typing import Any

import click

from kfp_methods import catalogue
from kfp_methods.errors import InputError, Problem

REPOSITORY = Path(__file__).resolve().parents[2]
_TEMPLATES = Path(__file__).resolve().parent / "templates"


@click.command("new")
@click.argument("name")
@click.option("--group", required=True, help="Image group: tabular, language, control or science.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=REPOSITORY / "components",
    help="Folder that holds the groups.  [default: components/]",
)
def new(name: str, group: str, into: Path) -> None:
    """Makes the folder of a new method NAME."""  # fmt: skip
    for field, value in (("NAME", name), ("group", group)):
        if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", value):
            raise InputError(Problem(field, value, "is not a lower-case Python name", "Give one such as my_method"))
    folder = into / group / name
    if folder.exists() or any(entry.name == name for entry in catalogue.entries()):
        raise InputError(Problem("NAME", name, "is taken", "Choose another name"))
    folder.mkdir(parents=True)
    classes = "".join(part.title() for part in name.split("_"))
    for template in sorted(_TEMPLATES.glob("*.j2")):
        text = _render(template, name=name, group=group, classes=classes, today=datetime.date.today().isoformat())
        (folder / template.stem).write_text(text, encoding="utf-8")
    click.echo(f"{folder}: now write what `grep -n WRITE {folder}/*` shows, then `kfp-methods run {name}`")


@click.command("docs")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is not current.")
def docs(check: bool) -> None:
    """Regenerates the methods' READMEs and component.yaml files and the catalogue page."""
    from kfp_methods.docs import generated

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
