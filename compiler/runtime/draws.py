"""Library calls that draw random numbers, on tensors that lie in memory as eager's do: see capture.memory.layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.pytrees import tree_map_only
from torchstone.compiler.capture.memory.layouts import overlaps
from torchstone.compiler.capture.trace.aten_literals import TO_TORCH
from torchstone.compiler.capture.trace.schemas import find_overload, schema_call
from torchstone.compiler.ir import Operation


def laid_out(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Return the same elements with these strides, in memory of their own."""
    out = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    if overlaps(tensor.shape, strides):
        place = torch.zeros((), dtype=torch.int64)
        for size, step in zip(tensor.shape, strides, strict=True):
            place = place.unsqueeze(-1) + torch.arange(size) * step
        memory = torch.empty(0, dtype=tensor.dtype).set_(out.untyped_storage())
        memory[place.reshape(-1)] = tensor.reshape(-1)  # elements that share a place are equal
        return out
    return out.copy_(tensor)


def drawing(op: Operation, concrete: Callable[[Any], Any]) -> Any:
    """Call LibTorch as the program does: on tensors with the strides that it had, and into one where it drew into one.

    ``concrete`` gives what an operand or a stride stands for.
    """
    overload = find_overload(op.name)
    strides = iter(op.attributes["strides"])

    def placed(tensor: torch.Tensor) -> torch.Tensor:
        told = next(strides)
        return tensor if told is None else laid_out(tensor, concrete(told))

    operands = tree_map_only(torch.Tensor, placed, [concrete(o) for o in op.operands])
    if "called" not in op.attributes:
        args, kwargs = schema_call(overload, operands)
        return overload(*args, **kwargs)
    called = find_overload(op.attributes["called"])
    given = {a.name: v for a, v in zip(schema_of(overload).arguments, operands, strict=True)}
    taken = {a.name: given[a.name] for a in schema_of(called).arguments if a.name in given}
    if any(a.name == "out" for a in schema_of(called).arguments):
        kind = op.results[0].tensor
        out = torch.empty(concrete(kind.dims), dtype=TO_TORCH[kind.dtype])
        into = op.attributes["into"]
        return called(**taken, out=out if into is None else laid_out(out, concrete(into)))
    written = [taken[a.name] for a in schema_of(called).arguments if a.alias_info is not None and a.alias_info.is_write]
    out = called(*[taken.pop(a.name) for a in schema_of(called).arguments if not a.kwarg_only], **taken)
    # An op without the write gives what is written after what is returned.
    return (out, *(t for t in written if t is not out))
