"""Rows of functions that make numbers, draw them, round them to a grid, or sum them up."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.conformance.sources.functions.row import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    OWN_DTYPE,
    WIDE,
    Function,
    Given,
    drawn,
    exact,
    given,
)

_POISSON = (
    given(drawn(4, 5, low=0, high=9)),
    given(drawn(7, low=0, high=1)),
    given(drawn(low=0)),
    given(drawn(0, 3, low=0)),
    given(drawn(3, 4, low=10, high=60, strided=True)),
)
_BINOMIAL = (
    given(exact([10.0, 4.0, 0.0, 1.0, 60.0], None), drawn(5, low=0, high=1)),
    given(exact([[10.0], [3.0]], None), drawn(2, 4, low=0, high=1)),
    given(exact(5.0, None), drawn(low=0, high=1)),
    given(exact([3.0, 8.0, 9.0], None), exact([0.0, 1.0, 0.5], None)),
)


def _gumbels() -> Iterator[Given]:
    for hard in (False, True):
        yield given(drawn(4, 5), hard=hard)
        yield given(drawn(3, 2, 4), tau=0.5, hard=hard, dim=1)
        yield given(drawn(6, strided=True), 2.0, hard, dim=0)


def _windows(beta: bool = False) -> Iterator[Given]:
    for length in (0, 1, 2, 7, 16):
        for periodic in (True, False):
            yield given(length, periodic, dtype=OWN_DTYPE)
            if beta:
                yield given(length, periodic=periodic, beta=5.5, dtype=OWN_DTYPE)
    yield given(5, dtype=OWN_DTYPE)


_HAMMING = (*_windows(), given(6, True, 0.6, dtype=OWN_DTYPE), given(9, False, 0.5, 0.4, dtype=OWN_DTYPE))
_FREQUENCIES = tuple(
    given(n, *spacing, dtype=OWN_DTYPE) for n in (1, 2, 7, 8) for spacing in ((), (0.25,), (3.0,))
)  # fmt: skip
_RANGES = (
    given(0, 5, dtype=OWN_DTYPE),
    given(1, 4, 2, dtype=OWN_DTYPE),
    given(7, 1, -3, dtype=OWN_DTYPE),
    given(3, 3, dtype=OWN_DTYPE),
)
_TENSORS = (
    given(1, dtype=OWN_DTYPE),
    given([1, 0, 3], dtype=OWN_DTYPE),
    given([[1, 2], [3, 4], [0, 6]], dtype=OWN_DTYPE),
    given([], dtype=OWN_DTYPE),
    given([[[1], [0]]], dtype=OWN_DTYPE),
)
_FROM_TENSORS = (
    given(drawn(3, 4), dtype=OWN_DTYPE),
    given(drawn(3, 4), dtype=torch.float32),
    given(drawn(5, strided=True), dtype=torch.int64),
    given(drawn(), dtype=torch.bool),
    given(drawn(0, 2), dtype=torch.float64),
)
_NEW_TENSORS = (
    given(drawn(3), [[1, 2], [3, 0]]),
    given(drawn(2, 2), 7),
    given(drawn(), [1, 0, 2], dtype=torch.float64),
    given(drawn(3), []),
)
_RANDOM = (
    given(drawn(4, 5)),
    given(drawn(7), 10),
    given(drawn(3, 3, strided=True), 2, 6),
    given(drawn(), 5),
    given(drawn(0, 2), 5),
)

_RANDS = tuple(given(*shape, dtype=OWN_DTYPE) for shape in ((3, 4), (1, 7), (0, 2)))
_PERMUTATIONS = tuple(given(n, dtype=OWN_DTYPE) for n in (0, 1, 9))


def _grids() -> Iterator[Given]:
    for bounds in ((0, 255), (-128, 127), (-7, 8)):
        yield given(drawn(3, 4), 0.1, (bounds[0] + bounds[1]) // 2, *bounds)
        yield given(drawn(2, 5, strided=True), 0.75, 0, *bounds)
    yield given(drawn(), 0.5, 0, -128, 127)
    yield given(drawn(0, 3), 0.5, 0, -128, 127)
    yield given(drawn(2, 3), exact(0.25, torch.float32), exact(3, torch.int32), 0, 15)


def _grids_of_channels() -> Iterator[Given]:
    for zero in (torch.int32, torch.float32):
        scales = exact([0.1, 0.75, 0.05], torch.float32)
        yield given(drawn(3, 4), scales, exact([0, 5, 10], zero), 0, 0, 255)
        yield given(drawn(2, 3, 4, strided=True), scales, exact([0, 0, -3], zero), 1, -128, 127)
        yield given(drawn(5, 3), scales, exact([1, 2, 3], zero), 1, -7, 8)


def _observed() -> Iterator[Given]:
    for observe, quantize in ((1, 1), (1, 0), (0, 1)):
        for rows in (False, True):
            size = (3,) if rows else (1,)
            yield given(
                drawn(3, 4, dtype=torch.float32),
                exact([observe], torch.int64), exact([quantize], torch.int64),
                drawn(*size, low=-5, high=-1, dtype=torch.float32), drawn(*size, low=1, high=5, dtype=torch.float32),
                drawn(*size, low=0.01, high=0.1, dtype=torch.float32), exact([0] * size[0], torch.int32),
                0.01, -128, 127, 0, rows, bool(observe and quantize),
            )  # fmt: skip


_CHAINS = (
    given(drawn(3, 4), drawn(4, 5)),
    given(drawn(2, 6), drawn(6, 3), drawn(3, 4)),
    given(drawn(5, 2), drawn(2, 7), drawn(7, 1), drawn(1, 3)),
    given(drawn(3, 3, strided=True)),
    given(drawn(3, 4, strided=True), drawn(4, 0), drawn(0, 2)),
)


def _matrix_norms(whole: bool) -> Iterator[Given]:
    for keepdim in (False, True):
        if whole:
            yield given(drawn(3, 4), keepdim=keepdim)
        yield given(drawn(3, 4), (0, 1), keepdim)
        yield given(drawn(2, 3, 4), (-2, -1), keepdim)
        yield given(drawn(2, 5, 3, strided=True), (0, 2), keepdim)


_FROBENIUS = (*_matrix_norms(False), given(drawn(4, 3), 1), given(drawn(4, 3), [-2], True), given(drawn(3, 0), (0, 1)))

VALUES = (
    Function("poisson", FLOATS, _POISSON, draws=True),
    Function("binomial", WIDE, _BINOMIAL, draws=True),
    Function("nn.functional.gumbel_softmax", FLOATS, tuple(_gumbels()), draws=True),
    Function("random_", (*FLOATS, *INTEGERS), _RANDOM, draws=True),
    Function("rand", (*FLOATS, *COMPLEX), _RANDS, draws=True),
    Function("randperm", (*FLOATS, *INTEGERS), _PERMUTATIONS, draws=True),
    *(Function(f"{name}_window", FLOATS, tuple(_windows())) for name in ("bartlett", "hann")),
    Function("blackman_window", WIDE, tuple(_windows())),  # in 16 bits, what is left of 0.08 - 0.5 + 0.42 is rounding
    Function("hamming_window", FLOATS, _HAMMING),
    Function("kaiser_window", FLOATS, tuple(_windows(beta=True))),
    Function("fft.fftfreq", FLOATS, _FREQUENCIES),
    Function("fft.rfftfreq", FLOATS, _FREQUENCIES),
    Function("range", (*FLOATS, *INTEGERS), _RANGES),
    Function("tensor", ALL, _TENSORS),
    Function("as_tensor", ALL, _FROM_TENSORS),
    Function("asarray", ALL, (*_FROM_TENSORS, given(drawn(2, 3), copy=True))),
    Function("new_tensor", ALL, _NEW_TENSORS),
    Function("fake_quantize_per_tensor_affine", FLOATS, tuple(_grids())),
    Function("fake_quantize_per_channel_affine", FLOATS, tuple(_grids_of_channels())),
    Function("fused_moving_avg_obs_fake_quant", ("float32",), tuple(_observed())),
    Function("chain_matmul", (*FLOATS, *COMPLEX, *INTEGERS), _CHAINS),
    Function("frobenius_norm", (*FLOATS, *COMPLEX), _FROBENIUS),
    Function("nuclear_norm", (*WIDE, *COMPLEX), tuple(_matrix_norms(True))),
)  # fmt: skip
