"""Simplify the numbers in the inputs: all zeros, all ones, whole numbers, short decimals; then element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.tensor_storage import copy_tensors
from torchstone.reducers.edit import with_inputs
from torchstone.reducers.order import number_cost
from torchstone.reducers.problem import Rewrite

ELEMENTWISE = 32
"""Inputs with more elements than this are only changed as a whole."""

WHOLE: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.zeros_like,
    torch.ones_like,
    lambda t: t.to(torch.float64).trunc() if not t.dtype.is_complex else t.real + 0j,
    lambda t: t.to(torch.float64).mul(10).trunc().div(10) if not t.dtype.is_complex else t,
)


def simplify_values(case: Case) -> Rewrite[Case]:
    """Try every input as a whole, then each element of the small ones."""
    for name in case.program.inputs:
        for change in WHOLE:
            candidate = with_inputs(case, {name: _refilled(case.inputs[name], change(case.inputs[name]))})
            if (yield candidate):
                case = candidate
                break
    for name in case.program.inputs:
        if case.inputs[name].numel() > ELEMENTWISE:
            continue
        for at in range(case.inputs[name].numel()):
            for value in _simpler(case.inputs[name].flatten()[at].item()):
                flat = case.inputs[name].flatten().clone()
                flat[at] = torch.tensor(value, dtype=flat.dtype)
                candidate = with_inputs(case, {name: _refilled(case.inputs[name], flat.view(case.inputs[name].shape))})
                if (yield candidate):
                    case = candidate
                    break


def _simpler(value: bool | int | float | complex) -> Iterator[bool | int | float | complex]:
    if isinstance(value, bool):
        yield from (False,) if value else ()
    elif isinstance(value, complex):
        yield from (n for n in (0j, 1 + 0j, 1j, value.real + 0j) if n != value)
    else:
        nearby: tuple[float, ...] = (float("inf"),)
        if math.isfinite(value):
            whole = int(value)
            nearby = (int(value / 2), whole, abs(value), 0.5, value - whole, round(value, 1), round(value, 3))
        for number in dict.fromkeys((0, 1, -1, 2, *nearby)):
            if number_cost(number) < number_cost(value):
                yield number


def _refilled(tensor: Tensor, values: Tensor) -> Tensor:
    """Return a tensor of other values in the same layout; in a contiguous one where elements share memory."""
    values = values.to(tensor.dtype)
    if tensor.is_contiguous() or any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True)):
        return values.clone(memory_format=torch.contiguous_format)
    (copy,) = copy_tensors((tensor,))
    return copy.copy_(values)
