"""The arguments that a call leaves out, and their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from torchstone.compiler._torch.operators import OpOverload, schema_of
from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.program import Call


def left_out(call: Call) -> Iterator[dict[str, Any]]:
    """The arguments that a call leaves out, with their defaults: of a Python function its own, else by ATen's schemas.

    A number that is None by default is one for ATen alone.
    """
    function = resolve(call.target)
    if inspect.isfunction(function):
        parameters = list(inspect.signature(function).parameters.values())[len(call.args) :]
        yield {
            p.name: p.default
            for p in parameters
            if p.name not in call.kwargs and type(p.default) in (bool, int, float, str)
        }
        return
    if isinstance(function, OpOverload) and not call.target.startswith("torch.ops.aten."):
        yield _free(schema_of(function), call)
        return
    packet = getattr(torch.ops.aten, call.operator, None)
    if packet is None or call.target.startswith("torch.ops."):
        return
    for schema in (schema_of(getattr(packet, overload)) for overload in packet.overloads()):
        if not any(argument.is_out for argument in schema.arguments):
            yield _free(schema, call)


def _free(schema: Any, call: Call) -> dict[str, Any]:
    """The arguments of a schema that a call leaves out, with what stands for them."""
    free = [a for a in schema.arguments[len(call.args) :] if a.name not in call.kwargs]
    return {a.name: _default(a) for a in free if _default(a) is not inspect.Parameter.empty}


def _default(argument: Any) -> Any:
    """The default of a schema's argument, or what stands for it; ``Parameter.empty`` where nothing else is known."""
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    default = argument.default_value if argument.has_default_value() else None
    if argument.name == "dtype":
        return torch.float16
    if argument.name == "dim" and default in (None, []):
        return 1
    if default is None:
        return None if argument.has_default_value() and kind in ("float", "number") else inspect.Parameter.empty
    return default if kind in ("bool", "int", "float", "number", "str") else inspect.Parameter.empty
