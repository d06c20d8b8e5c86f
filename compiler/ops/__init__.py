"""FlatIR: the primitives every target lowers, each with its shape and dtype function and its eager evaluator.

The rows import without torch; only running an evaluator needs it.
"""

from torchstone.compiler.ops import composite, control, elementwise, indexing, movement, ordering, reduction
from torchstone.compiler.ops.primitive import Primitive, PrimitiveRegistry

PRIMITIVES = PrimitiveRegistry()
PRIMITIVES.add(*elementwise.ROWS, *movement.ROWS, *reduction.ROWS, *indexing.ROWS, *ordering.ROWS)
PRIMITIVES.add(*composite.ROWS, *control.ROWS)

__all__ = ["PRIMITIVES", "Primitive"]
