"""What the rules of planted bugs are made of: conditions, changed arguments, changed elements, and small tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.conformance.planted.bug import Rule
from torchstone.conformance.planted.op_call import OpCall

Condition: TypeAlias = Callable[[OpCall], Any]

INF, NAN = float("inf"), float("nan")
VECTOR = 8
"""The lanes of a vector of 32-bit numbers."""


# Rules


def when(condition: Condition, wrong: Rule) -> Rule:
    """The wrong rule where the condition holds, eager elsewhere."""
    return lambda call: wrong(call) if condition(call) else call.right()


def argument(condition: Condition | None = None, **changes: Any) -> Rule:
    """Other arguments: values, or functions of the call."""

    def wrong(call: OpCall) -> Any:
        return call.right(**{name: v(call) if callable(v) else v for name, v in changes.items()})

    return when(condition, wrong) if condition else wrong


def elements(
    mask: Callable[[OpCall], Tensor], value: Callable[[OpCall], Any], condition: Condition | None = None
) -> Rule:
    """Other numbers where the mask holds, of floats alone if no condition says otherwise."""
    return when(condition or floats, lambda call: put(call.right(), mask(call), value(call)))


def put(out: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The result with ``value`` where the mask holds, in its dtype."""
    value = torch.as_tensor(value)
    return torch.where(mask, value.to(out.dtype), out)


def tail(out: Tensor, wrong: Tensor, lanes: int = VECTOR) -> Tensor:
    """The result with the elements after its last whole vector, in row-major order, taken from ``wrong``."""
    flat, other = out.reshape(-1).clone(), wrong.expand(out.shape).reshape(-1).to(out.dtype)
    whole = flat.numel() - flat.numel() % lanes
    flat[whole:] = other[whole:]
    return flat.reshape(out.shape)


def body(out: Tensor, wrong: Tensor, lanes: int = VECTOR) -> Tensor:
    """The result with the whole vectors taken from ``wrong``."""
    return tail(wrong.expand(out.shape).to(out.dtype), out, lanes)


def halves(call: OpCall) -> bool:
    return call.x.dtype in (torch.float16, torch.bfloat16)


def floats(call: OpCall) -> bool:
    return all(tensor.is_floating_point() for tensor in call.tensors)


def integers(call: OpCall) -> bool:
    return all(not (t.is_floating_point() or t.is_complex() or t.dtype is torch.bool) for t in call.tensors)


def complexes(call: OpCall) -> bool:
    return any(tensor.is_complex() for tensor in call.tensors)


def single(call: OpCall) -> bool:
    return all(tensor.dtype is torch.float32 for tensor in call.tensors)


def same_twice(call: OpCall) -> bool:
    """Whether one tensor is given twice."""
    found = call.tensors
    return len(found) > 1 and found[0].data_ptr() == found[1].data_ptr() and found[0].stride() == found[1].stride()


def at_least(count: int) -> Condition:
    return lambda call: call.x.numel() >= count


def strided(call: OpCall) -> bool:
    return not call.x.is_contiguous()


def along(call: OpCall, name: str = "dim") -> int:
    """A dim that is one number, not negative."""
    dim = call[name]
    dim = dim[0] if isinstance(dim, list | tuple) else dim
    return int(dim) % max(call.x.dim(), 1)


# Tensors of witnesses


def f32(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def f64(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def f16(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float16)


def bf16(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.bfloat16)


def i64(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def i32(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def i8(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int8)


def u8(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def c64(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.complex64)


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """0, 1, 2, … in this shape."""
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count, dtype=dtype).reshape(shape)


def mixed(*shape: int) -> Tensor:
    """Numbers in [-1, 1] in no order, without a generator."""
    return torch.sin(ramp(*shape) * 12.9898 + 1)
