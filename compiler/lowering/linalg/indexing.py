"""``scatter``: updates at computed places, one after the other (a gather is computed where it is read)."""

from __future__ import annotations

from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Operation, Value
from torchstone.compiler.lowering.linalg import elementwise
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.lowering.linalg.emitter import LinalgEmitter
from torchstone.compiler.lowering.linalg.nest import LoopNest, SequentialLoops
from torchstone.compiler.lowering.linalg.views import loops


def _writable(e: LinalgEmitter, x: Value) -> Any:
    """Return a tensor of these elements; an argument is copied to where the result will be.

    (Other copies bufferization makes where it must, but into a buffer of its own.)
    """
    tensor = e.tensor(x)
    if all(x is not a for a in e.graph.args):
        return tensor
    nest = LoopNest(e, x.shape)
    nest.extra([tensor])
    return nest.build([(e.empty(x.shape, tensor.type.element_type), loops(x.rank))], lambda _: nest.extras)[0]


def scatter(e: LinalgEmitter, op: Operation) -> list[Any]:
    """Loop over the places, skip those out of range, and in each over the dims that no index is for."""
    arith = mlir.arith
    x, updates, *places = op.values
    dims, kind, dtype = op.attributes["dims"], op.attributes["kind"], x.dtype
    rank = places[0].rank
    steps = SequentialLoops(e)
    for value in (updates, *places):
        steps.read(value, loops(value.rank))
    start, sizes = _writable(e, x), [e.size(d) for d in x.shape]
    free = [d for d in range(x.rank) if d not in dims]
    e.count(updates.shape)

    def visit(target: list[Any]) -> list[Any]:
        at: list[Any] = [None] * x.rank
        inside = s.constant(s.integer(1), True)
        for d, place in zip(dims, places, strict=True):
            at[d] = arith.index_cast(s.index(), steps.scalar(place, loops(rank)))
            # Unsigned: a negative index is above every size.
            inside = arith.andi(inside, s.compare_int("ult", at[d], sizes[d]))

        def update(target: list[Any]) -> list[Any]:
            for number, d in enumerate(free, rank):
                at[d] = steps.loop(number)
            new = steps.scalar(updates, loops(updates.rank))
            if kind != "set":
                old = s.load(dtype, mlir.tensor.ExtractOp(target[0], at).result)
                new = elementwise.apply(kind, (old, new), (dtype, dtype), dtype, e.library)
            return [mlir.tensor.InsertOp(s.store(dtype, new), target[0], at).result]

        branch = mlir.scf.IfOp(inside, [target[0].type], has_else=True)
        with mlir.ir.InsertionPoint(branch.then_block):
            mlir.scf.YieldOp(steps.build([sizes[d] for d in free], target, update))
        with mlir.ir.InsertionPoint(branch.else_block):
            mlir.scf.YieldOp(target)
        return list(branch.results)

    return steps.build([e.size(d) for d in places[0].shape], [start], visit)
