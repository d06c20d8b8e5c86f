"""FlatIR -> FlatIR, for primitives a target does not have. One rule serves every target that lacks the op."""

from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.transforms.legalizations import (
    arithmetic,
    bits,
    casts,
    compare,
    double,
    exponential,
    hyperbolic,
    indexing,
    movement,
    ordering,
    reductions,
    trigonometric,
)
from torchstone.compiler.transforms.legalizations.common import legalization, only_wider
from torchstone.compiler.transforms.rules import legalizes as LEGALIZATIONS

FAMILIES = (
    arithmetic, bits, casts, compare, exponential, double, hyperbolic, indexing, movement, ordering, reductions,
    trigonometric,
)  # fmt: skip

for _name, _row in PRIMITIVES.items():
    basic = _row.elementwise and _row.arity and not _row.composite
    if basic and _name not in (*LEGALIZATIONS, "flat.select", "flat.bitcast"):
        legalization(_row.name)(only_wider)

__all__ = ["FAMILIES", "LEGALIZATIONS"]
