"""The command `kfp-methods`: one module for each group of subcommands, imported when it is called."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from kfp_methods import standby
from kfp_methods.cli.document import document
from kfp_methods.cli.places import refusal
from kfp_methods.errors import ExitCode, InputError, Problem

_COMMANDS = {
    "list": "inspect", "show": "inspect", "doctor": "inspect", "ui": "inspect",
    "run": "run", "check": "run",
    "compile": "kubeflow", "build": "kubeflow",
    "submit": "cluster", "schedule": "cluster", "schedules": "cluster", "unschedule": "cluster",
    "runs": "cluster", "status": "cluster",
    "new": "author", "docs": "author",
}  # fmt: skip


class _ReaderGoneError(Exception):
    """Whoever read what is printed has gone, as in `kfp-methods list | head`."""


class _Lazy(click.Group):
    """Imports a subcommand's module when it is asked for, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"kfp_methods.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = module.COMMANDS[cmd_name]
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would end with 1, which is a fault of ours
            raise _ReaderGoneError from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, _SUMMARIES[name]) for name in _COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


_SUMMARIES = {
    "list": "The methods, by group.",
    "show": "A method's inputs, outputs, claims and paper.",
    "doctor": "What of Docker, GPU, MLflow and Kubeflow can be reached, and what to do about the rest.",
    "ui": "Opens MLflow on the local runs.",
    "run": "Runs a method on this machine.",
    "check": "Validates a method's inputs, data included, without running it.",
    "compile": "Writes a method's pipeline for Kubeflow.",
    "build": "Builds a group's container image.",
    "submit": "Starts a run on a Kubeflow server.",
    "schedule": "Starts runs on a Kubeflow server at the times of a cron expression.",
    "schedules": "The schedules on a Kubeflow server.",
    "unschedule": "Deletes a schedule.",
    "runs": "The latest runs on a Kubeflow server.",
    "status": "The state of a run and its tasks.",
    "new": "Makes the folder of a new method.",
    "docs": "Regenerates READMEs, component.yaml files and the catalogue page.",
}


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="kfp-methods", prog_name="kfp-methods")
def cli() -> None:
    """Machine-learning methods of ICML 2026 on your data: on this machine, or on Kubeflow."""


def main() -> None:
    """Runs the command line; inputs that cannot be used end it with exit code 2 and one line for each.

    Ctrl-C ends it with 130, as shells have it. With `--json`, standard output is one JSON document however it ends.
    """
    _escape_what_the_terminal_cannot_show()
    try:
        _run_command()
    except (BrokenPipeError, _ReaderGoneError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _run_command() -> NoReturn:
    try:
        ahead = standby.ahead_of(sys.argv[1:])
        with ahead or contextlib.nullcontext():
            code = cli(standalone_mode=False, obj=ahead)
    except InputError as error:
        _refuse(error)
    except click.ClickException as error:
        error.show()
        _end(ExitCode.BAD_INPUT, error.format_message(), [_usage_problem(error)])
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        _end(128 + signal.SIGINT, "interrupted")
    except (BrokenPipeError, _ReaderGoneError):
        raise
    except OSError as error:
        refused = refusal(error)
        if isinstance(refused, InputError):
            _refuse(refused)
        _fault()
    except Exception:
        _fault()
    sys.exit(code if isinstance(code, int) else 0)


def _escape_what_the_terminal_cannot_show() -> None:
    """Characters outside the terminal's encoding are printed as escapes instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _refuse(error: InputError) -> NoReturn:
    click.echo(str(error), err=True)
    _end(ExitCode.BAD_INPUT, str(error), error.problems)


def _fault() -> NoReturn:
    traceback.print_exc()
    _end(ExitCode.FAULT, traceback.format_exc())


def _usage_problem(error: click.ClickException) -> Problem:
    parameter = getattr(error, "param", None)
    field = getattr(parameter, "name", None) or getattr(error, "option_name", None) or "command"
    return Problem(field, None, error.format_message(), "See --help")


def _end(code: int, error: str, problems: Sequence[Problem] = ()) -> NoReturn:
    if "--json" in sys.argv:
        method = next((word for word in sys.argv[2:3] if word.isidentifier()), "")
        with contextlib.suppress(OSError):  # it may be standard output that cannot be written to
            click.echo(document(code, error, problems, method=method))
    sys.exit(code)
