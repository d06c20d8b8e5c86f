"""The only way of the command line's words to stdout and stderr: what they are about may come from anywhere.

Nothing but newlines steers a terminal, and no line is a command to a CI server. Where stdout cannot hold a character,
it is written out.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from torchstone.conformance.escape import log, visible


def say(text: object = "", *, to: TextIO | None = None) -> None:
    """Print lines for people, on stdout unless ``to`` is another stream."""
    print(log(str(text)), file=to or sys.stdout, flush=to is not None)


def warn(text: object) -> None:
    """Print lines for people on stderr."""
    say(text, to=sys.stderr)


def put(text: str, *, to: TextIO | None = None) -> None:
    """Write text that is fit for stdout already: JSON, CSV, commands to a CI server."""
    (to or sys.stdout).write(text)


def live(line: str = "") -> None:
    """Put a line in place of the one that the cursor is in, on a terminal's stderr."""
    print(f"\r\033[K{visible(line)}", end="", file=sys.stderr, flush=True)


def writable() -> None:
    """Let no character that stdout cannot hold end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def plugin_warnings() -> Iterator[None]:
    """Print what is wrong with a plugin as one line on stderr, without the line of our code that found out."""
    usual = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        from torchstone.compiler.registry import PluginWarning

        if issubclass(category, PluginWarning):
            warn(f"warning: {message}")
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
