"""Faults of the oracle's own code, which must not pass for what eager makes of an input.

A run of the float64 twin may fail: eager has no kernel for float64, or refuses what rounding has moved. Then there is
no such run, and others decide. An error in the code of a model of rounding or overflow looks the same from outside;
taken for a refusal it would switch the model off, and nobody would see it.
"""

from __future__ import annotations

import traceback
from pathlib import Path

_ORACLE = Path(__file__).parent
_PROGRAMMING_ERRORS = (AssertionError, AttributeError, KeyError, NameError, TypeError)
_CALLS_EAGER = "perform"
"""The name of the functions here that make the calls of a program: what is raised there is eager's."""


def raise_own_fault(error: Exception) -> None:
    """Raise ``error`` again if it is one of a programmer, raised by the oracle's code and not by an op of eager's."""
    if not isinstance(error, _PROGRAMMING_ERRORS):
        return
    last = traceback.extract_tb(error.__traceback__)[-1]
    if last.name != _CALLS_EAGER and _ORACLE in Path(last.filename).parents:
        raise error
