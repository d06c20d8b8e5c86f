"""Whether a program does the same with symbols in the place of numbers, as far as the example shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchstone.compiler.capture.leaves import Aliased, Computed, Number, Plain, Scalar, Shared
from torchstone.compiler.capture.program import Captured
from torchstone.compiler.capture.symbolic.numbers import NOTE
from torchstone.compiler.ir import Expr, Graph, Operation, TensorType, Value
from torchstone.compiler.ir.dims import evaluate, symbols
from torchstone.compiler.ops.control import same_number

_TENSORS = (Computed, Aliased, Shared)


def same_program(found: Captured, plain: Captured, hints: Mapping[Any, Any]) -> bool:
    """Say whether ``found`` has the calls and results of ``plain``, with values or sizes for some of its numbers.

    ``hints`` tells what values are for the example, by their id, and what sizes are, by their symbol: they have to be
    the numbers and sizes that ``plain`` has there.
    A program may ask for the class of a number, print it, or catch what a symbol raises. Ops that are there for a
    number do not count, and neither do overloads. What an op or a result takes has to come from the same place: two
    branches may well make the same calls.
    """
    twins = _given(found, plain)

    def agree(one: Any, other: Any) -> bool:
        if isinstance(one, tuple) and isinstance(other, tuple):
            return len(one) == len(other) and all(map(agree, one, other))
        if isinstance(one, Value) and isinstance(other, Value) and id(other) in twins:
            return twins[id(other)] is one
        if isinstance(one, Value):
            hint = other if isinstance(other, Value) else hints.get(id(one), other)
            return hint is other or (type(hint) is type(other) and same_number(hint, other))
        if isinstance(one, Expr):
            return isinstance(other, Expr | int | Value)
        return type(one) is type(other) and same_number(one, other)

    def same_type(one: Value, other: Value) -> bool:
        if not isinstance(one.type, TensorType) or not isinstance(other.type, TensorType):
            return one.type == other.type
        ours, theirs = one.type, other.type
        if ours.dtype != theirs.dtype or ours.rank != theirs.rank:
            return False
        pairs = zip(ours.dims, theirs.dims, strict=True)
        return all(size == there for dim, there in pairs if (size := _size(dim, hints)) is not None)

    def same_result(one: Any, other: Any) -> bool:
        if isinstance(one, Number) and isinstance(other, Plain):
            return agree(found.graph.outputs[one.index], other.value)
        if isinstance(one, Plain):
            return isinstance(other, Plain) and agree(one.value, other.value)
        if isinstance(one, _TENSORS) and isinstance(other, _TENSORS):
            return agree(found.graph.outputs[one.index], plain.graph.outputs[other.index])
        return True

    def same_writes() -> bool:
        ours, theirs = _written(found), _written(plain)
        theirs = {id(twins.get(arg)): value for arg, value in theirs.items()}
        return ours.keys() == theirs.keys() and all(agree(value, theirs[arg]) for arg, value in ours.items())

    ours, theirs = _calls(found.graph), _calls(plain.graph)
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return False
    for (_, op), (_, other) in zip(ours, theirs, strict=True):
        if not all(same_type(*both) for both in zip(op.results, other.results, strict=False)):
            return False
        if op.location.notes:  # taken apart: the last of the ops that it became gives but one of the results
            continue
        if not all(agree(*both) for both in zip(op.operands, other.operands, strict=False)):
            return False
        twins.update({id(o): r for r, o in zip(op.results, other.results, strict=False)})
    return (
        found.out_spec == plain.out_spec
        and len(found.results) == len(plain.results)
        and all(map(same_result, found.results, plain.results))
        and same_writes()
    )


def _given(found: Captured, plain: Captured) -> dict[int, Value]:
    """Return which argument of ``found`` holds the tensor that one of ``plain`` does, by the id of that."""

    def tensors(captured: Captured) -> dict[tuple[int, int], Value]:
        given = [leaf for leaf in captured.leaves if isinstance(leaf, torch.Tensor | Scalar)]
        out: dict[tuple[int, int], Value] = {}
        for tensor, arg in zip((*given, *captured.captures), captured.graph.args, strict=False):
            if isinstance(tensor, torch.Tensor):
                out[id(tensor), sum(key[0] == id(tensor) for key in out)] = arg
        return out

    ours, theirs = tensors(found), tensors(plain)
    return {id(arg): ours[key] for key, arg in theirs.items() if key in ours}


def _written(captured: Captured) -> dict[int, Any]:
    """Return what the program writes and what gradients it leaves, by the id of the argument."""
    places = [*captured.mutated, *captured.gradients]
    values = captured.graph.outputs[len(captured.graph.outputs) - len(places) :]
    return {id(captured.graph.args[place]): value for place, value in zip(places, values, strict=True)}


def _calls(graph: Graph) -> list[tuple[str, Operation]]:
    kept = [op for op in graph.ops if op.name.startswith("aten.") and NOTE not in op.location.notes]
    return [((op.location.notes[0] if op.location.notes else op.name).rpartition(".")[0], op) for op in kept]


def _size(dim: Any, hints: Mapping[Any, Any]) -> int | None:
    """Return a size for the example; None where it is not known."""
    if isinstance(dim, int):
        return dim
    names = symbols(dim)
    known = {name: hints[name] for name in names if type(hints.get(name)) is int}
    return evaluate(dim, known) if len(known) == len(names) else None
