"""Rows of functions that move numbers: copies of views, methods that write, conversions, operators of bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.sources.functions.row import (
    ALL,
    COMPLEX,
    INTEGERS,
    OWN_DTYPE,
    Function,
    Given,
    drawn,
    exact,
    given,
)

_SELECTS = (
    given(drawn(3, 4), 0, 1),
    given(drawn(2, 3, 4), -1, -2),
    given(drawn(5, strided=True), 0, 4),
    given(drawn(2, 1, 3), 1, 0),
    given(drawn(0, 3), 1, 2),
)
_SLICES = (
    given(drawn(5, 3)),
    given(drawn(5, 3), 0, 1, 4),
    given(drawn(2, 7, strided=True), 1, 0, 7, 3),
    given(drawn(2, 7), -1, -4, None, 2),
    given(drawn(4, 2), 0, 3, 2),
    given(drawn(6), 0, -100, 100),
)
_SPLITS = (
    given(drawn(6, 2), 2),
    given(drawn(7, 2), 3, 0),
    given(drawn(2, 5, strided=True), 4, -1),
    given(drawn(3, 4), 10, 1),
    given(drawn(0, 4), 2),
)
_SPLITS_WITH_SIZES = (
    given(drawn(6, 2), [1, 2, 3]),
    given(drawn(2, 5, strided=True), [5, 0], 1),
    given(drawn(3, 4, 2), [1, 1, 2], -2),
    given(drawn(0, 3), [0]),
)
_PAIRS = (given(drawn(3, 2)), given(drawn(2, 3, 2)), given(drawn(2)), given(drawn(0, 2)))
_ANY = (given(drawn(3, 4)), given(drawn(2, 3, 2, strided=True)), given(drawn()), given(drawn(0, 2)))

_DIAGONALS = (
    given(drawn(4, 4), 2),
    given(drawn(3, 5), 0),
    given(drawn(7, 3), 1, wrap=True),
    given(drawn(7, 3, strided=True), 3),
    given(drawn(3, 3, 3), 1),
    given(drawn(1, 1), 5),
)


def _copies() -> Iterator[Given]:
    for dtype in (None, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool):
        yield given(drawn(3, 4), drawn(3, 4, dtype=dtype))
        yield given(drawn(2, 3, 4, strided=True), drawn(3, 1, dtype=dtype), non_blocking=dtype is torch.bool)
    yield given(drawn(3), drawn())
    yield given(drawn(0, 3), drawn(3))


_TYPES = (
    given(drawn(3, 4), torch.float64),
    given(drawn(3, 4), torch.int32),
    given(drawn(5, strided=True), torch.bool),
    given(drawn(), OWN_DTYPE),
    given(drawn(0, 3), torch.bfloat16),
    given(drawn(2, 2), "torch.DoubleTensor"),
)
_TYPES_AS = (
    given(drawn(3, 4), drawn(2, dtype=torch.float64)),
    given(drawn(3, 4), drawn(dtype=torch.int32)),
    given(drawn(5, strided=True), drawn(1, dtype=torch.bool)),
    given(drawn(), drawn(3)),
    given(drawn(0, 3), drawn(2, dtype=torch.float16)),
)

_ASSIGNED = (
    given(drawn(4, 3), 1, drawn(3)),
    given(drawn(4, 3), -1, 2),
    given(drawn(4, 3), (slice(1, 3), slice(None)), drawn(2, 3)),
    given(drawn(4, 6), (slice(None), slice(None, None, 2)), drawn(3)),
    given(drawn(5, strided=True), slice(4, 1), 1),
    given(drawn(2, 3, 4), (..., 0), drawn(1, 3)),
    given(drawn(2, 3), (None, 1), drawn(1, 3)),
    given(drawn(3, 4), drawn(3, 4, dtype=torch.bool), 0),
    given(drawn(3, 4), drawn(3, dtype=torch.bool), drawn(4)),
    given(drawn(5, 2), exact([0, 3]), drawn(2, 2)),
    given(drawn(4, 5), (exact([[0], [2]]), exact([1, 4])), drawn(2, 2)),
    given(drawn(4, 5, 2), (slice(1, 3), exact([4, 0, 2])), drawn(2)),
    given(drawn(3), (), 1),
    given(drawn(), ..., 1),
)
"""A tensor, where something is written to it, and what: numbers, slices, masks, indices, each with broadcasting."""


def _assign(tensor: Tensor, index: Any, value: Any) -> Tensor:
    tensor[index] = value
    return tensor


def _of_bits(low: int | None, high: int | None, numbers: tuple[int, ...]) -> Iterator[Given]:
    for shape, other in (((3, 4), (3, 4)), ((2, 3, 4), (3, 1)), ((5,), ()), ((0, 3), (3,)), ((), ())):
        yield given(drawn(*shape), drawn(*other, low=low, high=high))
    yield given(drawn(4, 3, strided=True), drawn(4, 3, low=low, high=high, strided=True))
    for number in numbers:
        yield given(drawn(3, 4), number)


_BITS = tuple(_of_bits(None, None, (0, 1)))
_SHIFTS = tuple(_of_bits(0, 7, (0, 1, 3)))
_WHOLE = (*INTEGERS, "bool")

TENSORS = (
    Function("select_copy", ALL, _SELECTS),
    Function("slice_copy", ALL, _SLICES),
    Function("split_copy", ALL, _SPLITS),
    Function("unsafe_split_with_sizes", ALL, _SPLITS_WITH_SIZES),
    Function("view_as_complex_copy", ("float32", "float64", "float16"), _PAIRS),
    Function("view_as_real_copy", COMPLEX, _ANY),
    Function("detach", ALL, _ANY, differentiable=False),
    Function("detach_copy", ALL, _ANY),
    Function("copy_", ALL, tuple(_copies())),
    Function("fill_diagonal_", ALL, _DIAGONALS),
    Function("type", ALL, _TYPES),
    Function("type_as", ALL, _TYPES_AS),
    Function("__setitem__", ALL, _ASSIGNED, call=_assign),
    *(Function(f"__{name}__", _WHOLE, _BITS, differentiable=False) for name in ("and", "or", "xor")),
    *(Function(f"__i{name}__", INTEGERS, _BITS, differentiable=False) for name in ("and", "or", "xor")),
    *(
        Function(f"__{name}__", INTEGERS, _SHIFTS, differentiable=False)
        for name in ("lshift", "rshift", "ilshift", "irshift")
    ),
)
