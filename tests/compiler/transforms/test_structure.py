"""Ops that move elements, over random arguments: ranges past the ends, negative dims, steps, empty results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Agrees = Callable[..., None]
bounds = st.none() | st.integers(-9, 9)


def _tensor(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


@SETTINGS
@given(start=bounds, end=bounds, step=st.integers(1, 4), dim=st.integers(-2, 1))
def test_slice(agrees: Agrees, start: Any, end: Any, step: int, dim: int) -> None:
    agrees(lambda x: torch.ops.aten.slice.Tensor(x, dim, start, end, step), _tensor(6, 7))


@SETTINGS
@given(start=bounds, end=bounds, step=st.integers(1, 4), dim=st.integers(-2, 1))
def test_slice_scatter(agrees: Agrees, start: Any, end: Any, step: int, dim: int) -> None:
    x = _tensor(6, 7)
    part = -torch.ops.aten.slice.Tensor(x, dim, start, end, step)
    agrees(lambda x, y: torch.slice_scatter(x, y, dim, start, end, step), x, part)


@SETTINGS
@given(index=st.integers(-5, 4), dim=st.sampled_from([0, -2]))
def test_select(agrees: Agrees, index: int, dim: int) -> None:
    x = _tensor(5, 3)
    agrees(lambda x: x.select(dim, index), x)
    agrees(lambda x, y: torch.select_scatter(x, y, dim, index), x, -x.select(dim, index))


@SETTINGS
@given(offset=st.integers(-5, 5), dims=st.permutations([0, 1, 2]))
def test_diagonal(agrees: Agrees, offset: int, dims: list[int]) -> None:
    x = _tensor(3, 4, 2)
    if -x.shape[dims[0]] <= offset <= x.shape[dims[1]]:
        agrees(lambda x: torch.diagonal(x, offset, dims[0], dims[1] - 3), x)


@SETTINGS
@given(offset=st.integers(-3, 3), dims=st.permutations([0, 1, 2]))
def test_diag_embed(agrees: Agrees, offset: int, dims: list[int]) -> None:
    agrees(lambda x: torch.diag_embed(x, offset, dims[0], dims[1] - 3), _tensor(2, 3))


@SETTINGS
@given(pad=st.lists(st.integers(-2, 3), min_size=4, max_size=4), value=st.sampled_from([0.0, -1.5, float("inf")]))
def test_constant_pad(agrees: Agrees, pad: list[int], value: float) -> None:
    agrees(lambda x: F.pad(x, pad, value=value), _tensor(4, 5))


@SETTINGS
@given(pad=st.lists(st.integers(-2, 3), min_size=4, max_size=4), mode=st.sampled_from(["reflect", "replicate"]))
def test_border_pad(agrees: Agrees, pad: list[int], mode: str) -> None:
    agrees(lambda x: F.pad(x, pad, mode=mode), _tensor(1, 4, 5))


@SETTINGS
@given(shifts=st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_roll(agrees: Agrees, shifts: tuple[int, int]) -> None:
    agrees(lambda x: torch.roll(x, shifts, (0, -1)), _tensor(4, 5))
    agrees(lambda x: torch.roll(x, shifts[0]), _tensor(4, 5))


@SETTINGS
@given(size=st.integers(1, 5), step=st.integers(1, 4), dim=st.sampled_from([0, -1]))
def test_unfold(agrees: Agrees, size: int, step: int, dim: int) -> None:
    agrees(lambda x: x.unfold(dim, size, step), _tensor(5, 6))


@SETTINGS
@given(repeats=st.lists(st.integers(0, 3), min_size=2, max_size=4))
def test_repeat(agrees: Agrees, repeats: list[int]) -> None:
    agrees(lambda x: x.repeat(repeats), _tensor(2, 3))


@SETTINGS
@given(diagonal=st.integers(-5, 5), shape=st.sampled_from([(3, 4), (2, 4, 3), (0, 3)]))
def test_triangles(agrees: Agrees, diagonal: int, shape: tuple[int, ...]) -> None:
    x = _tensor(*shape)
    agrees(lambda x: (x.tril(diagonal), x.triu(diagonal)), x)


@SETTINGS
@given(start=st.integers(-5, 5) | st.floats(-3, 3), step=st.sampled_from([1, -2, 0.3, -0.25]), count=st.integers(0, 20))
def test_arange(agrees: Agrees, start: float, step: float, count: int) -> None:
    end = start + step * count
    agrees(lambda x: x + torch.arange(start, end, step).sum(), torch.zeros(()))
    agrees(lambda x: x.new_zeros(()) + torch.linspace(start, end, count), torch.zeros(()))


@pytest.mark.few(6)
@pytest.mark.parametrize("dims", [(0,), (1, 2), (-1,), ()])
@pytest.mark.parametrize("keepdim", [True, False])
def test_reductions_keep_dims_and_take_empty_tensors(agrees: Agrees, dims: tuple[int, ...], keepdim: bool) -> None:
    for x in (_tensor(2, 3, 4), _tensor(2, 0, 4), torch.full((2, 3, 4), float("nan"))):
        agrees(lambda x: x.sum(dims, keepdim), x)
        agrees(lambda x: x.mean(dims, keepdim), x)
        agrees(lambda x: (x > 2).any(dims, keepdim), x)
        agrees(lambda x: torch.linalg.vector_norm(x, 2, dims or None, keepdim), x)
        if x.numel():
            agrees(lambda x: x.amax(dims, keepdim), x)
            agrees(lambda x: x.logsumexp(dims or (0, 1, 2), keepdim), x)


def test_ties_and_nan_give_the_first_index(agrees: Agrees) -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [float("nan"), 5.0, float("nan")], [-0.0, 0.0, -1.0]])
    agrees(lambda x: (x.max(1), x.min(1), x.argmax(1), x.argmin(), x.argmax(0, True)), x)
    agrees(lambda x: x.max(0), torch.tensor([[True, False], [True, False]]))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")
@pytest.mark.parametrize("correction", [0, 1, 5, -1])
def test_spread_of_too_few(agrees: Agrees, correction: int) -> None:
    for x in (_tensor(4), torch.tensor([2.0]), _tensor(0), _tensor(0, 3)):
        agrees(lambda x: (torch.var(x, 0, correction=correction), torch.std(x, 0, correction=correction)), x)
        agrees(lambda x: torch.var_mean(x, None, correction=correction), x)


def test_the_product_of_no_rows_and_a_bias_of_no_dims(agrees: Agrees) -> None:
    nan = torch.tensor(float("nan"))
    agrees(lambda c, a, x: torch.addmv(c, a, x, beta=0), nan, _tensor(0, 4), _tensor(4))  # 0 ignores even NaN
    for bias in (torch.tensor(3.0), torch.tensor([3.0]), _tensor(0)):  # eager's result has the shape of the bias
        agrees(torch.addmv, bias, _tensor(0, 4), _tensor(4))
        agrees(lambda c, a, x: torch.addmv(c, a, x, beta=0.5), bias, _tensor(0, 4), _tensor(4))


def test_norms_of_every_order(agrees: Agrees) -> None:
    x = torch.tensor([[3.0, -4.0, 0.0], [float("inf"), 1.0, -1.0]])
    for order in (0, 1, 2, 3, 0.5, -1, float("inf"), float("-inf")):
        agrees(lambda x, p=order: torch.linalg.vector_norm(x, p, 1), x)


def test_pooling_finds_its_places(agrees: Agrees) -> None:
    """The first of equals, the last NaN, never the padding."""
    x = _tensor(1, 2, 6, 7) % 5
    x[0, 0, 1, 2] = x[0, 0, 2, 3] = float("nan")
    x[0, 1] = float("-inf")
    agrees(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    agrees(lambda x: F.max_pool2d(x, 2, 1, 1, 2, ceil_mode=True, return_indices=True), x)
    agrees(lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), x)
    agrees(lambda x: (F.avg_pool2d(x, 3, 2, 1, True, False), F.adaptive_avg_pool2d(x, (4, 3))), _tensor(1, 2, 6, 7))


@SETTINGS
@given(
    stride=st.integers(1, 3), padding=st.integers(0, 2), dilation=st.integers(1, 2), groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
)  # fmt: skip
def test_convolution(agrees: Agrees, stride: int, padding: int, dilation: int, groups: int, transposed: bool) -> None:
    x, w = torch.sin(_tensor(2, 4, 7, 6)), torch.cos(_tensor(4, 4 // groups, 3, 2))
    args = ([stride, 1], [padding, 0], [dilation, 1], transposed, [0, 0], groups)
    agrees(lambda x, w: torch.ops.aten.convolution(x, w, None, *args), x, w)


def test_prefixes(agrees: Agrees) -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, float("nan"), 2.0], [0.0, -1.0, float("-inf"), 5.0, -0.0]])
    agrees(lambda x: (x.cumsum(1), x.cumprod(0), x.logcumsumexp(-1), x.cummax(1), x.cummin(1)), x)
    agrees(lambda x: (x.cumsum(0), x.cummax(0)), torch.tensor([True, False, True]))
