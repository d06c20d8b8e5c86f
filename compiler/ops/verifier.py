"""The IR's own rules: definitions before uses, one for each value, and the types the shape functions give."""

from __future__ import annotations

from torchstone.compiler.diagnostics import VerifyError, describe
from torchstone.compiler.ir.dtypes import int64
from torchstone.compiler.ir.graph import Graph, Operation, Value, values_in
from torchstone.compiler.ir.sizes import BIND
from torchstone.compiler.ir.types import PrimType, TensorType
from torchstone.compiler.ops import PRIMITIVES


def verify_graph(graph: Graph) -> None:
    """Raise VerifyError, naming the op and the rule, unless the graph is well formed.

    ``flat.*`` ops are recomputed: their result types must be what the primitive's shape function says.
    """
    known: set[int] = set()

    def define(value: Value, op: Operation | None = None) -> None:
        if id(value) in known:
            raise VerifyError(f"{value} is defined twice", where=describe(op) if op else "in the arguments")
        known.add(id(value))

    for arg in graph.args:
        define(arg)
    for op in graph.ops:
        for value in op.values:
            if id(value) not in known:
                raise VerifyError(f"{value} is used before it is defined", op=op.name, where=describe(op))
        if op.name.startswith("flat."):
            row = PRIMITIVES[op.name]
            if row.arity is not None and len(op.operands) != row.arity:
                raise VerifyError(
                    f"{op.name} takes {row.arity} operands, got {len(op.operands)}", op=op.name, where=describe(op)
                )
            if op.attributes.keys() != set(row.attributes):
                raise VerifyError(
                    f"{op.name} has attributes {sorted(op.attributes)}, wants {sorted(row.attributes)}",
                    op=op.name,
                    where=describe(op),
                )
            types = [kind for o in op.operands if (kind := _tensor_type(o, op)) is not None]
            if len(types) != len(op.operands):
                raise VerifyError(f"{op.name} takes tensors only", op=op.name, where=describe(op))
            try:
                expected = row.infer(*types, **op.attributes)
            except VerifyError as error:
                raise VerifyError(error.message, op=op.name, where=describe(op)) from None
            got = tuple(r.type for r in op.results)
            if got != expected:
                raise VerifyError(
                    f"{op.name} gives {', '.join(map(str, expected))}, the graph says {', '.join(map(str, got))}",
                    op=op.name, where=describe(op),
                )  # fmt: skip
        for nested in op.graphs.values():
            verify_graph(nested)
        for result in op.results:
            define(result, op)
    for value in values_in(graph.outputs):
        if id(value) not in known:
            raise VerifyError(f"output {value} is not defined", where="in the return")


def _tensor_type(operand: object, op: Operation) -> TensorType | None:
    """Return the type of a tensor operand. ``flat.bind`` takes an int as it takes a 0-d tensor of one."""
    kind = operand.type if isinstance(operand, Value) else None
    if op.name == BIND and kind == PrimType("int"):
        return TensorType((), int64)
    return kind if isinstance(kind, TensorType) else None
