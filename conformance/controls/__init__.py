"""Controls: backends that are right but compute otherwise than eager, which the harness must never accuse.

    torchstone run --backend torchstone.conformance.controls:compensated_sums --op sum

Each is a row of a table: its name, which documented rule makes it right, and the kernels that it has in place of
eager's, or another way to run the whole program.
"""

from __future__ import annotations

from torchstone.conformance.controls import (
    ambiguity,
    decomposed,
    functions,
    fused,
    libraries,
    linear_algebra,
    matrices,
    precision,
    programs,
    statistics,
    summation,
)
from torchstone.conformance.controls.control import Control
from torchstone.conformance.errors import UnknownName

CONTROLS: dict[str, Control] = {}
for _family in (
    summation,
    fused,
    precision,
    functions,
    libraries,
    statistics,
    matrices,
    linear_algebra,
    ambiguity,
    decomposed,
    programs,
):
    for _control in _family.CONTROLS:
        if _control.name in CONTROLS:
            raise ValueError(f"there are two controls called {_control.name}")
        CONTROLS[_control.name] = _control

BACKEND_PREFIX = f"{__name__}:"
"""Before a control's name, what a backend is loaded by."""


def __getattr__(name: str) -> Control:
    """Let each control be named as a backend, ``torchstone.conformance.controls:NAME``."""
    if name not in CONTROLS:
        raise AttributeError(str(UnknownName("control", name, CONTROLS)))
    return CONTROLS[name]


__all__ = ["BACKEND_PREFIX", "CONTROLS", "Control"]
