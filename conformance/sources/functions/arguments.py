"""Rows of arguments that no sample of PyTorch's op database gives, and for which compilers have rules of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from torchstone.conformance.sources.functions.row import FLOATS, WIDE, Function, Given, drawn, exact, given

_SHARED = ((4, 2), (6, 1), (3, 3))
"""How many heads the query has, and how many the key and the value."""


def _attended() -> Iterator[Given]:
    for many, few in _SHARED:
        query, key, value = drawn(2, many, 3, 8), drawn(2, few, 5, 8), drawn(2, few, 5, 8)
        for causal in (False, True):
            yield given(query, key, value, is_causal=causal, enable_gqa=True)


# A product's gradient is a quotient where no element is 0, and a product of the others where one is.
_FACTORS = (
    ([0.0, 3.0, 2.0, 4.0, 5.0], [2, 3]),
    ([0.0, 0.0, 2.0, 4.0, 0.0], [2, 2, 1]),
    ([[2.0, 0.0], [3.0, 5.0], [0.0, 7.0]], [3]),
)


def _multiplied() -> Iterator[Given]:
    for numbers, lengths in _FACTORS:
        for initial in ({}, {"initial": 2.0}):
            yield given(exact(numbers, None), "prod", lengths=exact(lengths), axis=0, **initial)


def _ranged() -> Iterator[Given]:
    for ranges in ((0.0, 1.0, 0.0, 5.0), (-4.0, 2.0, 1.0, 9.0)):
        for density in (False, True):
            yield given(drawn(20, 2), [2, 3], range=ranges, density=density)
    yield given(drawn(20, 3), [2, 3, 4], range=(0.0, 1.0, 0.0, 5.0, -9.0, 9.0))


_SPREAD = (
    given(drawn(3, 4), dim=1, correction=-1),
    given(drawn(5), correction=-2.5),
    given(drawn(0, 3), dim=0, correction=-1),
    given(drawn(0), correction=-1),
)
_UNKNOWN = tuple(
    given(exact([[math.nan, 0.5], [0.25, math.nan], [math.nan, math.nan]], None), exact([[0.0, 0.0]], None), p=p)
    for p in (math.inf, 0.0, 1.0, 2.0)
)
_SMALL = (
    given(
        exact([[1e-6], [1e-4], [5e-4], [9e-4], [1.1e-3]], None),
        exact([[0.01, 0.5, 1.0, 1.2, 3.0]], None),
    ),
)


# 16-bit floats stop to grow where one more is less than half of the distance to the next number.
_ONTO_ONE = tuple(
    given(exact([[0.0, 0.0]], None), 0, exact([0] * count), exact([[1.0, 2.0]] * count, None)) for count in (600, 5000)
)

ARGUMENTS = (
    Function("nn.functional.scaled_dot_product_attention", FLOATS, tuple(_attended()), variant="shared_heads"),
    Function(
        "_segment_reduce", WIDE, tuple(_multiplied()), variant="products_with_zeros", call=torch.segment_reduce
    ),
    Function("histogramdd", WIDE, tuple(_ranged()), variant="with_ranges", differentiable=False),
    Function("var", FLOATS, _SPREAD, variant="negative_correction"),
    Function("std", FLOATS, _SPREAD, variant="negative_correction"),
    Function("cdist", WIDE, _UNKNOWN, variant="of_nan", differentiable=False),
    Function("igamma", WIDE, _SMALL, variant="of_small_numbers", differentiable=False),
    Function("igammac", WIDE, _SMALL, variant="of_small_numbers", differentiable=False),
    Function("index_add", FLOATS, _ONTO_ONE, variant="many_onto_one"),
)  # fmt: skip
