"""The only way of the command line's words to stdout and stderr: what they are about may come from anywhere.

Nothing but newlines steers a terminal, and no line is a command to a CI server. Where stdout cannot hold a character,
it is written out.
"""

from __future__ import annotations

import sys
from typing import TextIO

from torchstone.conformance.escape import log, visible


def say(text: object = "", *, to: TextIO | None = None) -> None:
    """Print lines for people, on stdout unless ``to`` is another stream."""
    print(log(str(text)), file=to or sys.stdout, flush=to is not None)


def warn(text: object) -> None:
    """Print lines for people on stderr."""
    say(text, to=sys.stderr)


def write(text: str, *, to: TextIO | None = None) -> None:
    """Write text that is fit for stdout already: JSON, CSV, commands to a CI server."""
    (to or sys.stdout).write(text)


def replace_line(line: str = "") -> None:
    """Put a line in place of the one that the cursor is in, on a terminal's stderr."""
    print(f"\r\033[K{visible(line)}", end="", file=sys.stderr, flush=True)


def escape_unencodable() -> None:
    """Let no character that stdout cannot hold end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
