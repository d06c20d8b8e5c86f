"""Time budgets as people write them: 90, 60s, 10m, 1h30m."""

from __future__ import annotations

import re

from torchstone.conformance.errors import InputError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([hms])")


def parse_duration(text: str) -> float:
    """Return the seconds a text like ``90``, ``60s``, ``10m`` or ``1h30m`` stands for. Raises InputError."""
    wanted = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", wanted):
        total = float(wanted)
    elif re.fullmatch(rf"(?:{_PART.pattern})+", wanted):
        total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(wanted))
    else:
        raise InputError(f'bad time "{text}": give a number and a unit, like 60s, 10m or 1h30m')
    if not total > 0:
        raise InputError(f'bad time "{text}": it must be more than zero')
    return total
