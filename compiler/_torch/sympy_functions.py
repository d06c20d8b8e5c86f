"""The functions of sizes that PyTorch adds to sympy."""

from __future__ import annotations

from typing import Any

from torchstone.compiler._torch.names import Names

_USED = ("CleanDiv", "FloorDiv", "FloorToInt", "Max", "Min", "Mod", "PythonMod", "ToFloat", "TruncToInt")
_NAMES = Names(
    __name__,
    {name: (f"torch.utils._sympy.functions.{name}", "read the expression of a size") for name in _USED},
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)
