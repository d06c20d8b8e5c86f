"""Rows of overloads that no sample of PyTorch's op database calls: numbers in the place of tensors, several dims."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.conformance.sources.functions.row import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    WIDE,
    Drawn,
    Function,
    Given,
    drawn,
    exact,
    given,
)


def _operands(low: float | None = None, high: float | None = None) -> tuple[Drawn, ...]:
    def of(*shape: int, strided: bool = False) -> Drawn:
        return drawn(*shape, low=low, high=high, strided=strided)

    return of(3, 4), of(5, strided=True), of(), of(0, 3)


def _first(numbers: tuple[float, ...], low: float | None = None, high: float | None = None) -> Iterator[Given]:
    """A number and a tensor."""
    for number in numbers:
        for operand in _operands(low, high):
            yield given(number, operand)


def _second(numbers: tuple[float, ...], low: float | None = None, high: float | None = None) -> Iterator[Given]:
    """A tensor and a number."""
    for number in numbers:
        for operand in _operands(low, high):
            yield given(operand, number)


def _numbers(name: str, dtypes: tuple[str, ...], *samples: Iterator[Given], differentiable: bool = True) -> Function:
    taken = tuple(sample for some in samples for sample in some)
    return Function(name, dtypes, taken, variant="with_numbers", differentiable=differentiable)


_SHIFTED = tuple(
    _numbers(name, INTEGERS, _first((1, 5), 0, 6), _second((0, 3)), differentiable=False)
    for name in ("bitwise_left_shift", "bitwise_right_shift")
)
_BITS = tuple(
    _numbers(name, (*INTEGERS, "bool"), _first((0, 1)), _second((1,)), differentiable=False)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
)
_LOGARITHMS = tuple(
    _numbers(name, FLOATS, _first((0.0, 2.5), 0.1, 9), _second((0.5, 3), 0.1, 9))
    for name in ("xlogy", "special.xlog1py")
)
_POLYNOMIALS = tuple(
    _numbers(
        f"special.{name}", WIDE, _first((0.25, 1.5), 0, 6), _second((0, 1, 3, 7), -1, 1), differentiable=False
    )
    for name in (
        *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    )
)  # fmt: skip


def _edges(first: bool) -> Iterator[Given]:
    """A number, and the edges that it lies between, from the lowest."""
    edges = exact([-4, -1, 0, 3, 8], None)
    for number in (-5, -1, 2.5, 3, 9):
        for right in (False, True):
            yield given(*((number, edges) if first else (edges, number)), right=right)
    yield given(*((1, exact([], None)) if first else (exact([], None), 1)), out_int32=True)


def _squeezed() -> Iterator[Given]:
    for dims in ((0,), (0, -1), (1, 2), ()):
        yield given(drawn(1, 3, 1), dims)
        yield given(drawn(1, 1, 1, strided=True), dims)


_VIEWS = tuple(
    given(drawn(*shape), dtype)
    for shape in ((3, 4), (2, 8), (0, 4))
    for dtype in (torch.int32, torch.float32, torch.uint8, torch.int16, torch.float64)
)
_WHOLE = tuple(name for name in INTEGERS if name != "uint8")


_NORMS = (
    given(drawn(3, 4), 2, dtype=torch.float64),
    given(drawn(5, strided=True), None, dtype=torch.float64),
    given(drawn(2, 3, 4), 1, dtype=torch.float64),
)
_NORMS_OF_DIMS = (
    given(drawn(3, 4), 2, [0], False, dtype=torch.float64),
    given(drawn(2, 3, 4), 3, [-1, 0], True, dtype=torch.float64),
    given(drawn(4, 2, strided=True), None, [1], False, dtype=torch.float64),
)
_QUOTIENTS = tuple(
    given(operand, number, rounding_mode=mode)
    for operand in _operands() for number in (2, -3) for mode in (None, "floor", "trunc")
)  # fmt: skip


def _normalized(updates: bool, flag: bool) -> Iterator[Given]:
    """Batches, a weight and a bias or none, running statistics."""
    for shape in ((4, 3), (2, 3, 5), (2, 3, 4, 2)):
        for affine in (True, False):
            parameters = (drawn(3), drawn(3)) if affine else (None, None)
            statistics = (drawn(3), drawn(3, low=0.5, high=2))
            training = (True,) if flag else ()
            yield given(drawn(*shape), *parameters, *statistics, *training, 0.1, 1e-5)
            if flag and not updates:
                yield given(drawn(*shape), *parameters, *statistics, False, 0.1, 1e-5)


_LAZY = (*(given(operand) for operand in _operands()), given(drawn(2, 3, 4)))
_aten = torch.ops.aten

OVERLOADS = (
    *_SHIFTED,
    *_BITS,
    *_LOGARITHMS,
    *_POLYNOMIALS,
    _numbers("remainder", (*FLOATS, *_WHOLE), _first((7, -5), 1, 9)),
    _numbers("special.zeta", WIDE, _first((1.5, 3), 0.5, 9), _second((1, 2.5), 1.5, 9), differentiable=False),
    _numbers("clamp_max", (*FLOATS, *INTEGERS), _second((2, 0))),
    _numbers("clamp_min", (*FLOATS, *INTEGERS), _second((2, 0))),
    _numbers("bucketize", (*WIDE, *_WHOLE), _edges(True), differentiable=False),
    _numbers("searchsorted", (*WIDE, *_WHOLE), _edges(False), differentiable=False),
    Function("norm", WIDE, _NORMS, variant="of_aten", call=_aten.norm.ScalarOpt_dtype),
    Function("norm", WIDE, _NORMS_OF_DIMS, variant="of_aten_dims", call=_aten.norm.ScalarOpt_dim_dtype),
    Function("div", WIDE, _QUOTIENTS, variant="of_aten_by_number", call=_aten.div.Scalar_mode),
    Function(
        "floor_divide",
        (*WIDE, *_WHOLE),
        tuple(_second((2, -3))),
        variant="of_aten_by_number",
        call=_aten.floor_divide.Scalar,
        differentiable=False,
    ),
    Function(
        "_native_batch_norm_legit_no_training",
        WIDE,
        tuple(_normalized(False, False)),
        call=_aten._native_batch_norm_legit_no_training.default,
    ),
    Function(
        "_native_batch_norm_legit_functional",
        WIDE,
        tuple(_normalized(False, True)),
        call=_aten._native_batch_norm_legit_functional.default,
    ),
    Function(
        "_batch_norm_with_update_functional",
        WIDE,
        tuple(_normalized(True, False)),
        call=_aten._batch_norm_with_update_functional.default,
    ),
    Function("_conj_copy", COMPLEX, _LAZY, call=_aten._conj_copy.default),
    Function("_neg_view_copy", NUMBERS, _LAZY, call=_aten._neg_view_copy.default),
    Function("squeeze_copy", ALL, tuple(_squeezed()), variant="of_dims"),
    Function("view", ("float32", "float64", "int32"), _VIEWS, variant="as_dtype", differentiable=False),
)
