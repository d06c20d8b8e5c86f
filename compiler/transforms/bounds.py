"""The pass ``require_bounds``: what primitives take for granted about run-time sizes is checked before anything runs.

A slice stays inside its tensor, a window fits, no size is negative. Where that cannot be told from the expressions, it
is a ``flat.require`` ahead of the op; ``hoist`` makes guards of those that the sizes of arguments decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchstone.compiler.capture.program import Guard
from torchstone.compiler.diagnostics import describe
from torchstone.compiler.ir import Expr, Graph, Operation, TensorType
from torchstone.compiler.ir.dims import Dim, evaluate, nonnegative, symbols
from torchstone.compiler.ops.control import HOLDS, RELATIONS

REQUIRE = "flat.require"


def require_bounds(graph: Graph) -> Graph:
    """Return the graph with a ``flat.require`` ahead of each primitive that might be out of bounds."""
    out = Graph(graph.name, graph.args, outputs=graph.outputs)
    seen: set[tuple[Dim, Dim, str]] = set()
    for op in graph.ops:
        if op.name.startswith("flat."):
            for low, high in dict.fromkeys(_ordered(op)):
                if not nonnegative(high - low) and (low, high, "le") not in seen:
                    seen.add((low, high, "le"))
                    # The shorter op, so that a message that quotes it says what was out of bounds.
                    attributes = {"left": low, "right": high, "relation": "le"}
                    out.ops.append(Operation(REQUIRE, (), (), attributes, op.location.noted(str(op))))
        out.ops.append(op.with_graphs(require_bounds))
    return out


def _ordered(op: Operation) -> Iterator[tuple[Dim, Dim]]:
    """The pairs of sizes of which the first must not be above the second."""
    attributes = op.attributes
    if op.name == "flat.slice":
        shape = next(iter(op.values)).shape
        for start, limit, size in zip(attributes["start"], attributes["limit"], shape, strict=True):
            yield from ((0, start), (limit, size))  # start <= limit: see its result
    elif op.name == "flat.pad":
        yield from ((0, amount) for amount in (*attributes["low"], *attributes["high"]))
    elif op.name == "flat.windows":
        shape = next(iter(op.values)).shape
        for dim, size, apart in zip(attributes["dims"], attributes["kernel"], attributes["dilation"], strict=True):
            yield (size - 1) * apart + 1, shape[dim]
    for result in op.results:
        if isinstance(result.type, TensorType):
            yield from ((0, size) for size in result.type.dims)


def hoist(graph: Graph) -> tuple[Graph, list[Guard]]:
    """Return the graph without the requires that sizes of its arguments decide, and these as guards."""
    known = {str(d) for a in graph.args if isinstance(a.type, TensorType) for d in a.type.dims if isinstance(d, Expr)}
    out = Graph(graph.name, graph.args, outputs=graph.outputs)
    guards: list[Guard] = []
    for op in graph.ops:
        if op.name == REQUIRE and symbols(op.attributes["left"]) | symbols(op.attributes["right"]) <= known:
            guards.append(_guard(op))
        else:
            out.ops.append(op)
    return out, guards


def _guard(op: Operation) -> Guard:
    left, right, relation = (op.attributes[name] for name in ("left", "right", "relation"))

    def check(sizes: Mapping[str, int]) -> str | None:
        a, b = evaluate(left, sizes), evaluate(right, sizes)
        if HOLDS[relation](a, b):
            return None
        used = ", ".join(f"{name}={sizes[name]}" for name in sorted(symbols(left) | symbols(right)))
        return (
            f"sizes {used}: {left} {RELATIONS[relation]} {right} must hold, and {a} and {b} are given\n{describe(op)}"
        )

    return check
