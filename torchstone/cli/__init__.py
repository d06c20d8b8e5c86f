"""The command line: one file a command, each loaded only when it is the one that was asked for.

Exit codes: 0 all is well; 1 the run found failures; 2 bad usage or bad input; 130 interrupted.
A command is a typer function that returns None or an exit code, or a group of such functions. It raises InputError for
what the user can put right, which is printed as one line.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from torchstone.cli.errors import report_error
from torchstone.cli.output import escape_unencodable, one_line_warnings, say

COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("run", "torchstone.cli.commands.run:run", "Run the conformance suite on one or more backends."),
    ("report", "torchstone.cli.commands.report:report", "Write the support report of a run: Markdown, JSON, HTML."),
    ("replay", "torchstone.cli.commands.replay:replay", "Try one case again, alone, and show the evidence."),
    ("fuzz", "torchstone.cli.commands.fuzz:fuzz", "Try random programs on a backend until the time is up."),
    ("reduce", "torchstone.cli.commands.reduce:reduce", "Shrink a failing case to a standalone script."),
    ("bisect", "torchstone.cli.commands.bisect:bisect", "Say which stage of a compiler a failing case comes from."),
    (
        "selftrial",
        "torchstone.cli.commands.selftrial:selftrial",
        "Try mutants of the built-in compiler; say which are found.",
    ),
    (
        "controls",
        "torchstone.cli.commands.controls:controls",
        "Try right backends that compute otherwise; say which are accused.",
    ),
    ("compile", "torchstone.cli.commands.compile:compile", "Compile a function and print the IR of any stage."),
    ("runs", "torchstone.cli.commands.runs:runs", "List, show, compare, export and prune the runs in a store."),
    ("expect", "torchstone.cli.commands.expect:expect", "Hold a run against what its backends are known to fail."),
    ("ops", "torchstone.cli.commands.ops:ops", "List the ops the suite knows, with their dtypes."),
    ("backends", "torchstone.cli.commands.backends:backends", "List the backends and whether each can be used here."),
    ("doctor", "torchstone.cli.commands.doctor:doctor", "Say what is installed, what is missing, and how to get it."),
)


def build(only: str | None = None) -> typer.Typer:
    """Return the application with every command listed and ``only`` loaded (all of them when None)."""
    app = typer.Typer(
        name="torchstone",
        help="Differential conformance and fuzz testing for PyTorch compilers.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # it takes "[default: all]" for markup and drops it
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, where, text in COMMANDS:
        command = _load(where) if only in (None, name) else _stub
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=text)
        else:
            app.command(name, help=text)(command)
    return app


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(invoke(list(sys.argv[1:] if argv is None else argv)))


def invoke(args: list[str]) -> int:
    """Run one command and return its exit code; every error is printed as a line on stderr."""
    escape_unencodable()
    try:
        name = next((arg for arg in args if not arg.startswith("-")), "")
        if name and name not in (known := [row[0] for row in COMMANDS]):
            from torchstone.conformance.errors import UnknownName

            raise UnknownName("command", name, known)
        with one_line_warnings():
            code = build(name)(args, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # `torchstone ops | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return report_error(error)


def _load(where: str) -> Callable[..., Any] | typer.Typer:
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _stub() -> None:
    """Stand in for a command that is only listed."""


def _version(wanted: bool) -> None:
    if wanted:
        import torchstone

        say(f"torchstone {torchstone.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
