"""Sizes of 0 and 1, which PyTorch's shape functions take no size that depends on values to be.

``squeeze`` drops a dim of size 1 and keeps one of any other size; ``max`` of no elements raises. Each op on a size that
the graph itself binds is tried at 0 and at 1, and where it would give something else the size must be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchstone.compiler.capture.symbolic.run_time_sizes import require
from torchstone.compiler.capture.trace.aten_literals import TO_TORCH, from_literal
from torchstone.compiler.capture.trace.schemas import find_overload, schema_call
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir import Expr, Graph, Operation, TensorType, Type, Value, map_operand
from torchstone.compiler.ir.dims import Dim, evaluate, substitute, symbol, symbols
from torchstone.compiler.ir.sizes import sized_by_values, symbols_bound, symbols_used
from torchstone.compiler.library import has_effect
from torchstone.compiler.transforms.shapes import FakeSizes, result_types

# Ops that give elements for none, the ones that eager gives: sums and their kin, and those that go without the operand.
_OF_NOTHING = frozenset(
    {
        "addmm", "all", "any", "bmm", "cat", "count_nonzero", "dot", "index_put", "linalg_vector_norm", "mean", "mm",
        "mv", "norm", "prod", "scatter", "scatter_add", "std", "sum", "var",
    }
)  # fmt: skip


def require_large_sizes(graph: Graph, hints: Mapping[str, int]) -> None:
    """Insert ``flat.require`` into the graph for each size at which an op would give something else."""
    bound = symbols_bound(graph)
    for name in bound:
        for size in (0, 1):
            if not all(_same(op, {name: size}, hints) for op in graph.ops):
                require(graph, symbol(name), size, "ne")


def _same(op: Operation, values: Mapping[str, Dim], hints: Mapping[str, int]) -> bool:
    """Say whether an op's result types are what the graph says when sizes have these values."""
    mentioned = symbols_used(op).union(*(v.type.symbols for v in op.values if isinstance(v.type, TensorType)))
    if op.name.startswith("flat.") or sized_by_values(op) or not mentioned & set(values):
        return True

    def leaf(item: Any) -> Any:
        if isinstance(item, Value):
            return Value(_at(item.type, values), item.name)
        return substitute(item, values) if isinstance(item, Expr) else item

    try:
        moved = Operation(op.name, map_operand(op.operands, leaf), op.results, op.attributes, op.location)  # type: ignore[arg-type]
        if 0 in values.values() and not has_effect(op):
            _run_on_zeros(moved, hints)
            taken, given = _emptied(op.values, values), _emptied(op.results, values)
            if any(taken) and not all(given) and op.name.split(".")[1] not in _OF_NOTHING:
                return False
        return result_types(moved, FakeSizes(hints)) == tuple(_at(r.type, values) for r in op.results)
    except (TorchstoneError, RuntimeError, IndexError, ValueError, ZeroDivisionError):
        return False


def _run_on_zeros(op: Operation, hints: Mapping[str, int]) -> None:
    """Run an op in eager, which refuses more than its shape function does: there is next to nothing to compute."""
    func = find_overload(op.name)

    def size(dim: Dim) -> int:
        return evaluate(dim, {name: hints.get(name, 7) for name in symbols(dim)})

    def convert(operand: Any) -> Any:
        if isinstance(operand, tuple):
            return [convert(item) for item in operand]
        if isinstance(operand, Value):
            return torch.zeros([size(d) for d in operand.shape], dtype=TO_TORCH[operand.dtype])
        return from_literal(operand, size)

    args, kwargs = schema_call(func, [convert(o) for o in op.operands])
    func(*args, **kwargs)


def _emptied(of: Iterable[Value], values: Mapping[str, Dim]) -> list[bool]:
    """Say of each tensor whether it has no elements when sizes have these values."""
    return [0 in _at(v.type, values).dims for v in of if isinstance(v.type, TensorType)]


def _at(kind: Type, values: Mapping[str, Dim]) -> Any:
    if not isinstance(kind, TensorType):
        return kind
    return TensorType(tuple(substitute(d, values) for d in kind.dims), kind.dtype)
