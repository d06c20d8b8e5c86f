"""Which values get a buffer, and which are computed inside the loops that use them.

An elementwise value is computed where it is used, unless that repeats work: two loop nests use it, or it would be
computed again for every element that a broadcast or a contraction makes of it. Constants, casts and views are free. One
step from what is stored costs less than storing its result, however many nests use it.
"""

from __future__ import annotations

from torchstone.compiler.ir import Graph, Operation, Value
from torchstone.compiler.ir.graph import values_in
from torchstone.compiler.lowering.linalg.views import is_view, repeats
from torchstone.compiler.ops import PRIMITIVES

# What costs less to compute again than to store and read, if its operands are there.
_STEPS = frozenset({"flat.add", "flat.sub", "flat.mul"})
_ELEMENTWISE = frozenset(name for name, row in PRIMITIVES.items() if row.elementwise)
_FUSED = _ELEMENTWISE | {"flat.iota", "flat.gather"}
_WORKS = _ELEMENTWISE - {"flat.cast"} | {"flat.gather"}
# Building a loop body recurses through the ops computed in it.
DEEPEST = 64


def is_fused(op: Operation) -> bool:
    """Say whether the op is part of a loop body, not a loop nest of its own."""
    return op.name in _FUSED or is_scalar_constant(op) or is_view(op)


def is_scalar_constant(op: Operation) -> bool:
    return op.name == "flat.constant" and not isinstance(op.attributes["value"], tuple)


def _is_step(op: Operation) -> bool:
    """Say whether the op is an instruction: 16-bit floats are rounded after each, complex numbers take several."""
    return op.name in _STEPS and op.result.dtype.bits >= 32 and not op.result.dtype.is_complex


def buffered(graph: Graph) -> set[int]:
    """Return the ids of the values that are stored: every result of a structured op, and those named above."""
    heavy: set[int] = set()
    light: set[int] = set()
    depth: dict[int, int] = {}
    stored = {id(v) for v in values_in(graph.outputs)}
    fused = {id(op) for op in graph.ops if is_fused(op)}
    for op in graph.ops:
        if id(op) not in fused:
            stored.update(id(r) for r in op.results)
            continue
        level = 1 + max((depth.get(id(v), 0) for v in op.values), default=0)
        depth[id(op.result)] = level % DEEPEST
        if level == DEEPEST:
            stored.add(id(op.result))
        elif op.name in _WORKS or (not repeats(op) and any(id(v) in heavy for v in op.values)):
            if _is_step(op) and not any(id(v) in heavy for v in op.values):
                light.add(id(op.result))
            heavy.add(id(op.result))
    nests: dict[int, set[int]] = {}
    for op in reversed(graph.ops):
        for result in op.results:
            if id(result) in heavy and id(result) not in light and len(nests.get(id(result), ())) > 1:
                stored.add(id(result))
        for position, value in enumerate(op.values):
            if op.name in ("flat.gather", "flat.scatter") and position == 0:
                stored.add(id(value))  # read at computed places
                continue
            _use(op, value, id(op) in fused, value_is_heavy=id(value) in heavy, nests=nests, stored=stored)
    return stored


def _use(
    op: Operation, value: Value, fused: bool, *, value_is_heavy: bool, nests: dict[int, set[int]], stored: set[int]
) -> None:
    """Note in which loop nests this use has ``value`` computed."""
    mine = nests.setdefault(id(value), set())
    if fused:
        if value_is_heavy and repeats(op):
            stored.add(id(value))
        result = id(op.result)
        mine |= {result} if result in stored else nests.get(result, set())
    elif op.name in ("flat.reduce", "flat.arg_reduce", "flat.scatter", "flat.scan") or (
        op.name == "flat.contract" and not value_is_heavy
    ):
        mine.add(id(op.result))
    else:
        stored.add(id(value))
