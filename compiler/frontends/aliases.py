"""Results that are arguments of the program or other results, or views of those.

PyTorch's alias annotations say which ops are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler.frontends.captured import Aliased, Computed, Result, Shared, Sizes
from torchstone.compiler.frontends.literals import from_literal
from torchstone.compiler.frontends.recorder import schema_call
from torchstone.compiler.ir import Graph, Operation, Value
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.ir.sizes import symbols_bound, symbols_used

Step = tuple[Operation, int]

# Views of a tensor whatever its strides are: a result that is computed need not lie in memory as it does in eager.
_ON_ANY_STRIDES = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "detach.default", "diagonal.default", "expand.default", "narrow.default", "permute.default",
        "select.int", "slice.Tensor", "split.Tensor", "split_with_sizes.default", "squeeze.default", "squeeze.dim",
        "squeeze.dims", "t.default", "transpose.int", "unbind.int", "unfold.default", "unsqueeze.default",
    )
)  # fmt: skip


def results_of(
    graph: Graph, values: Sequence[Value], mutated: Sequence[int] = (), written: Sequence[Any] = ()
) -> list[Result]:
    """Return what the tensors among a program's results are: outputs of the graph in this order, or aliases.

    ``written`` holds the new values of the arguments ``mutated``. A view of one of those is a view of the argument.
    """
    roots = {id(arg): index for index, arg in enumerate(graph.args) if index not in mutated}
    roots.update({id(value): index for index, value in zip(mutated, written, strict=True) if isinstance(value, Value)})
    makers = {id(r): (op, i) for op in graph.ops for i, r in enumerate(op.results)}
    run_time = set(symbols_bound(graph))
    first: dict[int, int] = {}
    for index, value in enumerate(values):
        first.setdefault(id(value), index)
    return [_result(value, index, roots, first, makers, run_time) for index, value in enumerate(values)]


def _result(
    value: Value, index: int, roots: dict[int, int], first: dict[int, int], makers: dict[int, Step], run_time: set[str]
) -> Result:
    steps: list[Step] = []
    shared: Shared | None = None
    while id(value) not in roots:
        base = first.get(id(value), index)
        if base != index and all(op.name in _ON_ANY_STRIDES for op, _ in steps):
            shared = Shared(base, _Replayed(steps[::-1]) if steps else None, index)  # of the outermost of them
        op, number = makers.get(id(value), (None, 0))
        if op is None or not is_view(op) or symbols_used(op) & run_time:
            return shared or Computed(index)
        steps.append((op, number))
        operand = op.operands[0]
        assert isinstance(operand, Value)
        value = operand
    return Aliased(roots[id(value)], _Replayed(steps[::-1]) if steps else None, index)


def is_view(op: Operation) -> bool:
    """Say whether an ATen op's results share the memory of its first operand."""
    if op.name.startswith("flat."):
        return False
    schema = _overload(op)._schema
    aliased = [a for a in schema.arguments if a.alias_info is not None]
    returned = [r.alias_info for r in schema.returns]
    return (
        bool(aliased)
        and aliased == [schema.arguments[0]]
        and isinstance(op.operands[0], Value)
        and not schema.is_mutable
        and all(info is not None for info in returned)
    )


def _overload(op: Operation) -> Any:
    namespace, packet, overload = op.name.split(".", 2)
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


class _Replayed:
    """A view made by the ATen ops that the program made it with, on whatever strides the argument has."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = [(_overload(op), op.operands[1:], number) for op, number in steps]

    def __call__(self, tensor: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        for overload, operands, number in self._steps:
            literals = [from_literal(operand, lambda dim: evaluate(dim, sizes)) for operand in operands]
            args, kwargs = schema_call(overload, [tensor, *literals])
            out = overload(*args, **kwargs)
            tensor = out[number] if isinstance(out, list | tuple) else out
        return tensor
