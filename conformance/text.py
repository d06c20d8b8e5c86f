"""Text that came from a compiler or a file, made fit for a line, a terminal, or a spreadsheet; and sizes in words."""

from __future__ import annotations

import unicodedata

CUT = "…"


def one_line(text: str, limit: int = 200) -> str:
    """Return the first line that says something, without control characters, cut to ``limit`` characters."""
    line = next((line for line in text[: 100 * limit].splitlines() if line.strip()), "").strip()
    line = visible(line)
    return line if len(line) <= limit else line[: limit - len(CUT)] + CUT


def visible(text: str) -> str:
    """Return the text on one line, its control characters shown as pictures (␛) or �, so that it can steer nothing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 32 else "\u2421" if code == 127 else "\ufffd"


def spreadsheet_safe(text: str) -> str:
    """Return a CSV cell that no spreadsheet takes for a formula: an apostrophe goes before what would start one."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def size(count: int) -> str:
    """Bytes in words: ``300 MiB``, ``8.0 GiB``."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def over(used: int, limit: int) -> str:
    """Say that so many bytes are over a limit."""
    return f"{size(used)} is over the limit of {size(limit)}"
