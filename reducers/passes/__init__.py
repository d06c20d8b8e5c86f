"""The passes for cases, in the order they run: the ones that remove most come first, those of plugins last."""

from __future__ import annotations

from collections.abc import Callable

from torchstone.compiler.registry import Registry
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.case import Case
from torchstone.reducers.problem import Pass, Rewrite

_HERE = "torchstone.reducers.passes"
PASSES: Registry[Callable[[Case], Rewrite[Case]]] = Registry(
    "reducer pass",
    "torchstone.reducer_passes",
    ("__call__",),
    {
        "simplify-variant": f"{_HERE}.simplify_variant:simplify_variant",
        "drop-outputs": f"{_HERE}.drop_outputs:drop_outputs",
        "cut-to-inputs": f"{_HERE}.cut_to_inputs:cut_to_inputs",
        "bypass-calls": f"{_HERE}.bypass_calls:bypass_calls",
        "simplify-bodies": f"{_HERE}.simplify_bodies:simplify_bodies",
        "shrink-dims": f"{_HERE}.shrink_dims:shrink_dims",
        "simplify-layouts": f"{_HERE}.simplify_layouts:simplify_layouts",
        "drop-dims": f"{_HERE}.drop_dims:drop_dims",
        "merge-inputs": f"{_HERE}.merge_inputs:merge_inputs",
        "simplify-literals": f"{_HERE}.simplify_literals:simplify_literals",
        "simplify-dtypes": f"{_HERE}.simplify_dtypes:simplify_dtypes",
        "simplify-values": f"{_HERE}.simplify_values:simplify_values",
    },
    unknown=UnknownName,
    broken=InputError,
)


PARTS = ("drop-outputs", "cut-to-inputs")
"""The passes that leave some of the calls that a program had, given tensors of the same dtypes and sizes."""


def passes() -> tuple[Pass[Case], ...]:
    """Return every pass that can be loaded; a plugin that cannot is left out with a ``PluginWarning``."""
    return tuple(Pass(name, PASSES.load(name)) for name in PASSES.usable())
