"""Words for people: the one line that stands for a message, and sizes."""

from __future__ import annotations

from torchstone.conformance.escape import CUT, visible


def one_line(text: str, limit: int = 200) -> str:
    """Return the first line that says something, without control characters, cut to ``limit`` characters."""
    line = next((line for line in text[: 100 * limit].splitlines() if line.strip()), "").strip()
    line = visible(line)
    return line if len(line) <= limit else line[: limit - len(CUT)] + CUT


def format_bytes(count: int) -> str:
    """Bytes in words: ``300 MiB``, ``8.0 GiB``."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def over_limit(used: int, limit: int) -> str:
    """Say that so many bytes are over a limit."""
    return f"{format_bytes(used)} is over the limit of {format_bytes(limit)}"
