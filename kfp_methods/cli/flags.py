"""Command-line flags from a method's contract: help texts, defaults and choices come from the pydantic fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_methods import catalogue
from kfp_methods.cli import yaml_values
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.contract import Inputs, Method
    from kfp_methods.fields import InputKind

Work = Callable[["Method[Any, Any, Any]", "Inputs", dict[str, Any]], None]

RUNS_FOLDER = Path("kfp-methods-runs")
FILE_OPTION = click.Option(
    ["-f", "--file", "inputs_file"],
    type=click.Path(path_type=Path),
    help="YAML file with inputs, one line `name: value` each; flags win over it.",
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
        title = catalogue.entry(cmd_name)

        def callback(**given: Any) -> None:
            own = {parameter.name for parameter in self.extra}
            settings = {key: value for key, value in given.items() if key in own}
            flagged = {key: _once(key, values) for key, values in given.items() if key not in own and values}
            inputs = parse(method, flagged, settings.get("inputs_file"))
            self.work(method, inputs, settings)

        help_text = f"{title.title}: {title.summary}"
        return MethodCommand(cmd_name, method, self.extra, callback, f"Options of `{self.name}`", help_text)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Methods (METHOD --help shows its flags)"):
            formatter.write_dl([(entry.name, entry.title) for entry in catalogue.entries()])


class MethodCommand(click.Command):
    """A method's own flags, then those that every method has, then those of the command, under a title each."""

    def __init__(
        self,
        name: str,
        method: Method[Any, Any, Any],
        extra: list[click.Parameter],
        callback: Callable[..., None],
        extra_title: str,
        help: str,
    ) -> None:
        from kfp_methods.contract import ModelInputs

        kinds = [kind for kind in method.inputs.kinds().values() if not kind.is_list_of_artifacts]
        files = sum(kind.is_artifact for kind in kinds)
        own = [option(kind, files) for kind in kinds if kind.name not in ModelInputs.model_fields]
        shared = [option(kind) for kind in kinds if kind.name in ModelInputs.model_fields]
        super().__init__(name, params=[*own, *shared, *extra], callback=callback, help=help)
        self.sections: dict[str, Sequence[click.Parameter]] = {
            "Inputs of this method": own,
            "Inputs that methods share": shared,
            extra_title: extra,
        }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_option = self.get_help_option(ctx)
        for title, parameters in self.sections.items():
            shown = [*parameters]
            if help_option and title == list(self.sections)[-1]:
                shown.append(help_option)
            records = [record for each in shown if (record := each.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def option(kind: InputKind, files: int = 1) -> click.Option:
    """The flag of one input field; its value is checked by the contract, not by click.

    files: how many of the method's inputs are files.
    """
    flag = f"--{kind.parameter_name.replace('_', '-')}"
    syntax = f"  {_syntax(flag, kind)}" if kind.kfp_type in ("list", "dict") and not kind.is_artifact else ""
    return click.Option(
        [flag, kind.parameter_name],
        multiple=True,  # so that a flag that is there twice is seen
        metavar="|".join(map(str, kind.choices)) or ("FILE or URI" if kind.is_artifact else kind.kfp_type.upper()),
        help=f"{kind.description}{syntax}  [default: {_default(kind, files)}]",
    )


def was_given(name: str) -> bool:
    """Whether an option of the running command was on its command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def parse(method: Method[Any, Any, Any], flags: Mapping[str, str], inputs_file: Path | None) -> Inputs:
    """Validated inputs from flags and, below them in rank, a YAML file. Raises InputError."""
    kinds = {kind.parameter_name: kind for kind in method.inputs.kinds().values()}
    read = {} if inputs_file is None else yaml_values.read_inputs(inputs_file)
    values = {
        name: value_of(kinds[name], value) if name in kinds and isinstance(value, str) else value
        for name, value in {**read, **flags}.items()
    }
    inputs: Inputs = method.inputs.parse(values)
    return inputs


def value_of(kind: InputKind, text: str) -> Any:
    """A list or mapping as JSON, YAML or comma-separated; everything else stays the text that pydantic converts."""
    if kind.is_artifact or kind.kfp_type not in ("list", "dict"):
        return text
    try:
        value = yaml_values.load(text)
    except ValueError:
        return text
    if kind.kfp_type == "list" and not isinstance(value, list):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    return value


def _once(name: str, values: tuple[str, ...]) -> str:
    if len(values) > 1:
        remedy = "Give it once; the entries of a list are separated by commas"
        raise InputError(Problem(name, ", ".join(values), f"is given {len(values)} times", remedy))
    return values[0]


def _default(kind: InputKind, files: int) -> str:
    if kind.presets:
        return "the preset's"
    if kind.is_artifact:
        return "the embedded sample" if files == 1 else "none; without any file the embedded sample is used"
    return _written(kind.default) or "none"


def _written(value: Any) -> str:
    """A default as it would be typed; "" for one that is empty."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list) and not any(isinstance(entry, list | dict) for entry in value):
        return ",".join(_written(entry) for entry in value)
    return value if isinstance(value, str) else json.dumps(value)


def _syntax(flag: str, kind: InputKind) -> str:
    """How a list or mapping is typed, shown with the field's own values where it has some."""
    if kind.kfp_type == "dict":
        return f'A mapping as JSON, such as {flag} \'{{"name": "value"}}\'.'
    known = next((value for value in (kind.default, *kind.presets.values()) if value and len(value) > 1), None)
    if known and isinstance(known[0], list | dict):
        return f"A list as JSON, such as {flag} '{json.dumps(known[:2])}'."
    return f"Commas between the entries, as in {flag} {_written(known[:2]) if known else 'A,B'}."
