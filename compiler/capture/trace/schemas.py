"""PyTorch's ops by name, and the arguments of a call in the order of the op's schema and as it takes them."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler.diagnostics import Unsupported


def find_overload(name: str) -> Any:
    """Return ``torch.ops.<name>`` for "aten.add.Tensor"; Unsupported when this PyTorch has no such op."""
    namespace, packet, overload = name.split(".", 2)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        raise Unsupported(f"{name} is no op of this PyTorch", op=name) from None


def schema_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return every argument of a call in the order of its schema, defaults filled in."""
    out = list(args)
    for argument in schema_of(func).arguments[len(args) :]:
        out.append(kwargs.get(argument.name, argument.default_value))
    return out


def schema_call(func: Any, operands: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split arguments in schema order into the positional and keyword arguments of a call."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument, operand in zip(schema_of(func).arguments, operands, strict=True):
        if argument.kwarg_only:
            kwargs[argument.name] = operand
        else:
            args.append(operand)
    return args, kwargs
