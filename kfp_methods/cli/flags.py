"""Command-line flags from a method's contract: help texts, defaults and choices come from the pydantic fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from kfp_methods import catalogue
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.contract import Inputs, Method
    from kfp_methods.fields import InputKind

Work = Callable[["Method[Any, Any, Any]", "Inputs", dict[str, Any]], None]

RUNS_FOLDER = Path("kfp-methods-runs")
FILE_OPTION = click.Option(
    ["-f", "--file", "inputs_file"],
    type=click.Path(path_type=Path),
    help="YAML file with inputs; flags win over it.",
)
REPLICATES_OPTION = click.Option(
    ["--replicates"],
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Whole runs, at seeds seed, seed+1, …; on a cluster each its own pod. Their claims are pooled.",
)


def seeds(first: int, replicates: int) -> list[int]:
    """The replicates' seeds. Raises InputError when they run out of the range that `seed` has."""
    last = first + replicates - 1
    if last >= 2**31:
        problem = f"{replicates} replicates would need seeds up to {last}"
        raise InputError(Problem("seed", first, problem, f"Give at most {2**31 - replicates}"))
    return list(range(first, last + 1))


class MethodGroup(click.Group):
    """A command that takes a method's name and then that method's own flags."""

    def __init__(self, name: str, work: Work, extra: list[click.Parameter], help: str) -> None:
        super().__init__(name, help=help, subcommand_metavar="METHOD [FLAGS]...")
        self.work, self.extra = work, extra

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in catalogue.entries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        method = catalogue.load(cmd_name)
        flags = [option(kind) for kind in method.inputs.kinds().values() if not kind.is_list_of_artifacts]
        title = catalogue.entry(cmd_name)

        def callback(**given: Any) -> None:
            own = {parameter.name for parameter in self.extra}
            settings = {key: value for key, value in given.items() if key in own}
            flagged = {key: value for key, value in given.items() if key not in own and value is not None}
            inputs = parse(method, flagged, settings.get("inputs_file"))
            self.work(method, inputs, settings)

        help_text = f"{title.title}: {title.summary}"
        return click.Command(cmd_name, params=[*self.extra, *flags], callback=callback, help=help_text)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Methods (METHOD --help shows its flags)"):
            formatter.write_dl([(entry.name, entry.title) for entry in catalogue.entries()])


def option(kind: InputKind) -> click.Option:
    """The flag of one input field; its value is checked by the contract, not by click."""
    default = "the preset's" if kind.presets else "the embedded sample" if kind.is_artifact else kind.default
    shown = default if default not in ("", None) else "none"
    return click.Option(
        [f"--{kind.parameter_name.replace('_', '-')}", kind.parameter_name],
        metavar="|".join(map(str, kind.choices)) or ("FILE or URI" if kind.is_artifact else kind.kfp_type.upper()),
        help=f"{kind.description}  [default: {shown}]",
    )


def parse(method: Method[Any, Any, Any], flags: Mapping[str, str], inputs_file: Path | None) -> Inputs:
    """Validated inputs from flags and, below them in rank, a YAML file. Raises InputError."""
    kinds = {kind.parameter_name: kind for kind in method.inputs.kinds().values()}
    read = {name: value_of(kinds[name], text) for name, text in flags.items()}
    inputs: Inputs = method.inputs.parse({**_read_file(inputs_file), **read})
    return inputs


def value_of(kind: InputKind, text: str) -> Any:
    """A list or mapping as JSON, YAML or comma-separated; everything else stays the text that pydantic converts."""
    if kind.is_artifact or kind.kfp_type not in ("list", "dict"):
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if kind.kfp_type == "list" and not isinstance(value, list):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    return value


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    remedy = "Give a YAML file with one line `name: value` for each input"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(Problem("inputs_file", str(path), f"cannot be read ({_first_line(error)})", remedy)) from None
    if not isinstance(content, dict):
        raise InputError(Problem("inputs_file", str(path), "is not a mapping of names to values", remedy))
    return {str(name): value for name, value in content.items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
