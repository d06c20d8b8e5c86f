"""The message of a failure without its particulars: the same bug says the same thing of other programs."""

from __future__ import annotations

import re

# What differs between two runs into the same bug: the rewrite that shows it, addresses, paths, shapes, dtypes, names,
# numbers.
_PARTICULARS = (
    (re.compile(r"^rewritten \([^)]*\): "), ""),
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDR"),
    (re.compile(r"(?:/[\w.+-]+)+/?"), "PATH"),
    (re.compile(r"\b(?:tensor|memref|vector)<[^>]*>"), "TYPE"),
    (re.compile(r"[\[(][\d?,\s-]*[\])]"), "SHAPE"),
    (re.compile(r"%[\w#]+|\b(?:x|v|s|arg)\d+\b"), "NAME"),
    (re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)
LENGTH = 160

PASSED_BEFORE = "\na program with these calls passed in an earlier campaign"
"""What is added to the message of a refusal that is a failure. The backend does not say it."""


def normalize(message: str) -> str:
    """Return a message's first line without addresses, paths, shapes, names of values and numbers."""
    lines = [line for line in message.strip().splitlines() if line.strip()]
    text = lines[0] if lines else ""
    for pattern, name in _PARTICULARS:
        text = pattern.sub(name, text)
    return text.strip()[:LENGTH]
