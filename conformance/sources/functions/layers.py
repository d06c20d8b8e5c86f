"""Rows of layers: pooling, convolutions, resampling, normalization, dropout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from torchstone.conformance.sources.functions.row import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    WIDE,
    Function,
    Given,
    drawn,
    exact,
    given,
)

_POOLED = (*FLOATS, *INTEGERS)
_SHAPES: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((2, 3, 9), (3, 8), (1, 1, 7)),
    2: ((2, 3, 7, 6), (3, 8, 5), (1, 1, 5, 9)),
    3: ((2, 2, 5, 6, 4), (3, 5, 5, 7), (1, 1, 5, 5, 6)),
}
"""Inputs of pooling by the number of dims in a window: a batch, none, one of one."""


def _max_pools(dims: int) -> Iterator[Given]:
    odd = (3, 2, 2)[:dims]
    for shape in _SHAPES[dims]:
        yield given(drawn(*shape), 2)
        yield given(drawn(*shape), odd, stride=2, padding=1)
        yield given(drawn(*shape), 2, stride=3, ceil_mode=True)
        yield given(drawn(*shape, strided=True), 2, stride=1, dilation=2)
    yield given(drawn(*_SHAPES[dims][0], low=1, high=3), 3, 2, 1)  # integers with ties
    yield given(drawn(0, *_SHAPES[dims][0][1:]), 2)


def _adaptive_pools(dims: int) -> Iterator[Given]:
    for shape in _SHAPES[dims]:
        yield given(drawn(*shape), (3, 4, 2)[:dims])
        yield given(drawn(*shape, strided=True), 1)
        yield given(drawn(*shape), 5)
    if dims > 1:
        yield given(drawn(*_SHAPES[dims][0]), (None, 2, None)[:dims])


def _fractional_pools(dims: int) -> Iterator[Given]:
    for shape in _SHAPES[dims]:
        batch, channels = (*shape[: -dims - 1], 1)[0], shape[-dims - 1]
        places = drawn(batch, channels, dims, low=0, high=1)
        yield given(drawn(*shape), 2, output_size=(2, 3, 1)[:dims], _random_samples=places)
        yield given(drawn(*shape), (3, 2, 2)[:dims], output_ratio=(0.5,) * dims, _random_samples=places)
    yield given(drawn(*_SHAPES[dims][0]), 2, output_size=2)


def _lp_pools(dims: int) -> Iterator[Given]:
    for shape, power in zip(_SHAPES[dims], (2, 3.5, 1), strict=True):
        yield given(drawn(*shape, low=0), power, 2)
        yield given(drawn(*shape, low=0), power, (3, 2, 2)[:dims] if dims > 1 else 3, stride=2, ceil_mode=True)
    yield given(drawn(*_SHAPES[dims][0], strided=True), 2.0, 3, 1)


_FOLDS = (
    given(drawn(2, 12, 12), (4, 5), (2, 2)),
    given(drawn(12, 4), output_size=(4, 4), kernel_size=(2, 2), stride=2),
    given(drawn(1, 18, 4), (3, 4), (3, 3), padding=1, stride=2),
    given(drawn(3, 4, 6, strided=True), (4, 5), 2, dilation=2),
    given(drawn(2, 6, 20), (5, 6), (1, 3), stride=(1, 1)),
    given(drawn(1, 8, 9), 4, (2, 4), stride=(1, 1), padding=(0, 1)),
)


def _affine_grids() -> Iterator[Given]:
    for size in ((2, 3, 4, 5), (1, 1, 3, 1), (3, 2, 1, 4)):
        for corners in (False, True):
            yield given(drawn(size[0], 2, 3), list(size), corners)
    for size in ((1, 2, 3, 4, 2), (2, 1, 1, 2, 3)):
        for corners in (False, True):
            yield given(drawn(size[0], 3, 4, strided=corners), list(size), corners)


def _grid_samplers() -> Iterator[Given]:
    for mode in (0, 1, 2):
        for padding in (0, 1, 2):
            yield given(drawn(2, 3, 4, 5), drawn(2, 3, 2, 2, low=-1.2, high=1.2), mode, padding, bool(mode == padding))
    for mode in (0, 1):
        for padding in (0, 1, 2):
            grid = drawn(1, 2, 3, 2, 3, low=-1.2, high=1.2)
            yield given(drawn(1, 2, 3, 4, 2), grid, mode, padding, bool(padding))


_CONVOLUTIONS = (
    given(drawn(2, 3, 8), drawn(4, 3, 3), drawn(4), [1], [0], [1], False, [0], 1),
    given(drawn(2, 3, 7, 6), drawn(4, 3, 3, 2), drawn(4), [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
    given(drawn(1, 4, 6, 5), drawn(6, 2, 3, 3), None, [1, 1], [1, 1], [1, 2], False, [0, 0], 2),
    given(drawn(2, 4, 5, 5, strided=True), drawn(4, 1, 2, 2), drawn(4), [1, 1], [0, 0], [2, 2], False, [0, 0], 4),
    given(drawn(1, 2, 4, 5, 4), drawn(3, 2, 2, 2, 3), drawn(3), [1, 2, 1], [1, 0, 1], [1, 1, 1], False, [0, 0, 0], 1),
    given(drawn(2, 3, 5), drawn(3, 2, 3), drawn(2), [2], [1], [1], True, [1], 1),
    given(drawn(1, 4, 4, 3), drawn(4, 2, 3, 2), None, [2, 2], [1, 0], [1, 1], True, [1, 0], 2),
    given(drawn(1, 2, 3, 3, 2), drawn(2, 2, 2, 2, 2), drawn(2), [1, 1, 1], [0, 0, 0], [1, 2, 1], True, [0, 0, 0], 1),
    given(drawn(0, 3, 8), drawn(4, 3, 3), drawn(4), [1], [0], [1], False, [0], 1),
)

_TBC = (
    given(drawn(7, 2, 3), drawn(3, 3, 4), drawn(4), 0),
    given(drawn(5, 1, 2), drawn(2, 2, 3), drawn(3), 1),
    given(drawn(6, 3, 4, strided=True), drawn(1, 4, 2), drawn(2)),
    given(drawn(4, 2, 1), drawn(4, 1, 1), drawn(1), 2),
)


def _upsamples() -> Iterator[Given]:
    for mode, shapes in (
        ("nearest", ((2, 3, 5), (1, 2, 3, 4), (1, 1, 2, 3, 4))),
        ("linear", ((2, 3, 5),)),
        ("bilinear", ((1, 2, 3, 4),)),
        ("bicubic", ((1, 2, 4, 3),)),
        ("trilinear", ((1, 2, 2, 3, 4),)),
    ):
        for shape in shapes:
            corners: Sequence[bool | None] = (None,) if mode == "nearest" else (False, True)
            for each in corners:
                yield given(drawn(*shape), 7, None, mode, each)
                yield given(drawn(*shape, strided=True), scale_factor=2, mode=mode, align_corners=each)
                yield given(drawn(*shape), size=(4, 3, 5)[: len(shape) - 2], mode=mode, align_corners=each)


_SHUFFLES = (
    given(drawn(2, 6, 3), 3),
    given(drawn(1, 4, 2, 3), 2),
    given(drawn(3, 4, 2, 1, 2, strided=True), 4),
    given(drawn(2, 5, 4), 1),
    given(drawn(2, 6, 2, 2), 6),
)


def _dropouts() -> Iterator[Given]:
    for p in (0.5, 0.25, 0.0, 1.0):
        yield given(drawn(3, 8, 5), p, True)
    yield given(drawn(2, 4, 6, strided=True), 0.3, True)
    yield given(drawn(2, 4, 6), 0.3, False)


_DROPOUT_1D = (*_dropouts(), given(drawn(6, 4), 0.5, True), given(drawn(6, 4), 0.5, True, inplace=True))
_NATIVE_DROPOUT = (*_dropouts(), given(drawn(7), 0.5, None), given(drawn(), 0.5, True), given(drawn(0, 3), 0.5, True))

_STATISTICS = (
    given(drawn(4, 3), drawn(3), drawn(3, low=0), 0.1),
    given(drawn(2, 3, 5), drawn(3), drawn(3, low=0), 0.5),
    given(drawn(2, 4, 3, 2, strided=True), drawn(4), drawn(4, low=0), 0.0),
    given(drawn(3, 2, 4), None, None, 0.1),
    given(drawn(5, 1), drawn(1), drawn(1, low=0), 1.0),
)


def _norms_except_dim() -> Iterator[Given]:
    for shape in ((4, 3), (2, 3, 4), (5,), (1, 4, 2, 2)):
        yield given(drawn(*shape))
        for power in (1, 2, 3):
            yield given(drawn(*shape, strided=power == 1), power, -1 if power == 3 else len(shape) - 1)


_RENORMED = (
    given(drawn(5, 3), exact([0, 3]), 1.0, 2.0),
    given(drawn(6, 4), exact([[1, 5], [1, 0]]), 3.0, 1.0),
    given(drawn(4, 2, low=-1, high=1), exact([2]), 100.0, 2.0),
    given(drawn(3, 5), exact([], torch.int64), 1.0, 2.0),
    given(drawn(7, 3), exact([6, 6, 0], torch.int32), 0.5, 3.0),
)


LAYERS = (
    *(
        Function(f"{prefix}max_pool{dims}d_with_indices", _POOLED, tuple(_max_pools(dims)))
        for dims, prefix in ((1, "nn.functional."), (2, "nn.functional."), (3, "nn.functional."), (1, ""))
    ),
    *(
        Function(f"nn.functional.adaptive_max_pool{dims}d_with_indices", FLOATS, tuple(_adaptive_pools(dims)))
        for dims in (1, 2, 3)
    ),
    *(
        Function(f"nn.functional.fractional_max_pool{dims}d_with_indices", FLOATS, tuple(_fractional_pools(dims)), True)
        for dims in (2, 3)
    ),
    *(
        Function(f"nn.functional.lp_pool{dims}d", WIDE if dims == 3 else FLOATS, tuple(_lp_pools(dims)))
        for dims in (1, 2, 3)
    ),
    Function("nn.functional.fold", (*FLOATS, *COMPLEX, "bool"), _FOLDS),
    Function("nn.functional.affine_grid", FLOATS, tuple(_affine_grids())),
    Function("affine_grid_generator", (*FLOATS, *COMPLEX), tuple(_affine_grids())),
    Function("grid_sampler", FLOATS, tuple(_grid_samplers())),
    Function("nn.functional.upsample", (*FLOATS, "uint8"), tuple(_upsamples())),
    Function("convolution", (*FLOATS, "int64"), _CONVOLUTIONS),
    Function("conv_tbc", NUMBERS, _TBC),
    Function("native_channel_shuffle", ALL, _SHUFFLES),
    Function("nn.functional.dropout1d", FLOATS, _DROPOUT_1D, draws=True),
    Function("feature_dropout", FLOATS, tuple(_dropouts()), draws=True),
    Function("native_dropout", FLOATS, _NATIVE_DROPOUT, draws=True),
    Function("batch_norm_update_stats", FLOATS, _STATISTICS),
    Function("norm_except_dim", (*FLOATS, *COMPLEX), tuple(_norms_except_dim())),
    Function("embedding_renorm_", FLOATS, _RENORMED),
)
