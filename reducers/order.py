"""Which of two cases is the simpler one: a total order without infinite descents.

Compared first to last: the variant, calls, outputs, inputs, elements, ranks, literals, layouts, dtypes, values, bytes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.variants.registry import VARIANTS

PLAIN_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
CAP = 10**6


def size(case: Case) -> tuple:
    """Return the sort key of a case."""
    program, tensors = case.program, case.args
    data = case.to_bytes()
    return (
        variant_cost(case),
        sum(1 for _ in program.every_call),
        sum(1 for _ in leaves(program.outputs)) + (0 if isinstance(program.outputs, Ref) else 1),
        len(tensors),
        sum(tensor.numel() for tensor in tensors),
        sum(tensor.dim() for tensor in tensors),
        sum(literal_cost(call.args) + literal_cost(call.kwargs) for call in program.calls),
        sum(layout_cost(tensor) for tensor in tensors),
        sum(dtype_cost(tensor.dtype) for tensor in tensors),
        sum(value_cost(tensor) for tensor in tensors),
        len(data),
        data,
    )


def variant_cost(case: Case) -> int:
    """Return 0 for a case that is compiled once, called and compared with eager, and 1 for any other way to ask."""
    return int(case.variant in VARIANTS and VARIANTS.load(case.variant).run is not None)


def literal_cost(value: Any) -> int:
    """Return how far a literal is from the simplest of its kind; references are free, containers count their items."""
    if isinstance(value, list | tuple):
        return 1 + sum(1 + literal_cost(item) for item in value)
    if isinstance(value, dict):
        return sum(2 + literal_cost(item) for item in value.values())
    if isinstance(value, slice):
        return sum(literal_cost(item) for item in (value.start, value.stop, value.step))
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return number_cost(value)
    if isinstance(value, complex):
        return 1 + number_cost(value.real) + number_cost(value.imag)
    if isinstance(value, torch.dtype):
        return 1 + dtype_cost(value)
    return 0 if value is None or isinstance(value, Ref) else 1


def number_cost(value: int | float) -> int:
    """Return the simplicity of a number: 0, then 1, -1, 2, -2 …, then short decimals, then fractions, inf and nan."""
    if not math.isfinite(value):
        return 2 * CAP if math.isinf(value) else 3 * CAP
    if value == int(value):
        negative = math.copysign(1, value) < 0
        return min(2 * abs(int(value)) - (0 if negative or value == 0 else 1) + (value == 0 and negative), CAP)
    decimals = next((places for places in range(1, 7) if round(value, places) == value), 7)
    return CAP + decimals * 1000 + min(int(abs(value)), 999)


def layout_cost(tensor: Tensor) -> int:
    """Return 0 for a contiguous tensor that fills its storage, more for strides, offsets and lazy bits."""
    compact = (
        tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    )
    return 2 * (not tensor.is_contiguous()) + (not compact) + tensor.is_conj() + tensor.is_neg()


def dtype_cost(dtype: torch.dtype) -> int:
    """Return 0 for float32, the dtype a maintainer expects, then the plain one of each kind, then the others."""
    return PLAIN_DTYPES.index(dtype) if dtype in PLAIN_DTYPES else len(PLAIN_DTYPES) + dtype.itemsize


def value_cost(tensor: Tensor) -> int:
    """Return the sum of `number_cost` over the elements."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype.is_complex:
        return value_cost(plain.real) + value_cost(plain.imag)
    if not plain.dtype.is_floating_point:
        exact = plain.flatten().to(torch.int64)
        return int((2 * exact.abs() - (exact > 0).long()).clamp(0, CAP).sum())
    wide = plain.flatten().to(torch.float64)
    whole = wide.isfinite() & (wide == wide.trunc())
    cost = (2 * wide.abs() - (wide > 0).double() + (wide.signbit() & (wide == 0)).double()).clamp(0, CAP)
    total = int(cost[whole].sum())
    # Fractions one by one: they are few where it matters, and a big tensor of them is not about to be the minimum.
    rest = wide[~whole]
    if rest.numel() > 256:
        return total + int(rest.numel()) * (CAP + 7000)
    return total + sum(number_cost(value) for value in rest.tolist())
