"""Rows of products of matrices: of integers, of float8 numbers with scales, by groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torchstone.conformance.sources.functions.row import (
    OWN_DTYPE,
    Drawn,
    Exact,
    Function,
    Given,
    drawn,
    exact,
    given,
)

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_GROUPED = ("float32", "bfloat16", "float16")


def _of_int8() -> Iterator[Given]:
    for rows, inner, columns in ((3, 5, 4), (20, 16, 32), (1, 7, 1), (2, 0, 3), (0, 4, 3)):
        yield given(drawn(rows, inner, low=-128, high=128), drawn(inner, columns, low=-128, high=128))
    yield given(drawn(4, 6, low=-128, high=128, strided=True), drawn(6, 5, low=-128, high=128, strided=True))


def _number(value: float) -> Exact:
    return exact(value, torch.float32)


def _each(*shape: int) -> Drawn:
    return drawn(*shape, low=0.05, high=0.5, dtype=torch.float32)


def _scaled() -> Iterator[Given]:
    """Scales of the whole and of each row and column, to each dtype, with biases."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16, None, OWN_DTYPE):
        options = {"out_dtype": dtype} if dtype else {}
        yield given(drawn(5, 16), drawn(16, 3), _number(0.25), _number(0.125), **options)
        yield given(drawn(4, 33, strided=True), drawn(33, 6), _each(4, 1), _each(1, 6), **options)
        yield given(
            drawn(3, 8), drawn(8, 7), _number(1.5), _number(0.0625), bias=drawn(7, dtype=torch.float32), **options
        )
        yield given(drawn(2, 9), drawn(9, 4), _number(0.5), exact([0.25], torch.float32),
                    bias=drawn(4, dtype=torch.bfloat16), **options)  # fmt: skip
        yield given(drawn(3, 5), drawn(5, 4), _number(0.5), _number(0.5), scale_result=_number(4.0), **options)
    yield given(drawn(1, 6), drawn(6, 1), _each(1, 1), _each(1, 1), out_dtype=torch.float32, use_fast_accum=True)
    yield given(drawn(4, 6), drawn(6, 4), _number(64.0), _number(64.0))  # beyond the range
    yield given(drawn(3, 0), drawn(0, 2), _number(1.0), _number(1.0), bias=drawn(2, dtype=torch.float32),
                out_dtype=torch.float32)  # fmt: skip
    yield given(drawn(0, 3), drawn(3, 2), _number(1.0), _number(1.0), out_dtype=torch.float32)


def _ends(*values: int) -> Exact:
    return exact(values, torch.int32)


def _by_groups() -> Iterator[Given]:
    """Groups of rows, of columns and along the inner dim, some of them empty; some rows and columns in none."""
    for ends in (_ends(2, 5, 6), _ends(0, 4, 6), _ends(3, 3, 3), _ends(1, 2, 5)):
        yield given(drawn(6, 8), drawn(3, 8, 16), offs=ends)
    for ends in (_ends(3, 8), _ends(8, 8), _ends(0, 5)):
        yield given(drawn(2, 5, 16), drawn(16, 8), offs=ends)
        yield given(drawn(8, 8), drawn(8, 16), offs=ends)
    yield given(drawn(4, 8), drawn(16, 8), offs=_ends(3, 8))  # of which one is longer
    yield given(drawn(4, 8), drawn(8, 8), offs=_ends())
    yield given(drawn(3, 4, 8), drawn(3, 8, 16))
    yield given(drawn(4, 8), drawn(1, 8, 8), offs=_ends(4))
    yield given(drawn(0, 8), drawn(2, 8, 8), offs=_ends(0, 0))


def _scaled_mm(x: Tensor, y: Tensor, scale_x: Tensor, scale_y: Tensor, **options: Any) -> Tensor:
    kinds = functional.ScalingType
    recipe = kinds.TensorWise if scale_x.numel() == 1 and scale_y.numel() == 1 else kinds.RowWise
    return functional.scaled_mm(x, y, scale_x, recipe, scale_y, recipe, **options)


def _by_recipes() -> Iterator[Given]:
    for options in ({}, {"output_dtype": torch.float32}, {"output_dtype": OWN_DTYPE}):
        yield given(drawn(5, 16), drawn(16, 3), _number(0.25), _number(0.125), **options)
        yield given(drawn(4, 33, strided=True), drawn(33, 6), _each(4, 1), _each(1, 6), **options)
        yield given(drawn(3, 8), drawn(8, 7), _number(1.5), _number(0.0625), bias=drawn(7, dtype=torch.bfloat16),
                    contraction_dim=(1, 0), **options)  # fmt: skip


PRODUCTS = (
    Function("_int_mm", ("int8",), tuple(_of_int8()), differentiable=False),
    Function("_scaled_mm", FLOAT8, tuple(_scaled()), differentiable=False),
    Function("nn.functional.scaled_mm", FLOAT8, tuple(_by_recipes()), differentiable=False, call=_scaled_mm),
    Function("nn.functional.grouped_mm", _GROUPED, tuple(_by_groups())),
)
