"""From an exception to one line on stderr and an exit code."""

from __future__ import annotations

import os
import traceback

import typer

from torchstone.cli.output import warn
from torchstone.conformance.escape import visible

OK, FAILURES, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def report_error(error: BaseException) -> int:
    """Print ``error: …`` for an error made for the user, a traceback for a bug of ours; return the exit code."""
    from torchstone.compiler.diagnostics import TorchstoneError
    from torchstone.conformance.errors import HarnessError, InputError

    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        warn("interrupted")
        return INTERRUPTED
    if isinstance(error, typer.Exit):
        return INTERRUPTED if error.exit_code == INTERRUPTED else error.exit_code
    if hasattr(error, "format_message"):  # a usage error of typer: unknown option, missing argument
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            return BAD_INPUT
        where = f"; see `{context.command_path} --help`" if context is not None else ""
        return _line(f"{error.format_message().rstrip('.')}{where}", BAD_INPUT)  # type: ignore[attr-defined]
    if isinstance(error, InputError):
        return _line(visible(str(error)), BAD_INPUT)
    if isinstance(error, (HarnessError, TorchstoneError)):
        return _line(str(error), FAILURES)
    if os.environ.get("TORCHSTONE_DEBUG"):
        warn(_traceback(error))
    elif isinstance(error, OSError):
        return _line(f"{error.filename or 'input/output'}: {error.strerror or error}", BAD_INPUT)
    else:
        warn(_traceback(error))
        warn("this is a bug in torchstone; please report it with the lines above")
    return FAILURES


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _line(message: str, code: int) -> int:
    warn(f"error: {message}")
    return code
