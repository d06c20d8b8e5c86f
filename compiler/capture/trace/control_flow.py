"""``torch.cond`` and ``torch.while_loop`` under the recorder: their functions become graphs in an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Location, Operation, Value

if TYPE_CHECKING:
    from torchstone.compiler.capture.trace.recorder import Recorder


def record(recorder: Recorder, func: Any, args: Sequence[Any], location: Location) -> Any:
    """Record a call of a higher-order op and return what it gives; Unsupported for any but the two."""
    if func is torch.ops.higher_order.cond:
        pred, then, otherwise, operands = args
        if not isinstance(pred, torch.Tensor):
            raise _unsupported(func, "a condition that is no tensor")
        functions, values, attributes = {"then": then, "otherwise": otherwise}, list(operands), {}
        operands = [pred.reshape(()) if pred.dim() else pred]
    elif func is torch.ops.higher_order.while_loop:
        condition, body, carried, rest = args
        functions, values, attributes = (
            {"condition": condition, "body": body},
            [*carried, *rest],
            {"carried": len(carried)},
        )
        operands = []
    else:
        raise _unsupported(func, "a higher-order op")
    if not all(isinstance(v, torch.Tensor) for v in values):
        raise _unsupported(func, "an operand that is no tensor")
    with recorder.drawing(location):
        nested = {name: _trace(recorder, name, fn, values, location) for name, fn in functions.items()}
        out = func(*args)
    held = _lift(list(nested.values()))
    graphs = {name: inner.graph for name, inner in nested.items()}
    results = tuple(recorder.bind(item) for item in (out if isinstance(out, list | tuple) else (out,)))
    inner = graphs.get("then") or graphs["body"]
    if [r.type for r in results] != [o.type for o in inner.outputs if isinstance(o, Value)]:
        raise _unsupported(func, "a result whose size depends on the branch taken")
    given = tuple(recorder.operand(t) for t in (*operands, *values, *held))
    name = "flat.while" if "body" in graphs else "flat.cond"
    recorder.graph.ops.append(Operation(name, given, results, {**graphs, **attributes}, location))
    return out


def _trace(outer: Recorder, name: str, fn: Callable[..., Any], values: Sequence[Any], location: Location) -> Recorder:
    """Record a function of tensors like these. What it holds beside them becomes arguments of the graph, at the end."""
    inner = outer.nested(name, location)
    args = [torch.ops.aten.alias.default(v) for v in values]  # one value each, whatever the caller passes twice
    for index, arg in enumerate(args):
        inner.input(arg, f"x{index}")
    with inner:
        out = fn(*args)
        outputs = out if isinstance(out, list | tuple) else (out,)
        if not all(isinstance(item, torch.Tensor) for item in outputs):
            raise Unsupported(f"{name}: a result that is no tensor", stage="capture", op="torch.cond")
        inner.graph.outputs = tuple(inner.operand(item) for item in outputs)
    return inner


def _lift(nested: Sequence[Recorder]) -> list[torch.Tensor]:
    """Give every graph the tensors that any of them holds as arguments, and return them."""
    held = [(inner, value, tensor) for inner in nested for value, tensor in inner.captures]
    for inner in nested:
        own = len(inner.graph.args) - len(inner.captures)
        mine = [v if owner is inner else Value(v.type, v.name) for owner, v, _ in held]
        inner.graph.args[own:] = mine
    return [tensor for _, _, tensor in held]


def _unsupported(func: Any, why: str) -> Unsupported:
    return Unsupported(f"{func}: {why}", stage="capture", op=str(func))
